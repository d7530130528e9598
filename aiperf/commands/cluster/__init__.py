"""Commands of batch systems: scripts, jobs, scaling studies."""
