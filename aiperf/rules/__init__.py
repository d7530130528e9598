"""Whether a result is true, and which class a true result belongs to."""
