"""Data parallelism: what the ranks of a group do together."""
