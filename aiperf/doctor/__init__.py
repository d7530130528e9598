"""Whether a machine is as a run needs it: looked at by every rank, judged in one place.

`examination.py` asks all ranks, `host_report.py` and `device_report.py` look at a host and at a device,
`reports.py` has what they answer. `judge.py` turns that into checks, with `software.py` and `folders.py`.
"""
