"""Run under mpiexec by test_tree.py: ranks that only hear what goes to all, and a master that stops some."""

from __future__ import annotations

import functools
import os
import signal
import sys
import time
from pathlib import Path

from aiperf.config import load_preset
from aiperf.files import RunFiles
from aiperf.ranks import mpi, tree
from aiperf.ranks.connect import connect, disconnect
from aiperf.ranks.launcher import launched_rank
from aiperf.ranks.link import Link
from aiperf.ranks.mpi import MpiWorld, gather
from aiperf.ranks.relay import Post
from aiperf.ranks.world import Gone
from aiperf.tasks.images.tally import Classified
from aiperf.wire.layout import Bye, Place
from aiperf.wire.messages import Evaluated, Join, Meeting, Quit, Setup, Stop, ToGroup, pack

SECONDS = 30.0
HEARD: tuple[ToGroup, ...] = (Setup(load_preset("digits"), {}, "nowhere"), Join("", 1, "secret"), Stop())


def be_a_rank(link: Link) -> None:
    """Says its process, and after Stop whether it heard all in order."""
    post, heard = Post(link, "cpu"), list[ToGroup]()
    while not isinstance(message := post.receive(1.0), Quit):
        if isinstance(message, Place):
            post.send(Meeting("", os.getpid()))
        elif message is not None:
            heard.append(message)
        if isinstance(message, Stop):
            post.send(Evaluated(link.rank, Classified(1, int(tuple(heard) == HEARD)), 0.0))
    link.send(0, 0, pack(Bye()))
    link.flush(5.0)


def lead(link: Link, how: signal.Signals) -> None:
    """Kills or stops all ranks that the master speaks to itself."""
    hosts = gather(link)
    places = tuple(Place(rank, (rank,), rank - 1, link.size - 1) for rank in range(1, link.size))
    world = MpiWorld(link, RunFiles(Path("nowhere")), hosts, places, children=True)
    processes: dict[int, int] = {}
    while len(processes) < len(places):
        received = link.receive(1.0)
        if received is not None:
            processes[received.source] = mpi.unpack(mpi.FromGroup, received.data).port
    world.send_all(HEARD[0])
    for group in range(len(places)):
        world.send(group, HEARD[1])
    victims = tree.children(0, link.size, ())
    assert len(victims) == 4, victims
    time.sleep(1.0)
    for rank in victims:
        os.kill(processes[rank], how)
    world.send_all(HEARD[2])
    began, waiting = time.monotonic(), set(processes) - set(victims)
    if how is signal.SIGSTOP:
        for rank in victims:  # as the master does with a group that is silent for too long
            assert world.restart(rank - 1)
    while waiting and time.monotonic() < began + SECONDS:
        answer = world.receive(0.25)
        if answer is not None and isinstance(answer[1], Evaluated):
            assert answer[1].tally.error == 0, f"rank {answer[1].trial} heard something else"
            waiting.discard(answer[1].trial)
        elif answer is not None:
            assert isinstance(answer[1], Gone), answer
    print(waiting or f"all others heard it after {time.monotonic() - began:.2f} s", flush=True)
    if how is signal.SIGSTOP:
        for rank in victims:
            os.kill(processes[rank], signal.SIGCONT)
    began = time.monotonic()
    world.close()
    print(f"left: {sorted(link.left)} within {time.monotonic() - began:.1f} s", flush=True)


def main() -> None:
    # So narrow that the master reaches nobody else.
    tree.children = functools.partial(tree.children, fan_out=2)  # type: ignore[assignment]
    started = launched_rank(os.environ)
    assert started is not None
    link = connect(started)
    if link.rank:
        be_a_rank(link)
    else:
        lead(link, signal.Signals[sys.argv[1]])
    disconnect(link)


if __name__ == "__main__":
    main()
