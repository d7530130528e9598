"""IBM Spectrum LSF: bsub, bjobs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from launch.job import WARNING_SECONDS, Job
from launch.scheduler import Answer, JobState, Scheduler, clock_seconds
from launch.site import Site

CONTINUE = 75


class Lsf(Scheduler):
    name, title = "LSF", "IBM Spectrum LSF"
    ending = "lsf"
    mark, account, partition = "#BSUB", "-P ", "-q "
    size = "how large (nodes x (devices + 1)), and how long"
    job_id = "LSB_JOBID"
    element = "LSB_JOBINDEX"
    array_id = "LSB_JOBID"
    hosts = 'uniq "$LSB_DJOB_HOSTFILE"'
    nodes = '$(uniq "$LSB_DJOB_HOSTFILE" | wc -l)'
    requeue = (
        'echo "LSF queues this job again because of exit code 75. After bkill it does not:"',
        'echo "then AIPERF_DIRECTORY=$(printf %q "$directory") bsub, with this script"',
    )

    def options(self, site: Site, job: Job) -> list[str]:
        """Every host gets a slot for the master, which only the first uses. Exit code 75 queues it again."""
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
        condition = " && ".join(f"ended({job})" for job in after)
        return ["bsub", *(["-w", condition] if after else [])]

    def submitted(self, answer: str) -> str:
        found = re.search(r"Job <(\d+)>", answer)
        if found is None:
            raise ValueError(f"bsub did not print a job id: {answer.strip()!r}")
        return found[1]

    def ask(self, jobs: Sequence[str]) -> list[str]:
        return ["bjobs", "-a", "-json", "-o", "jobid stat", *jobs]

    def states(self, answer: str) -> Mapping[str, JobState]:
        found: dict[str, JobState] = {}
        for told in json.loads(answer).get("RECORDS", []):
            state = told.get("STAT", "")
            is_running = JobState.RUNNING if state in ("RUN", "SSUSP", "USUSP") else JobState.GONE
            found[told["JOBID"]] = JobState.PENDING if state in ("PEND", "PSUSP", "WAIT") else is_running
        return found

    def seconds_left(self, environment: Mapping[str, str], now: float, answer: Answer) -> float | None:
        """Hours and minutes, and L where they are a limit, not somebody's estimate (bjobs(1), -WL)."""
        element = environment.get(self.element, "0")
        job = environment[self.job_id] + f"[{element}]" * (element != "0")
        left = re.fullmatch(r"(\d+:\d+) L", answer("bjobs", "-noheader", "-o", "time_left", job))
        return clock_seconds(f"{left[1]}:00") if left else None
