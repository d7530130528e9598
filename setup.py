"""For tools that still call it; everything stands in pyproject.toml."""

from setuptools import setup

setup()
