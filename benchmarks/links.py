"""How soon the ranks of a run have met, and how long a message to a rank and back takes, over each link.

    python -m benchmarks.links [--ranks 16,128] [--rounds 3]

The links are Open MPI, the sockets of one host, and the network with its secret, here on one host as well.
They take turns, round by round; each rank is a process that imports what a rank of a run imports. A round
trip is that of one message of 200 bytes to a rank that answers at once, with all other ranks waiting.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from aiperf.ranks.connect import connect, disconnect
from aiperf.ranks.launcher import RUN_ID, SECRET, launched_rank
from aiperf.ranks.link import Link
from aiperf.ranks.mpi import dismiss, gather
from aiperf.wire.layout import Bye, Hello
from aiperf.wire.messages import pack
from benchmarks.script import head, row, torchrun_variables

LINKS = ("Open MPI", "sockets of one host", "network")
BEGAN = "LINKS_BEGAN"
"""Variable with the time at which the driver started the ranks."""
NUM_TRIPS = 1000
MESSAGE = bytes(200)
LIMIT_SECONDS, END_SECONDS = 300.0, 10.0
"""Time in seconds for the ranks to meet and to measure, and to end when they have not."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--ranks", default="16,128")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rank", action="store_true", help="be a rank; the driver says so")
    options = parser.parse_args()
    if options.rank:
        return rank()
    print(head("link", "ranks", "start [s]", "CPU of all [s]", "round trip [us]", "99th percentile"))
    for size in map(int, options.ranks.split(",")):
        found: dict[str, list[tuple[float, ...]]] = defaultdict(list)
        for _ in range(options.rounds):
            for link in LINKS:
                found[link].append(measured(link, size))
        for link in LINKS:
            start, cpu, trip, worst = (statistics.median(column) for column in zip(*found[link]))
            print(row(link, size, f"{start:.1f}", f"{cpu:.1f}", f"{trip:.0f}", f"{worst:.0f}"), flush=True)
    return None


def measured(link: str, size: int) -> tuple[float, ...]:
    """Seconds until all ranks had met, seconds of CPU of all of them, and microseconds of a round trip: the
    median and the 99th percentile."""
    command = [sys.executable, "-m", "benchmarks.links", "--rank"]
    plain = os.environ | {BEGAN: str(time.monotonic()), "OMP_NUM_THREADS": "1"}
    before = os.times()
    with tempfile.TemporaryDirectory(prefix="a") as folder:
        if link == LINKS[0]:
            mpiexec = [str(Path(sys.executable).with_name("mpiexec")), "-n", str(size), "--oversubscribe"]
            allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
            commands, each = [[*mpiexec, "--bind-to", "none", *command]], [allowed]
        else:
            commands, each = [command] * size, torchrun_variables(size, "links", port=29400)
        if link == LINKS[2]:
            (secret := Path(folder) / "secret").write_text("known to the ranks only")
            secret.chmod(0o600)
            by_hand = {SECRET: str(secret), "MASTER_ADDR": "127.0.0.1"}
            each = [{**one, RUN_ID: "", **by_hand} for one in each]
        processes = list[subprocess.Popen[bytes]]()
        try:
            for words, one in zip(commands, each):
                variables = plain | {"TMPDIR": folder} | one
                processes.append(subprocess.Popen(words, env=variables, stdout=subprocess.PIPE))
            until = time.monotonic() + LIMIT_SECONDS
            outputs = [each.communicate(timeout=until - time.monotonic())[0] for each in processes]
        finally:
            end(processes)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    start, trip, worst = map(float, b"".join(outputs).split())
    return start, cpu, trip, worst


def end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ends what has not ended by itself; mpiexec ends its ranks if it is given the time."""
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def rank() -> None:
    """Meets the other ranks; the master measures, all others answer."""
    launched = launched_rank(os.environ)
    assert launched is not None
    link = connect(launched)
    if link.rank:
        link.send(0, 0, pack(Hello(socket.gethostname())))
        received = None
        while not link.orphaned and 0 not in link.failed and (received is None or received.data == MESSAGE):
            if received is not None:
                link.send(0, 0, MESSAGE)
            received = link.receive(1.0)
        link.send(0, 0, pack(Bye()))
        link.flush(5.0)
    else:
        gather(link)
        start = time.monotonic() - float(os.environ[BEGAN])
        trips = sorted(round_trip(link, 1 + number % (link.size - 1)) for number in range(NUM_TRIPS))
        print(start, 1e6 * statistics.median(trips), 1e6 * trips[int(0.99 * NUM_TRIPS)], flush=True)
        dismiss(link)
    disconnect(link)


def round_trip(link: Link, rank: int) -> float:
    """Seconds until a rank's answer has arrived."""
    began = time.monotonic()
    link.send(rank, 0, MESSAGE)
    received = None
    while received is None:
        assert not link.failed
        received = link.receive(1.0)
    assert (received.source, received.data) == (rank, MESSAGE)
    return time.monotonic() - began


if __name__ == "__main__":
    main()
