"""Benchmarks of text: figures to compare with, the bundled text, and an outside mark."""
