"""From what is wanted, "8 nodes, for an hour", to the text of a batch script: pure functions of data."""
