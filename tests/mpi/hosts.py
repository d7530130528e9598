"""Two hosts on one machine, with names of their own, joined by a switch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.mpi.jobs import OPEN_MPI
from tests.mpi.switch import Switch, switch

ADDRESSES = {"alpha": "10.77.0.1", "beta": "10.77.0.2"}

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
class TwoHosts:
    """alpha, where mpiexec is, and beta."""

    switch: Switch
    agent: Path

    def run(self, *words: object) -> list[str]:
        """The command `aiperf-hpc`: the master and a worker on alpha, another worker on beta."""
        options = ("--prtemca", "plm_ssh_agent", str(self.agent), "--host", "alpha:2,beta:1")
        quoted = [f"'{word}'" for word in OPEN_MPI.run(3, *words, options=options)]
        return [str(self.agent), "alpha", "exec", *quoted]

    def cut(self) -> None:
        """Nothing that one host sends reaches the other; both still see the switch."""
        self.switch.cut("beta")

    def repair(self) -> None:
        self.switch.repair("beta")


@contextmanager
def two_hosts(directory: Path, hidden: Path | None = None) -> Iterator[TwoHosts]:
    """`hidden`: a directory of alpha's which on beta is another, `directory`/beta."""
    hosts, agent, own = directory / "hosts", directory / "agent", directory / "beta"
    lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in ADDRESSES.items())]
    hosts.write_text("\n".join(lines) + "\n")
    own.mkdir(exist_ok=True)
    with switch() as joined:
        agent.write_text(AGENT.format(mark=joined.mark, hosts=hosts, hidden=hidden or "", own=own))
        agent.chmod(0o755)
        for name, address in ADDRESSES.items():
            joined.add(name, address)
        yield TwoHosts(joined, agent)
