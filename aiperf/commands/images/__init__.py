"""The sub-commands of `aiperf-hpc data`."""
