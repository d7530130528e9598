"""Execution of a run, from its configuration to the last line of its journal."""
