"""One run of the benchmark: its trials, its journal, its score."""

__version__ = "0.1.0"
