"""Language: its data, facts and tally, and how networks are trained on text."""
