"""The sub-command `simulate`: here the simulation and the run meet."""
