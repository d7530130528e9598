"""Settings of ReFrame for aiperf-hpc: merge them into those of the site, or edit the lines marked EDIT."""

# EDIT: what puts `aiperf-hpc` on PATH, such as modules=["aiperf-hpc"] or an environment's activation.
PROGRAM = {"name": "aiperf-hpc", "features": ["aiperf-hpc"]}

site_configuration = {
    "systems": [
        {
            "name": "site",  # EDIT: name and hosts
            "descr": "a machine that runs aiperf-hpc",
            "hostnames": [".*"],
            "partitions": [
                {
                    "name": "local",
                    "descr": "this machine itself, without a scheduler",
                    "scheduler": "local",
                    "launcher": "local",
                    "environs": ["aiperf-hpc"],
                },
                {
                    "name": "slurm",
                    "descr": "nodes under Slurm",
                    "scheduler": "squeue",  # or slurm, where `sacct` answers
                    "launcher": "srun",
                    "access": ["--partition=main"],  # EDIT: partition and account
                    "environs": ["aiperf-hpc"],
                },
            ],
        }
    ],
    "environments": [PROGRAM],
}
