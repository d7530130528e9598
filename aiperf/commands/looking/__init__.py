"""Commands that read what a run wrote."""
