"""The journal: its lines, the file, and what they add up to."""
