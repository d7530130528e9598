"""Training steps of one network under torch's profiler: by phase, by node, and what memory they take."""
