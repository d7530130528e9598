"""The messages between the processes of a run, and which of them train together."""
