"""Pages that stand alone, and their figures."""
