"""Training: a rank that trains trials, and the files it leaves."""
