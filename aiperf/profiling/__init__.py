"""Training steps of one network under torch's profiler: by phase, by node, and what memory they take.

`aiperf-hpc profile` makes a `work.ProfileWork`, `local_ranks` starts a process for each rank, `rank_process`
makes the steps of `steps`. What they record is read by `analysis.readings.profile`.
"""
