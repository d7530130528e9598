"""Whether a result is true, and which class a true result belongs to.

`rule.py` says what a rule is, `verdict.py` lists all of them. A rule is a function from the evidence to what
it saw; the other files have the rules by what they look at. docs/rules.md and docs/score.md say what a run
must be.
"""
