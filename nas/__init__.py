"""Architectures as data, and how they grow."""
