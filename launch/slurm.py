"""Slurm: sbatch(1), srun(1), squeue(1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aiperf.errors import ConfigError
from aiperf.host import variables
from aiperf.host.programs import rows
from aiperf.wording import duration
from launch.job import WARNING_SECONDS, Job
from launch.scheduler import COUNT, Answer, JobStates, Launcher, Scheduler, clock_seconds, submitted_id
from launch.site import Site

MOST_RESTARTS = 20
"""A job that is always stopped before it gets anywhere must not be queued for ever."""
END = "SLURM_JOB_END_TIME"
"""Variable with the end of the job in seconds since 1970."""
LEFT = r"(?:\d+-)?\d+(?::\d+)*|UNLIMITED|INVALID|NOT_SET|N/A"
"""The time left in an answer of squeue: squeue(1), %L."""
UNLIMITED_SECONDS = 360 * 86400.0
"""A job that ends later has no limit: Slurm lets one without a limit end in a year (slurmctld/job_mgr.c)."""

SRUN = Launcher(
    "srun",
    # Only the arbitrary distribution gives the first node one rank more and keeps ranks consecutive: with
    # block and cyclic the master shares a device or a node is left with one rank less.
    lambda mpi: [
        'env SLURM_HOSTFILE="$hosts"',
        "srun",
        f"--mpi={mpi.plugin}",
        '--nodes="$nodes"',
        f"--ntasks={COUNT}",
        "--distribution=arbitrary",
        '--cpus-per-task="$cores"',
    ],
    ("srun", '--nodes="$nodes"', '--ntasks="$nodes"', "--ntasks-per-node=1"),
    rank_variables=("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),  # a batch script has the first alone
    # Its fence without data is a tree by default, which has let ranks go before all had come (22.05.8), and
    # messages of those then ended others inside MPI_Init (ompi issue 12495). A site can name another.
    environment={"SLURM_PMIX_FENCE": "ring"},
    why="Ranks must start together: with Slurm's other fence, a tree, some continue too early.",
)


class Slurm(Scheduler):
    """Jobs are queued again by the script itself, because Slurm does so only after a failure of a node."""

    name = title = "Slurm"
    ending = "sbatch"
    mark, account, partition = "#SBATCH", "--account=", "--partition="
    job_id = "SLURM_JOB_ID"
    element = "SLURM_ARRAY_TASK_ID"
    array_id = "SLURM_ARRAY_JOB_ID"
    hosts = "scontrol show hostnames"
    nodes = "$SLURM_JOB_NUM_NODES"
    by_hand = "sbatch"
    launcher = SRUN
    running = ("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT")
    pending = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT")
    requeue = (
        "# Requeue it, unless Slurm itself ends the job: after scancel, or to requeue it.",
        'if squeue -h -t running -j "$SLURM_JOB_ID" -o %A | grep -qx "$SLURM_JOB_ID" &&',
        f'    ((${{SLURM_RESTART_COUNT:-0}} < {MOST_RESTARTS})) && scontrol requeue "$SLURM_JOB_ID"; then',
        "    sleep 60 # meanwhile Slurm ends this script",
        "else",
        '    restarts=$(scontrol show job "$SLURM_JOB_ID" | grep -oP "Restarts=\\K\\d+" | head -n 1)',
        "    if ((${restarts:-0} > ${SLURM_RESTART_COUNT:-0})); then",
        '        echo "Slurm requeues this job itself; nothing needs to be done"',
        "    else",
        '        echo "to continue: AIPERF_DIRECTORY=$(printf %q "$directory") sbatch, with this script"',
        "    fi",
        "fi",
    )

    def options(self, site: Site, job: Job) -> list[str]:
        """`--requeue` and a warning two minutes before the limit, to the batch script only (B:), which passes
        it on. `--mem=0` asks for all memory of a node, which a whole node has to be told."""
        return [
            f"--job-name={job.name}",
            f"--nodes={job.nodes}{_request(site)} --time={job.clock}",
            *[f"--array=1-{job.repeat}%1"] * (job.repeat > 1),
            *["--exclusive --mem=0"] * job.alone,
            f"--output={'%x-%A_%a.out' if job.repeat > 1 else '%x-%j.out'} --open-mode=append",
            f"--requeue --signal=B:USR1@{WARNING_SECONDS}",
        ]

    def devices(self, site: Site) -> list[str]:
        """Lines that take the number of devices from Slurm, so that a person who edits the request need not
        edit it twice."""
        request = site.devices.request
        if request == "none":
            return super().devices(site)
        missing = f"request devices below EDIT 2, such as {_request(site).strip()}"
        if request == "gpus":
            # As asked for: alone on a node, a job gets all of its GPUs. --gres=gpu:8 sets the second alone.
            told = f"${{SLURM_GPUS_PER_NODE:-${{SLURM_GPUS_ON_NODE:?{missing}}}}}"
            return [f"devices={told}", "devices=${devices##*:} # of a100:8"]
        # Slurm tells a job's GPUs alone; of other resources, the script's own directive does.
        count = rf"s/^#SBATCH .*--gres={request}:\([^ ,]*:\)\{{0,1\}}\([0-9][0-9]*\).*/\2/p"
        return [f"devices=$(sed -n '{count}' \"$0\")", f': "${{devices:?{missing}}}"']

    def cores(self, site: Site) -> list[str]:
        """Slurm gives a rank whole cores; if a node has too few for its ranks, srun waits for ever, so the
        script stops before."""
        if site.mpi.launcher != SRUN.name:
            return []
        return [
            "# Whole cores per rank, counted in threads, on the node with the fewest.",
            "least=$(tr , '\\n' <<<\"$SLURM_JOB_CPUS_PER_NODE\" | sort -n | head -n 1 | cut -d'(' -f1)",
            'threads=$(scontrol show node "$SLURMD_NODENAME" | grep -oP "ThreadsPerCore=\\K\\d+")',
            "cores=$((least / threads / (devices + 1) * threads))",
            "((cores > 0)) ||",
            '    { echo "$least CPUs per node are too few for $((devices + 1)) ranks" >&2; exit 1; }',
        ]

    def submit(self, after: Sequence[str] = ()) -> list[str]:
        """`sbatch`, which then prints the id alone."""
        dependency = [f"--dependency=afterany:{':'.join(after)}"] * bool(after)
        return ["sbatch", "--parsable", *dependency]

    def submitted(self, answer: str) -> str:
        """The id in the last line, without the name of a cluster. Raises ValueError without one."""
        return submitted_id("sbatch", answer, r"(\d+)(;\S+)?")  # ;cluster in a federation

    def ask(self, jobs: Sequence[str]) -> list[str]:
        """The words that ask for all jobs of the user, because squeue fails if it is asked for one that is
        gone."""
        return ["squeue", "--me", "--noheader", "--states=all", "--format=%A %T"]

    def states(self, answer: str) -> JobStates:
        """The states by job; other lines, such as a cluster's heading, are skipped. A job that is not among
        them has ended."""
        told = rows(answer, r"(\d+) (\w+)")
        return JobStates({row[1]: self.state(row[2]) for row in told.found}, told.skipped)

    def seconds_left(self, environment: Mapping[str, str], now: float, answer: Answer) -> float | None:
        """The end is in the environment since Slurm 23.02 (sbatch(1), SLURM_JOB_END_TIME); older versions are
        asked. So is a Slurm whose end has passed by this host's clock, because it answers with the time
        left by its own."""
        end = variables.number(variables.word(environment, END))
        if end is not None and end >= now:
            return end - now if end - now < UNLIMITED_SECONDS else None
        job = variables.word(environment, self.job_id)
        told = rows(answer("squeue", "--noheader", "--job", job, "--format", "%L"), LEFT)
        if end is not None and not told.found:
            raise ConfigError(
                f"{END} is {end}, {duration(now - end)} ago by the clock of this host, and squeue does not "
                f"answer; correct the clock, or unset {END} and give the length with --minutes"
            )
        return clock_seconds(told.found[0][0]) if told.found else None


def _request(site: Site) -> str:
    """The option that requests devices, with a space before it; empty for none."""
    devices = site.devices
    if devices.request == "none":
        return ""
    if devices.request == "gpus":
        return f" --gpus-per-node={devices.per_node}"
    return f" --gres={devices.request}:{devices.per_node}"
