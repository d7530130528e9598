"""The ranks of a run: how they find each other, exchange messages and start the processes that train.

- `ranks` goes from one command, started once or by a launcher (`launcher`) on many ranks, to a master and its
  workers.
- `world` is all that the master knows of the ranks. It has four implementations: one worker without a
  launcher (in `ranks`), the ranks of a launcher (`mpi`), the trials of NNI (`aiperf.on_nni`), and groups on a
  virtual clock (`aiperf.simulation`).
- `connect` starts and ends the connections: `link` over MPI, with a guard (`start_guard`) against ranks that
  do not start, or over `sockets`: of one host (`torchrun`), or of a `network` (`sealing` keeps others out).
- `tree` sends a message from the master to all ranks; `shipping` sends files to hosts without a shared
  directory.
- `relay` is a rank that is not the master. Its worker is a process (`process`), a thread that only pretends
  to train (`pretender`) or, for Horovod, the rank itself (`in_rank`).
"""
