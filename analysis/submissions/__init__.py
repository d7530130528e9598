"""Packages: packed, signed, verified and ranked."""
