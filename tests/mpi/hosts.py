"""Two hosts on one machine: network namespaces with names of their own, joined by a switch.

The switch is a third namespace, so that a cable can be pulled where neither host sees it.
"""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.mpi.jobs import OPEN_MPI

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

    mark: str
    agent: Path

    def run(self, *words: object) -> list[str]:
        """The command `aiperf-hpc`: the master and a worker on alpha, another worker on beta."""
        options = ("--prtemca", "plm_ssh_agent", str(self.agent), "--host", "alpha:2,beta:1")
        quoted = [f"'{word}'" for word in OPEN_MPI.run(3, *words, options=options)]
        return [str(self.agent), "alpha", "exec", *quoted]

    def cut(self) -> None:
        """Nothing that one host sends reaches the other; both still see the switch."""
        _ip("-n", f"{self.mark}switch", "link", "set", "beta", "nomaster")

    def repair(self) -> None:
        _ip("-n", f"{self.mark}switch", "link", "set", "beta", "master", "bridge")


@contextmanager
def two_hosts(directory: Path, hidden: Path | None = None) -> Iterator[TwoHosts]:
    """`hidden`: a directory of alpha's which on beta is another, `directory`/beta."""
    mark = f"t{uuid.uuid4().hex[:6]}-"
    hosts, agent, own = directory / "hosts", directory / "agent", directory / "beta"
    lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in ADDRESSES.items())]
    hosts.write_text("\n".join(lines) + "\n")
    own.mkdir(exist_ok=True)
    agent.write_text(AGENT.format(mark=mark, hosts=hosts, hidden=hidden or "", own=own))
    agent.chmod(0o755)
    try:
        _ip("netns", "add", f"{mark}switch")
        _ip("-n", f"{mark}switch", "link", "add", "name", "bridge", "type", "bridge")
        _ip("-n", f"{mark}switch", "link", "set", "bridge", "up")
        for name, address in ADDRESSES.items():
            _ip("netns", "add", f"{mark}{name}")
            pair = ("link", "add", "name", name, "type", "veth", "peer", "name", "cable")
            _ip("-n", f"{mark}switch", *pair, "netns", f"{mark}{name}")
            _ip("-n", f"{mark}switch", "link", "set", name, "up", "master", "bridge")
            _ip("-n", f"{mark}{name}", "addr", "add", f"{address}/24", "dev", "cable")
            for device in ("lo", "cable"):
                _ip("-n", f"{mark}{name}", "link", "set", device, "up")
        yield TwoHosts(mark, agent)
    finally:
        for name in ("switch", *ADDRESSES):
            if os.path.exists(f"/run/netns/{mark}{name}"):
                _ip("netns", "delete", f"{mark}{name}")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, timeout=60)
