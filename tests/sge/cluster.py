"""A real Grid Engine for the tests of this folder: a head with the master, and nodes with execution daemons.

Each host has a network, a name and a process table of its own, and its first process is the daemon. It ends
with this process, and all that its jobs have started with it. The machine's own Grid Engine is not touched.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from launch import SCHEDULERS
from launch.scheduler import JobState
from tests.mpi.switch import Switch, switch

BIN = Path(sys.executable).parent
INSTALLED = Path("/var/lib/gridengine")
PROGRAMS = Path("/usr/lib/gridengine")
DEFAULTS = Path("/usr/share/gridengine")
HEAD = "head"
SLOTS = 2
"""Slots of a node: one for a device, and one for the master."""
WAIT_SECONDS = 400.0  # for one thing to happen, on a machine with other things to do

# NAME DAEMON: what becomes the first process of a host. Nodes must not share the folders of a job.
BEGIN = """\
set -e
hostname "$1"
mount --bind "$SGE_ROOT/hosts" /etc/hosts
mount -t tmpfs tmpfs "$SGE_ROOT/tmp"
exec "$2"
"""
BOOTSTRAP, PARALLEL = (
    (Path(__file__).parent / name).read_text(encoding="utf-8")
    for name in ("bootstrap", "parallel_environment")
)
"""Files of Grid Engine with gaps: a master's, and a parallel environment that gives all slots of a node."""


@dataclass
class Cluster:
    """One that runs. Commands are started on its head, in `work`."""

    work: Path
    switch: Switch
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        return self.work / "sge"

    @property
    def environment(self) -> Mapping[str, str]:
        ports = {"SGE_QMASTER_PORT": "6444", "SGE_EXECD_PORT": "6445"}
        in_front = {"SGE_ND": "1"}  # a daemon that stays is ended with its host
        return os.environ | {"SGE_ROOT": str(self.home), "SGE_CELL": "default"} | ports | in_front

    def start(self, host: str, daemon: str) -> None:
        words = ["setpriv", "--pdeathsig", "KILL", "ip", "netns", "exec", self.switch.space(host)]
        words += ["unshare", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        words += ["bash", "-c", BEGIN, "host", host, daemon]
        with self.log(host).open("wb") as log:
            self.daemons[host] = subprocess.Popen(
                words, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def log(self, host: str) -> Path:
        """What the daemon of a host says."""
        return self.home / f"{host}.log"

    def ask(self, *words: object, given: str = "") -> subprocess.CompletedProcess[str]:
        """The answer of a command on the head."""
        (daemon,) = psutil.Process(self.daemons[HEAD].pid).children()
        spaces = ("--net", "--uts", "--mount", "--pid")
        return subprocess.run(
            ["nsenter", f"--target={daemon.pid}", *spaces, f"--wd={self.work}", "--", *map(str, words)],
            env=dict(self.environment),
            input=given,
            capture_output=True,
            text=True,
            timeout=300,
        )

    def run(self, *words: object, given: str = "") -> str:
        """What a command prints. Fails with what it said."""
        answer = self.ask(*words, given=given)
        assert answer.returncode == 0, f"{words}: {answer.stdout}{answer.stderr}"
        return answer.stdout

    def aiperf(self, *words: object) -> str:
        return self.run(BIN / "aiperf-hpc", *words)

    def states(self) -> Mapping[str, JobState]:
        """The states of all jobs, as `launch status` reads them."""
        scheduler = SCHEDULERS["sge"]
        return scheduler.states(self.run(*scheduler.ask([]))).known


@contextmanager
def cluster_of(nodes: Sequence[str], work: Path) -> Iterator[Cluster]:
    """A Grid Engine with these nodes, of which nothing is left afterwards."""
    began = time.monotonic()
    with switch() as joined:
        made = Cluster(work, joined)
        try:
            _prepare(made, nodes)
            made.start(HEAD, "/usr/sbin/sge_qmaster")
            _configure(made, nodes)
            print(f"{len(nodes)} idle nodes in {time.monotonic() - began:.1f} s")
            yield made
        finally:
            for daemon in made.daemons.values():
                daemon.kill()
                daemon.wait(60)


def _prepare(made: Cluster, nodes: Sequence[str]) -> None:
    """Networks, names, and the files of a cell without hosts and queues."""
    home = made.home
    for folder in ("default/common", "qmaster/job_scripts", "spool", "spooldb", "tmp"):
        (home / folder).mkdir(parents=True)
    for name in ("bin", "lib", "util", "utilbin"):
        (home / name).symlink_to(INSTALLED / name)
    addresses = {host: f"10.79.0.{index}" for index, host in enumerate((HEAD, *nodes), start=1)}
    names = ["127.0.0.1 localhost", *(f"{address} {host}" for host, address in addresses.items())]
    (home / "hosts").write_text("\n".join(names) + "\n")
    for host, address in addresses.items():
        made.switch.add(host, address)
    (home / "default/common/act_qmaster").write_text(f"{HEAD}\n")
    (home / "default/common/bootstrap").write_text(BOOTSTRAP.format(home=home))
    root_too = {"min_uid": 0, "min_gid": 0, "administrator_mail": "none"}
    quick = {"load_report_time": "00:00:01"}
    configuration = (DEFAULTS / "default-configuration").read_text()
    (home / "configuration").write_text(
        changed(configuration, root_too | quick | {"execd_spool_dir": home / "spool"})
    )
    for program, *words in (
        ("spoolinit", "berkeleydb", "libspoolb", home / "spooldb", "init"),
        ("spooldefaults", "configuration", home / "configuration"),
        ("spooldefaults", "complexes", DEFAULTS / "util/resources/centry"),
        ("spooldefaults", "usersets", DEFAULTS / "util/resources/usersets"),
        ("spooldefaults", "managers", "root"),
    ):
        subprocess.run(
            [PROGRAMS / program, *words], env=dict(made.environment), check=True, capture_output=True
        )


def _configure(made: Cluster, nodes: Sequence[str]) -> None:
    """Hosts, the parallel environment, a queue; then the daemons of the nodes, until all have reported."""
    wait_until(lambda: made.daemons[HEAD].poll() is not None or _answers(made), lambda: text(made.log(HEAD)))
    assert made.daemons[HEAD].poll() is None, text(made.log(HEAD))
    made.run("qconf", "-ah", ",".join(nodes))
    made.run("qconf", "-as", HEAD)
    at_once = {"schedule_interval": "0:0:2", "flush_submit_sec": 1, "flush_finish_sec": 1}
    queue = {"qname": "main.q", "hostlist": " ".join(nodes), "pe_list": "whole", "slots": SLOTS}
    queue |= {"tmpdir": made.home / "tmp", "load_thresholds": "NONE"}
    for option, words in (
        ("-Msconf", changed(made.run("qconf", "-ssconf"), at_once)),
        ("-Ap", PARALLEL.format(slots=SLOTS)),
        ("-Aq", changed(made.run("qconf", "-sq"), queue)),
    ):
        (made.home / "words").write_text(words)
        made.run("qconf", option, made.home / "words")
    for node in nodes:
        made.start(node, "/usr/sbin/sge_execd")
    logs = [made.log(node) for node in nodes]
    wait_until(lambda: made.run("qstat", "-f").count(" lx-") == len(nodes), lambda: "".join(map(text, logs)))


def _answers(made: Cluster) -> bool:
    """Whether the master has started."""
    hosts = psutil.Process(made.daemons[HEAD].pid).children()
    return bool(hosts) and made.ask("qconf", "-sh").returncode == 0


def changed(words: str, values: Mapping[str, object]) -> str:
    """A table of Grid Engine, with these values."""
    for key, value in values.items():
        words, count = re.subn(rf"^{key} .*", f"{key} {value}", words, flags=re.MULTILINE)
        assert count == 1, key
    return words


def text(path: Path) -> str:
    """What a file holds; nothing if it does not exist yet."""
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def wait_until(happened: Callable[[], bool], told: Callable[[], str]) -> None:
    """Waits for something. Fails with what the cluster says."""
    until = time.monotonic() + WAIT_SECONDS
    while not happened():
        assert time.monotonic() < until, told()
        time.sleep(0.25)
