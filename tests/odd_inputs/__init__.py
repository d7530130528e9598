"""What comes from outside of this program, as odd as it can be."""
