"""The benchmark: its runs, their trials, journals and scores."""

__version__ = "0.1.0"
