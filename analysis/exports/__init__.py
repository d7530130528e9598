"""A run as text or in another program's form.

Each file is one form: for people `summary.py`, `runs.py` and `watch.py`, for programs `result.py` and
`openmetrics.py`, for others' rankings `mllog.py` and `dawnbench.py`. What is shown comes from
`analysis.readings` and the score.
"""
