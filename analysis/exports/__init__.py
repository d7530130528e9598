"""A run as text or in another program's form."""
