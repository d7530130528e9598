"""IBM Spectrum LSF: bsub, bjobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aiperf.host import variables
from aiperf.host.programs import json_object, rows
from launch.job import WARNING_SECONDS, Job
from launch.scheduler import Answer, JobStates, Scheduler, clock_seconds, submitted_id
from launch.site import Site

CONTINUE = 75
"""Exit code of a script whose run can be continued, for which LSF queues the job again."""


class Lsf(Scheduler):
    """Arrays are part of a job's name, and a list of hosts names each host once per slot: bsub(1)."""

    name, title = "LSF", "IBM Spectrum LSF"
    ending = "lsf"
    mark, account, partition = "#BSUB", "-P ", "-q "
    size = "number of slots (nodes x (devices + 1)) and time limit"
    job_id = "LSB_JOBID"
    element = "LSB_JOBINDEX"
    array_id = "LSB_JOBID"
    hosts = 'uniq "$LSB_DJOB_HOSTFILE"'
    nodes = '$(uniq "$LSB_DJOB_HOSTFILE" | wc -l)'
    running, pending = ("RUN", "SSUSP", "USUSP"), ("PEND", "PSUSP", "WAIT")
    requeue = (
        'echo "LSF requeues this job because of exit code 75, but not after bkill:"',
        'echo "then use AIPERF_DIRECTORY=$(printf %q "$directory") bsub, with this script"',
    )

    def options(self, site: Site, job: Job) -> list[str]:
        """Every host gets a slot for the master, which only the first uses. Exit code 75 queues it again.
        `rusage` asks for a resource of each host; GPUs have an option of their own."""
        devices = site.devices
        array = f"[1-{job.repeat}]%1" * (job.repeat > 1)
        slots, minutes = devices.per_node + 1, job.limit_seconds // 60
        request = [f'-R "rusage[{devices.request}={devices.per_node}]"'] * (devices.request != "none")
        if devices.request == "gpus":
            request = [f'-gpu "num={devices.per_node}:mode=shared:j_exclusive=yes"']
        return [
            f'-J "{job.name}{array}"',
            f'-n {job.nodes * slots} -R "span[ptile={slots}]" -W {minutes // 60}:{minutes % 60:02d}',
            *request,
            *["-x"] * job.alone,
            f"-o {job.name}-%J{'_%I' * (job.repeat > 1)}.out",
            f'-r -Q "{CONTINUE}"',
            f"-wa USR1 -wt {WARNING_SECONDS // 60}",
        ]

    def submit(self, after: Sequence[str] = ()) -> list[str]:
        """`bsub` with a condition on the end of other jobs. `ended` holds however a job ended."""
        condition = " && ".join(f"ended({job})" for job in after)
        return ["bsub", *(["-w", condition] if after else [])]

    def submitted(self, answer: str) -> str:
        """The id in a line such as: Job <4711> is submitted to queue <normal>."""
        return submitted_id("bsub", answer, r".*Job <(\d+)> is submitted.*")

    def ask(self, jobs: Sequence[str]) -> list[str]:
        """`bjobs` for jobs that have ended, too."""
        return ["bjobs", "-a", "-json", "-o", "jobid stat", *jobs]

    def states(self, answer: str) -> JobStates:
        """The states in JSON; a job that was not found has an ERROR in place of its state, and is gone.
        Raises ValueError for an answer that is not valid JSON."""
        records = json_object(answer).get("RECORDS", [])
        records = records if isinstance(records, list) else [records]
        told = [each for each in records if isinstance(each, dict) and isinstance(each.get("JOBID"), str)]
        skipped = tuple(f"{each!r:.80}" for each in records if each not in told)
        return JobStates({each["JOBID"]: self.state(each.get("STAT")) for each in told}, skipped)

    def seconds_left(self, environment: Mapping[str, str], now: float, answer: Answer) -> float | None:
        """Hours and minutes, and L where they are a limit, not somebody's estimate (bjobs(1), -WL)."""
        element = variables.number(variables.word(environment, self.element)) or 0
        job = variables.word(environment, self.job_id) + f"[{element}]" * (element != 0)
        told = rows(answer("bjobs", "-noheader", "-o", "time_left", job), r"(\d+:\d+) L")
        return clock_seconds(f"{told.found[0][1]}:00") if told.found else None
