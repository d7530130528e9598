"""What a rank measures of its device before the clock starts."""
