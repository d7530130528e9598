"""Settings of ReFrame for aiperf-hpc: to be merged into those of the site, or edited where EDIT stands."""

# EDIT: what makes `aiperf-hpc` be found, such as modules=["aiperf-hpc"] or an environment's activation.
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
                    "descr": "nodes by Slurm",
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
