"""Grid Engine: Son of Grid Engine and its relatives; qsub(1), qstat(1), sge_pe(5), queue_conf(5)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from xml.etree.ElementTree import Element, ParseError, fromstring

from aiperf.errors import ConfigError
from aiperf.host import variables
from launch.job import Job
from launch.scheduler import (
    QSUB_AGAIN,
    TORCHRUN,
    Answer,
    JobState,
    JobStates,
    Launcher,
    Scheduler,
    submitted_id,
)
from launch.site import Site

AGAIN = 99
"""Exit code of a script for which Grid Engine queues the job again (queue_conf(5))."""
DEAF = "trap '' USR1 USR2;"
"""Shell text before the command of a node's daemon: a warning is sent to it as well."""
NUMBER = "JB_job_number"
"""The element of a job's number in the XML of qstat."""


class Sge(Scheduler):
    """A job asks for slots, and its parallel environment decides on which hosts they are; so it takes all
    slots of its nodes. The script keeps time itself: a job that reaches its hard limit is not queued again,
    whatever its exit code, and the soft limit (`s_rt`) is enforced like the hard one (8.1.9)."""

    name, title = "SGE", "Grid Engine (SGE)"
    ending = "sge"
    mark, account, partition = "#$", "-P ", "-q "
    size = "number of slots (nodes x slots of a node) and time limit"
    job_id = "JOB_ID"
    element = "SGE_TASK_ID"
    array_id = "JOB_ID"
    hosts = "awk '!seen[$1]++ { print $1 }' \"$PE_HOSTFILE\""
    nodes = "$NHOSTS"
    by_hand = "qsub"
    warns = False
    warnings = "USR1 USR2 TERM"
    # As qstat groups them: a job that is suspended is running, one that is held is pending.
    running, pending = ("running",), ("pending",)
    requeue = (
        f"code={AGAIN}",
        f'echo "Grid Engine requeues this job because of exit code {AGAIN}, but not after qdel:"',
        f'echo "then use {QSUB_AGAIN}, with this script"',
    )

    def launchers(self) -> Iterable[Launcher]:
        """The launchers, with daemons that ignore a warning: Grid Engine sends it to Open MPI's daemons on
        all nodes as well, and it would end them."""
        daemons = {
            "OMPI_MCA_orte_launch_agent": f'"{DEAF} orted"',
            "PRTE_MCA_prte_launch_agent": f'"{DEAF} prted"',
        }
        for each in super().launchers():
            why = f"{each.why} Its daemons must outlive a warning."
            is_mpi = each is not TORCHRUN
            yield replace(each, environment={**each.environment, **daemons}, why=why) if is_mpi else each

    def options(self, site: Site, job: Job) -> list[str]:
        """Whole nodes, by their slots. `-notify` sends SIGUSR2 before the job is ended, by default a minute
        before, and `-w e` refuses what no node can ever give."""
        if job.name[0].isdigit():
            raise ConfigError(
                f"the job's name is {job.name!r}; under {self.name} it must begin with a letter: choose "
                "--name, or the --directory of a study"
            )
        devices = site.devices
        resource = "gpu" if devices.request == "gpus" else devices.request
        return [
            f"-N {job.name}",
            f"{_slots(site, job)}-l h_rt={job.clock}",
            *[f"-t 1-{job.repeat} -tc 1"] * (job.repeat > 1),
            *[f"-l {resource}={devices.per_node}"] * (devices.request != "none"),
            f"-S /bin/bash -cwd -j y -o {job.name}-$JOB_ID{'.$TASK_ID' * (job.repeat > 1)}.out",
            "-notify -r y -w e",
        ]

    def cores(self, site: Site) -> list[str]:
        """The rule of the environment may spread the slots, or fill up nodes that other jobs use as well."""
        slots = site.devices.cores_per_node
        given = "-pe ${PE:-(none)} gave NSLOTS=$NSLOTS and NHOSTS=$NHOSTS"
        fault = f"{given}, not {slots} slots on each node; see qconf -spl"
        return [
            *super().cores(site),
            "# A job takes whole nodes, which not every parallel environment gives.",
            f"((NSLOTS == NHOSTS * {slots})) ||",
            f'    {{ echo "{fault}" >&2; exit 1; }}',
        ]

    def current(self, environment: Mapping[str, str]) -> str:
        """JOB_ID is not unique to Grid Engine, but with it every job has the number of its array's element,
        or "undefined"."""
        return super().current(environment) if variables.word(environment, self.element) else ""

    def submit(self, after: Sequence[str] = ()) -> list[str]:
        """`qsub`, which then prints the id alone."""
        return ["qsub", "-terse", *(["-hold_jid", ",".join(after)] if after else [])]

    def submitted(self, answer: str) -> str:
        """The id, of an array with its elements: 4711.1-5:1. Raises ValueError without one."""
        return submitted_id("qsub", answer, r"(\d+)(?:\.\d+-\d+:\d+)?")

    def ask(self, jobs: Sequence[str]) -> list[str]:
        """The words that ask for all jobs of the user, because qstat describes one that is gone as an
        error."""
        return ["qstat", "-xml"]

    def states(self, answer: str) -> JobStates:
        """The states in XML. An array whose elements are in several is in the first of them. Raises
        ValueError for an answer that is not XML; a job that is not listed has ended."""
        known: dict[str, JobState] = {}
        for each in _jobs(answer):
            known.setdefault(each.findtext(NUMBER, ""), self.state(each.get("state")))
        skipped = ("a job without a number",) * (known.pop("", None) is not None)
        return JobStates(known, skipped)

    def seconds_left(self, environment: Mapping[str, str], now: float, answer: Answer) -> float | None:
        """The limit less the time since the job, or its element of an array, began."""
        job = (
            variables.word(environment, self.job_id),
            variables.number(variables.word(environment, self.element)),
        )
        try:
            told = _jobs(answer("qstat", "-r", "-xml"))
        except ValueError:  # no qstat on this node, or it is not allowed to ask
            return None
        for each in told:
            if (each.findtext(NUMBER, ""), variables.number(each.findtext("tasks", ""))) == job:
                limit = variables.number(each.findtext("hard_request[@name='h_rt']", ""))
                began = each.findtext("JAT_start_time", "")[:19]  # some write milliseconds
                with suppress(ValueError, OverflowError):
                    if limit is not None:
                        return time.mktime(time.strptime(began, "%Y-%m-%dT%H:%M:%S")) + limit - now
        return None


def _jobs(answer: str) -> list[Element]:
    """The jobs in the XML of qstat, between whatever a site prints before and after it. Raises ValueError
    with the first line for an answer without XML."""
    try:
        return list(fromstring(answer[answer.find("<?xml") : answer.rfind(">") + 1]).iter("job_list"))
    except ParseError:
        first = (answer.strip().splitlines() or ["nothing"])[0]
        raise ValueError(f"not valid XML: {first!r:.200}") from None


def _slots(site: Site, job: Job) -> str:
    """The option that requests nodes, with a space after it; empty for a job of one process. Raises
    ConfigError for a site that does not say what it needs."""
    if not job.alone:
        return ""
    devices, environment = site.devices, site.queue.parallel_environment
    if not environment:
        raise ConfigError(
            "queue.parallel_environment is not set in the site file; SGE needs one of those that "
            "`qconf -spl` lists"
        )
    if devices.cores_per_node <= devices.per_node:
        raise ConfigError(
            f"devices.cores_per_node is {devices.cores_per_node}; SGE needs the number of slots of a node, "
            f"at least {devices.per_node + 1}: one for each device, and one for the master"
        )
    return f"-pe {environment} {job.nodes * devices.cores_per_node} "
