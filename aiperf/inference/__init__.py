"""Inference of a network of a run, measured with MLPerf's LoadGen."""
