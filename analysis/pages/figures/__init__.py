"""The figures of reports: each is data, a text that says the same, and a way to draw it at any width.
`picture.py` says what a figure is and how all of them look, `svg.py` writes them; `bars.py` and
`trial_dots.py` are shared by several. The other files are a figure or two each."""
