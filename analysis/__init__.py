"""Reads journals and architectures; writes tables, figures, reports, packages and rankings."""
