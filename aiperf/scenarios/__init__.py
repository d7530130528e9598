"""What MLPerf's LoadGen asks of a network, what its logs say, and what was measured, as plain records."""
