"""The memory of a training step, as torch's eager engine takes it, from the graph alone."""

from nas.memory.step import StepMemory, step_memory

__all__ = ["StepMemory", "step_memory"]
