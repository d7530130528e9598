"""Processes and the messages between them: MPI, torchrun, Horovod, or one process."""
