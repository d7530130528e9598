"""Where the time and the memory of a training step go, from what a profiler recorded."""
