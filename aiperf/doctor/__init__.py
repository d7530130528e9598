"""Whether a machine is as a run needs it: looked at by every rank, judged in one place."""
