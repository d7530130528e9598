"""Image classification: its data, facts and tally, and how networks are trained on images."""
