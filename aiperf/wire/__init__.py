"""What the processes of a run say to each other, and which of them train together."""
