"""Several hosts on one machine, with names of their own, joined by a switch."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.mpi.jobs import OPEN_MPI
from tests.mpi.switch import Switch, switch

NAMES = ("alpha", "beta", "gamma", "delta")
ADDRESSES = {name: f"10.77.0.{number}" for number, name in enumerate(NAMES, start=1)}

# AGENT HOST COMMAND…: what ssh is to mpiexec. Files of the host `beta` may hide those of `alpha`.
AGENT = """#!/bin/sh
host=$1
shift
exec ip netns exec "{mark}$host" unshare --uts --mount sh -ec '
    hostname "$0"
    mount --bind "{hosts}" /etc/hosts
    if [ "$0" = beta ] && [ -n "{hidden}" ]; then mount --bind "{own}" "{hidden}"; fi
    exec sh -c "$*"
' "$host" "$*"
"""


@dataclass(frozen=True)
class Hosts:
    """alpha, where mpiexec is, and the others."""

    switch: Switch
    agent: Path
    names: tuple[str, ...]

    def run(self, *words: object, workers: int = 1, options: tuple[str, ...] = ()) -> list[str]:
        """The command `aiperf-hpc`: the master on alpha, and this many workers on each host. `options`: of
        mpiexec."""
        slots = ",".join(f"{name}:{workers + (name == 'alpha')}" for name in self.names)
        options = ("--prtemca", "plm_ssh_agent", str(self.agent), "--host", slots, *options)
        ranks = 1 + workers * len(self.names)
        quoted = [f"'{word}'" for word in OPEN_MPI.run(ranks, *words, options=options)]
        return [str(self.agent), "alpha", "exec", *quoted]

    def kill(self, host: str) -> None:
        """Ends all processes of the program on a host at once. The daemon of mpiexec stays: without it
        mpiexec would end the job (docs/limits.md)."""
        words = ["ip", "netns", "pids", self.switch.space(host)]
        pids = subprocess.run(words, check=True, capture_output=True, text=True, timeout=60).stdout.split()
        own = [pid for pid in pids if Path(f"/proc/{pid}/comm").read_text().startswith("python")]
        subprocess.run(["kill", "-KILL", *own], check=True, timeout=60)


@contextmanager
def joined_hosts(directory: Path, number: int = 2, hidden: Path | None = None) -> Iterator[Hosts]:
    """`hidden`: a directory of alpha's which on beta is another, `directory`/beta."""
    hosts, agent, own = directory / "hosts", directory / "agent", directory / "beta"
    lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in ADDRESSES.items())]
    hosts.write_text("\n".join(lines) + "\n")
    own.mkdir(exist_ok=True)
    with switch() as joined:
        agent.write_text(AGENT.format(mark=joined.mark, hosts=hosts, hidden=hidden or "", own=own))
        agent.chmod(0o755)
        for name in NAMES[:number]:
            joined.add(name, ADDRESSES[name])
        yield Hosts(joined, agent, NAMES[:number])
