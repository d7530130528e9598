"""Runs on machines that do not exist: the real master, search and journal, with groups that are processes of
SimPy on a virtual clock.

- `simulated_machine` has the nodes and the file system, `simulated_group` the life of a group, and
`simulated_world` the messages, the failures and the time that the master takes. - `load_figures` shows what a
simulation shows beyond the score of its journal. - `calibrate` derives the assumptions from a measured run,
with the fits of `fits`; `prediction` compares a run with its simulation.
"""
