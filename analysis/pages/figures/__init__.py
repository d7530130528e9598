"""The figures of reports: each is data, a text that says the same, and a way to draw it at any width."""
