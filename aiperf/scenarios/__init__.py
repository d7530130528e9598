"""The scenarios of MLPerf's LoadGen, its logs, and the measurements, as plain records."""
