"""A run under NNI: its manager starts the trials and shows them, and the journal is as any other."""
