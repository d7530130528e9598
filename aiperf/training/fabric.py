"""The part of a rank in the measurement of the fabric: a process that is gone before the rank binds its
device."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import BinaryIO

from aiperf.errors import AiperfError, GroupBroken, WorldError
from aiperf.host.child_process import Child, Killed, NoReply, NotInTime, answer_file, put, written
from aiperf.host.scheduler_warning import ALL, held
from aiperf.proposing.plan import coupled_seconds
from aiperf.wire.door import open_door
from aiperf.wire.layout import Place
from aiperf.wire.messages import FabricMeeting, JoinFabric, Setup, ToGroup
from aiperf.wire.reports import DIED, FabricPart, FromGroup
from nas.record import RecordError, decode, encode

POLL_SECONDS = 0.1
"""Time in seconds between two looks at what the process has written."""


def take_part(
    setup: Setup,
    place: Place,
    kind: str,
    send: Callable[[FromGroup], None],
    receive: Callable[[], ToGroup],
) -> None:
    """Measures the fabric with all other ranks, if the setup asks for it, and sends this rank's part. The
    first rank says where to meet. What fails is the reason of the part; the run goes on. Raises GroupBroken
    if the run or the group ends before that. `kind` is that of the rank's device, and `send` and `receive`
    are its connection to the master. The fabric has `setup.fabric_seconds`; once it is known, the coupled
    control has `coupled_seconds` of its own."""
    if not setup.fabric_seconds:
        return
    door, unknown = None, "the ranks did not meet"
    with ExitStack() as stack:
        if place.rank == 1:
            try:
                door = stack.enter_context(open_door(place.num_hosts > 1, os.environ))
            except WorldError as error:
                unknown = str(error)
        host, port = door.getsockname()[:2] if door else ("", 0)
        send(FabricMeeting(place.rank, host, port))
        join = receive()
        if not isinstance(join, JoinFabric):  # Quit, or Disband where another rank of the group died
            raise GroupBroken(f"{type(join).__name__} came before the fabric was measured")
        if join.host:
            send(_measured(setup, place, kind, join, door))
        else:
            send(FabricPart(place.rank, socket.gethostname(), place.host_index, reason=unknown))


def _measured(
    setup: Setup, place: Place, kind: str, join: JoinFabric, door: socket.socket | None
) -> FabricPart:
    """What the process of this rank measured, or did until it ended or its time was over."""
    part = FabricPart(place.rank, socket.gethostname(), place.host_index, reason="the start of its process")
    began, listening = time.monotonic(), -1 if door is None else door.fileno()
    until, seconds = began + setup.fabric_seconds, setup.fabric_seconds
    with answer_file() as file:
        # Not by the words of the command, which everybody on the host can read: there is a secret in it.
        given = {
            "place": encode(place),
            "join": encode(join),
            "parent": os.getpid(),
            "config": encode(setup.config),
            "coupled_seconds": coupled_seconds(seconds),
        }
        put(str(file.fileno()), given)
        words = [str(file.fileno()), kind, str(until), str(listening)]
        failed, died = "", False
        try:
            with held(*ALL):
                keep = [file.fileno(), *([listening] if door else [])]
                child = Child("aiperf.measuring.fabric:measure", *words, keep=keep)
            if door is not None:
                door.close()
            while not child.ended and time.monotonic() < until:
                time.sleep(POLL_SECONDS)
                known = _written(file)
                if part.reason and known is not None and not known.reason:  # the fabric is known
                    seconds = coupled_seconds(seconds)
                    until = time.monotonic() + seconds
                part = known or part
            # What it has measured is in the file; this waits for its end, and raises if it was killed or is
            # late.
            child.answer(until - time.monotonic())
        except NotInTime:
            failed = f"no answer in {seconds:.0f} s"
        except (AiperfError, NoReply, OSError) as error:
            failed = str(error)
            died = isinstance(error, Killed)
        part = _written(file) or part
    if part.reason:
        done, seconds = DIED if died else part.done, time.monotonic() - began
        return replace(part, reason=f"{part.reason}: {failed}", done=done, seconds=seconds)
    coupled = part.coupled
    if coupled is not None and coupled.reason:
        done = DIED if died else coupled.done
        part = replace(part, coupled=replace(coupled, reason=f"{coupled.reason}: {failed}", done=done))
    return part  # it was done, however it ended then


def _written(file: BinaryIO) -> FabricPart | None:
    """What the process has written; None if that is nothing yet, or it is just writing."""
    with suppress(ValueError, RecordError):
        return decode(FabricPart, json.loads(written(file)))
    return None
