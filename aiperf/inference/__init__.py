"""A network that the search found, under the queries of MLPerf's LoadGen."""
