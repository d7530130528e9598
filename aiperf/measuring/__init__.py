"""Measurements of a rank's device before the clock starts."""
