"""A run under Microsoft's NNI, whose manager starts the trials and whose page shows them.

`nnictl create` reads the file of `description`. NNI's dispatcher then calls `tuner`, which starts the master
of an ordinary run; its groups are `nni_world`, a socket. NNI starts a process for each trial
(`trial_process`), which calls that socket and trains as any worker does. `trial_messages` are what the three
say to each other.
"""
