"""IBM Spectrum LSF: bsub, bjobs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from launch.job import WARNING_SECONDS, Job
from launch.scheduler import JobState, Scheduler, marked
from launch.site import Site

CONTINUE = 75


class Lsf(Scheduler):
    name, title = "lsf", "IBM Spectrum LSF"
    ending = "lsf"
    job_id = "LSB_JOBID"
    element = "LSB_JOBINDEX"
    hosts = 'uniq "$LSB_DJOB_HOSTFILE"'
    nodes = '$(uniq "$LSB_DJOB_HOSTFILE" | wc -l)'

    def directives(self, site: Site, job: Job) -> list[str]:
        """Every host gets a slot for the master, which only the first uses. Exit code 75 queues it again."""
        queue, devices = site.queue, site.devices
        slots = devices.per_node + 1
        where = [f"-P {queue.account}"] * bool(queue.account) + [f"-q {queue.partition}"] * bool(
            queue.partition
        )
        array = f"[1-{job.repeat}]%1" if job.repeat > 1 else ""
        lines = [f'#BSUB -J "{job.name}{array}"']
        if where:
            lines += marked(f"#BSUB {' '.join(where)}", 1, "who pays, and where it runs")
        minutes = job.limit_seconds // 60
        size = f'-n {job.nodes * slots} -R "span[ptile={slots}]" -W {minutes // 60}:{minutes % 60:02d}'
        lines += marked(f"#BSUB {size}", 2, "how large (nodes x (devices + 1)), and how long")
        if devices.request == "gpus":
            lines.append(f'#BSUB -gpu "num={devices.per_node}:mode=shared:j_exclusive=yes"')
        elif devices.request != "none":
            lines.append(f'#BSUB -R "rusage[{devices.request}={devices.per_node}]"')
        return [
            *lines,
            *["#BSUB -x"] * job.alone,
            f"#BSUB -o {job.name}-%J{'_%I' * (job.repeat > 1)}.out",
            f'#BSUB -r -Q "{CONTINUE}"',
            f"#BSUB -wa USR1 -wt {WARNING_SECONDS // 60}",
            *(f"#BSUB {option}" for option in queue.options),
        ]

    def submit(self, after: Sequence[str] = ()) -> list[str]:
        condition = " && ".join(f"ended({job})" for job in after)
        return ["bsub", *(["-w", condition] if after else [])]

    def submitted(self, answer: str) -> str:
        found = re.search(r"Job <(\d+)>", answer)
        if found is None:
            raise ValueError(f"bsub printed no job id: {answer.strip()!r}")
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
