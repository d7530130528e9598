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

from aiperf.errors import AiperfError, GroupBroken, WorldError
from aiperf.host.child_process import Child, Killed, NoReply, answer_file, put, written
from aiperf.host.scheduler_warning import ALL, held
from aiperf.wire.door import open_door
from aiperf.wire.layout import Place
from aiperf.wire.messages import DIED, FabricMeeting, FabricPart, FromGroup, JoinFabric, Setup, ToGroup
from nas.record import RecordError, decode, encode


def take_part(
    setup: Setup,
    place: Place,
    kind: str,
    send: Callable[[FromGroup], None],
    receive: Callable[[], ToGroup],
) -> None:
    """Measures the fabric with all other ranks, if the setup asks for it, and sends this rank's part. The
    first rank says where to meet. What fails is the reason of the part; the run goes on. Raises GroupBroken
    if the run or the group ends before that."""
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
            send(_measured(setup.fabric_seconds, place, kind, join, door))
        else:
            send(FabricPart(place.rank, socket.gethostname(), place.host_index, reason=unknown))


def _measured(
    seconds: float, place: Place, kind: str, join: JoinFabric, door: socket.socket | None
) -> FabricPart:
    """What the process of this rank measured, or did until it ended or its time was over."""
    part = FabricPart(place.rank, socket.gethostname(), place.host_index, reason="the start of its process")
    began, listening = time.monotonic(), -1 if door is None else door.fileno()
    until = began + seconds
    with answer_file() as file:
        # Not by the words of the command, which everybody on the host can read: there is a secret in it.
        given = {"place": encode(place), "join": encode(join), "parent": os.getpid()}
        put(str(file.fileno()), given)
        words = [str(file.fileno()), kind, str(until), str(listening)]
        failed, died = "", False
        try:
            with held(*ALL):
                keep = [file.fileno(), *([listening] if door else [])]
                child = Child("aiperf.measuring.fabric:measure", *words, keep=keep)
            if door is not None:
                door.close()
            child.answer(until - time.monotonic())
        except (AiperfError, NoReply, OSError) as error:
            failed = str(error)
            died = isinstance(error, Killed)
        with suppress(ValueError, RecordError):  # it wrote nothing yet, or was ended while writing
            part = decode(FabricPart, json.loads(written(file)))
    if not part.reason:  # it was done, however it ended then
        return part
    done, seconds = DIED if died else part.done, time.monotonic() - began
    return replace(part, reason=f"{part.reason}: {failed}", done=done, seconds=seconds)
