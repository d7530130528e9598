"""OpenPBS and PBS Professional: qsub(1B), qstat(1B), pbs_resources(7B). PBS sends no warning before the
limit, so a `timeout` in the script gives it."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence

from aiperf.host import variables
from aiperf.host.programs import json_object
from launch.job import Job
from launch.scheduler import QSUB_AGAIN, Answer, JobStates, Scheduler, clock_seconds, submitted_id
from launch.site import Site


class Pbs(Scheduler):
    """The first node is a chunk of its own, because it has the master as well; no signal comes before the
    limit, so the script keeps time itself."""

    name, title = "PBS", "OpenPBS and PBS Professional"
    ending = "pbs"
    mark, account, partition = "#PBS", "-A ", "-q "
    job_id = "PBS_JOBID"
    element = "PBS_ARRAY_INDEX"
    array_id = "PBS_ARRAY_ID"
    hosts = 'uniq "$PBS_NODEFILE"'
    nodes = '$(uniq "$PBS_NODEFILE" | wc -l)'
    running, pending = "RBESU", "QHWTM"
    workdir = 'cd "$PBS_O_WORKDIR" || exit 1'
    warns = False
    requeue = (
        "# qdel and qrerun, which requeues the job, send the same signal.",
        '[[ -z $warned ]] || echo "unless PBS requeues this job itself (see qstat $PBS_JOBID):"',
        f'echo "to continue: {QSUB_AGAIN}, with this script"',
    )

    def options(self, site: Site, job: Job) -> list[str]:
        """Nodes and ranks of a node as chunks; `-r y` allows the job to be queued again. `scatter` puts each
        chunk on another node, `excl` keeps other jobs away."""
        return [
            f"-N {job.name}",
            f"-l select={_select(site, job)} -l walltime={job.clock}",
            *[f"-J 1-{job.repeat}%1"] * (job.repeat > 1),
            f"-l place={'scatter:excl' if job.alone else 'free'}",
            "-j oe -r y",
        ]

    def submit(self, after: Sequence[str] = ()) -> list[str]:
        """`qsub` with a dependency on the end of other jobs. `afterany` holds however they ended."""
        return ["qsub", *(["-W", f"depend=afterany:{':'.join(after)}"] if after else [])]

    def submitted(self, answer: str) -> str:
        """The id, of an array with [], and with the server's name."""
        return submitted_id("qsub", answer, r"(\d+(?:\[\])?(?:\.\S+)?)")

    def ask(self, jobs: Sequence[str]) -> list[str]:
        """`qstat` for jobs that have ended, too."""
        return ["qstat", "-x", "-f", "-F", "json", *jobs]

    def states(self, answer: str) -> JobStates:
        """The states in JSON, by the letters of qstat(1B). Raises ValueError for an answer that is not
        valid JSON."""
        jobs = json_object(answer).get("Jobs", {})
        if not isinstance(jobs, dict):
            return JobStates({}, (f"Jobs: {jobs!r:.80}",))
        told = {job: each.get("job_state") for job, each in jobs.items() if isinstance(each, dict)}
        known = {
            job: self.state(letter) for job, letter in told.items() if isinstance(letter, str) and letter
        }
        return JobStates(known, tuple(f"{job}: {jobs[job]!r:.80}" for job in jobs if job not in known))

    def seconds_left(self, environment: Mapping[str, str], now: float, answer: Answer) -> float | None:
        """The limit less the time since the job began: OpenPBS says stime, Torque start_time (qstat(1B)).
        None if either is not in the answer."""
        told = answer("qstat", "-f", variables.word(environment, self.job_id))
        limit = re.search(r"^\s*Resource_List\.walltime = (\S+)$", told, re.MULTILINE)
        began = re.search(r"^\s*(?:stime|start_time) = (.+)$", told, re.MULTILINE)
        seconds = clock_seconds(limit[1]) if limit else None
        if seconds is None or began is None:
            return None
        try:
            return time.mktime(time.strptime(began[1].strip())) + seconds - now
        except (ValueError, OverflowError):  # not as ctime(3) writes it
            return None


def _select(site: Site, job: Job) -> str:
    """The first node has room for one rank more: the master. Chunks ask for cores and devices of a whole
    node, and `mpiprocs` is the number of its lines in the list of hosts."""
    devices = site.devices
    chunk = f"ncpus={devices.cores_per_node}" if devices.cores_per_node else ""
    if devices.request != "none":
        resource = "ngpus" if devices.request == "gpus" else devices.request
        chunk += f"{':' * bool(chunk)}{resource}={devices.per_node}"
    chunk += ":" * bool(chunk)
    first = f"1:{chunk}mpiprocs={devices.per_node + 1}"
    return first + (f"+{job.nodes - 1}:{chunk}mpiprocs={devices.per_node}" if job.nodes > 1 else "")
