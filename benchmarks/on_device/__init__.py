"""The parts of benchmarks/device.py, each in a process of its own."""
