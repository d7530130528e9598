"""Training: a rank that trains trials, and the files it leaves.

`worker_process.py` is the process, `worker.py` its life, `train.py` the steps of a trial. What decides what
is done next is in `aiperf.conduct`; `driver.py` carries it out, here and for a rank that only pretends to
train.
"""
