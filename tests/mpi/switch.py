"""Hosts on one machine: network namespaces, joined by a switch.

The switch is a namespace too, so that a cable can be pulled where neither host sees it. Only root may
make them.
"""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.mpi.jobs import OPEN_MPI

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may make network namespaces")
CABLE = "cable"
"""The network interface of each host."""


@dataclass
class Switch:
    """The switch, and the hosts that were added to it."""

    mark: str
    ports: dict[str, str] = field(default_factory=dict)
    """The port of each host."""

    def space(self, host: str) -> str:
        """The name of a host's namespace."""
        return f"{self.mark}{host}"

    def add(self, host: str, address: str) -> None:
        """A host with this address, of a network of 24 bits."""
        port = self.ports[host] = f"port{len(self.ports)}"
        run("ip", "netns", "add", self.space(host))
        pair = ("link", "add", "name", port, "type", "veth", "peer", "name", CABLE)
        self.ip(*pair, "netns", self.space(host))
        self.ip("link", "set", "dev", port, "up", "master", "bridge")
        run("ip", "-n", self.space(host), "addr", "add", f"{address}/24", "dev", CABLE)
        for device in ("lo", CABLE):
            run("ip", "-n", self.space(host), "link", "set", "dev", device, "up")

    def cut(self, host: str) -> None:
        """Nothing that the host sends reaches another; all still see the switch."""
        self.ip("link", "set", "dev", self.ports[host], "nomaster")

    def shape(self, host: str, megabits: float) -> None:
        """Limits the link of a host in both directions, also one that was limited before.

        The queue holds what is sent in 3 s: one of 100 ms dropped thousands of packets at 10 Mbit/s, which
        were sent again, so that the link had 0.7 of its rate at times. A connection has at most 64 KiB on its
        way: megabytes in the queue delay what is acknowledged by seconds, so that they may all be taken for
        lost and sent again.
        """
        limit = "echo 4096 16384 65536 > /proc/sys/net/ipv4/tcp_wmem"
        run("ip", "netns", "exec", self.space(host), "sh", "-c", limit)
        for space, device in ((host, CABLE), ("switch", self.ports[host])):
            words = ("tbf", "rate", f"{megabits}mbit", "burst", "64kb", "latency", "3s")
            run("tc", "-n", self.space(space), "qdisc", "replace", "dev", device, "root", *words)

    def repair(self, host: str) -> None:
        self.ip("link", "set", "dev", self.ports[host], "master", "bridge")

    def listening(self, host: str) -> list[str]:
        """Lines on the ports at which a process of the host listens."""
        words = ["ip", "netns", "exec", self.space(host), "ss", "-tlnH"]
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()

    def ip(self, *words: str) -> None:
        """A command of ip(8) within the switch."""
        run("ip", "-n", self.space("switch"), *words)


@contextmanager
def switch() -> Iterator[Switch]:
    """A switch without hosts."""
    made = Switch(f"t{uuid.uuid4().hex[:6]}-")
    try:
        run("ip", "netns", "add", made.space("switch"))
        made.ip("link", "add", "name", "bridge", "type", "bridge")
        made.ip("link", "set", "dev", "bridge", "up")
        yield made
    finally:
        for host in ("switch", *made.ports):
            if os.path.exists(f"/run/netns/{made.space(host)}"):
                run("ip", "netns", "delete", made.space(host))


def run(*words: str) -> None:
    subprocess.run(words, check=True, timeout=60)


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
