"""The examination of all ranks of a launcher, and of one process alone. The first rank asks and collects, all
others serve. What may hang or die runs in a process of its own, so that a broken driver costs an answer and
not the examination."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shlex
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Generic, TypeVar

from aiperf.config import Config, DataConfig
from aiperf.doctor.host_report import examine_host, try_folder
from aiperf.doctor.reports import DataReport, DeviceReport, Examination, Folder, HostReport, Meet, patient
from aiperf.errors import AiperfError, ConfigError, ForeignLibrary, WorldError
from aiperf.host.child_process import BrokenImport, Child, Killed, NoReply
from aiperf.ranks.link import Link
from aiperf.ranks.mpi import gather
from aiperf.ranks.process import visible_devices
from aiperf.ranks.rank_options import SPREAD_ALONE, RankOptions
from aiperf.wire.clocks import ROUND_TRIPS, ClockReading, RoundTrips
from aiperf.wire.door import open_door
from aiperf.wire.layout import Bye, Hello, Place, layout, refuse_uneven_batch
from aiperf.wire.messages import AskTime, Quit, TimeOfDay, ToGroup, pack, unpack
from aiperf.wire.reports import FromGroup
from nas.frozen import frozen
from nas.record import RecordError, decode, encode

MASTER_SILENCE_SECONDS = 1800.0
"""Time in seconds after which a rank ends by itself, because a master that is gone may have left it
behind."""
ANSWER_SECONDS = 5.0
"""Time limit in seconds for an answer that needs no examination: a time of day or an address."""
IMPORT_REMEDY = (
    f"reinstall that library in the environment of {shlex.quote(sys.executable)}, or load the modules with "
    "which it was built; the device is not the cause"
)
MEMORY_REMEDY = (
    "the kernel kills a process if the memory of the host or of the job is used up: request more memory for "
    "the job, or stop other programs on that host"
)

Report = TypeVar("Report", bound=FromGroup)
Answers = set[tuple[int, type[FromGroup]]]
"""Awaited answers, as pairs of a rank and the kind of message."""


@frozen
class ExamineHost(ToGroup):
    """Request to examine the host."""

    probe: str
    """Path of a file in the run directory that contains `nonce`, if the directory is shared."""
    nonce: str
    """A random word, so that no file of an earlier examination is taken for this one."""
    data_path: str
    """Folder of the data set; empty if none is needed."""
    wait_seconds: float
    trains: bool = True
    """Whether workers train there, and so need torch and the data."""


@frozen
class OpenDoor(ToGroup):
    """Request to the leader of a group to open a socket at which the others can meet it."""

    spans_hosts: bool
    """Whether the group has ranks on several hosts, so that the socket must not be on the loopback
    address."""


@frozen
class Door(FromGroup):
    """Address of the leader's socket; port 0 if it could not open one, which its `DeviceReport` explains."""

    host: str
    port: int


@frozen
class ExamineDevice(ToGroup):
    """Request to examine the device of a rank."""

    place: Place
    kind: str
    format: str
    """Number format of the run, which the device must support."""
    host: str
    port: int
    """Port of the leader's socket; 0 if the group is one rank."""
    wait_seconds: float


def examine_alone(config: Config, options: RankOptions, directory: Path, seconds: float) -> Examination:
    """Examines this host without a launcher, with all its devices as one group. `seconds` is the time limit
    for all answers. Devices are examined by as many processes at once, as in a run."""
    until = time.monotonic() + seconds
    host, num_devices = socket.gethostname(), options.devices or visible_devices(options.device)
    group = tuple(range(1, num_devices + 1))
    places = [Place(rank, group, rank - 1, num_devices) for rank in group]
    fault = SPREAD_ALONE if options.spread else ""
    if options.pretend:
        with _probe(directory) as (folder, probe, nonce):
            seen = examine_host(probe, nonce, config.data.path, os.environ, seconds, trains=False)
        return Examination(
            config,
            folder,
            mpi=_library(),
            layout_fault=fault,
            pretends=True,
            host_reports=(seen,),
            device_reports=tuple(_pretended(place, host) for place in places),
        )
    data = data_process(config.data)
    with _door(spans_hosts=False) as (door, listening):
        meets = [Meet(*door, listening if place.leads else -1) for place in places]
        children = [
            device_process(
                options.device,
                config.training.format,
                place,
                host,
                meet if num_devices > 1 else None,
                seconds,
            )
            for place, meet in zip(places, meets)
        ]
        with _probe(directory) as (folder, probe, nonce):
            seen = examine_host(probe, nonce, config.data.path, os.environ, seconds)
        devices = tuple(child.answer(until - time.monotonic()) for child in children)
    silent = tuple(f"device {index}" for index, found in enumerate(devices) if found is None)
    return Examination(
        config,
        folder,
        mpi=_library(),
        devices_per_group=num_devices,
        layout_fault=fault,
        backend=options.backend,
        host_reports=(seen,),
        device_reports=tuple(found for found in devices if found is not None),
        data_report=data.answer(until - time.monotonic()),
        silent=silent,
        wait_seconds=seconds,
    )


def examine(link: Link, config: Config, options: RankOptions, directory: Path, seconds: float) -> Examination:
    """Examines all ranks, from the master, and waits at most `seconds` for their reports. Hosts are examined
    by their first ranks, devices by each rank."""
    until, hosts = time.monotonic() + seconds, gather(link)
    trains = options.pretend is None
    data = data_process(config.data) if trains else None
    places, fault = _places(hosts, config, options)
    # The lowest rank of each host, which is met last here.
    first_on = {host: rank for rank, host in reversed(list(enumerate(hosts)))}
    patience = patient(ANSWER_SECONDS, seconds)
    clocks = {host: _clock(link, rank, patience) for host, rank in first_on.items() if rank}
    asked = places if trains else ()
    doors = _doors(link, asked, patience)
    for place in asked:
        host, port = doors.get(place.group, ("", 0))
        format = config.training.format
        link.send(place.rank, 0, pack(ExamineDevice(place, options.device, format, host, port, seconds)))
    with _probe(directory) as (folder, probe, nonce):
        for rank in first_on.values():
            if rank:
                link.send(rank, 0, pack(ExamineHost(str(probe), nonce, config.data.path, seconds, trains)))
        own = examine_host(probe, nonce, config.data.path, os.environ, seconds, trains)
        wanted_answers: Answers = {(rank, HostReport) for rank in first_on.values() if rank}
        wanted_answers |= {(place.rank, DeviceReport) for place in asked}
        answers = _collect(link, wanted_answers, until)
    devices = tuple(each for each in answers.values() if isinstance(each, DeviceReport))
    missing = sorted({rank for rank, _ in wanted_answers - answers.keys()})
    return Examination(
        config,
        folder,
        hosts=hosts,
        mpi=link.library(),
        threads=link.threads,
        devices_per_group=max((len(place.group) for place in places), default=1),
        layout_fault=fault,
        backend=options.backend,
        pretends=not trains,
        host_reports=(own, *(each for each in answers.values() if isinstance(each, HostReport))),
        device_reports=devices if trains else tuple(_pretended(place, hosts[place.rank]) for place in places),
        data_report=data.answer(until - time.monotonic()) if data else None,
        clocks={host: clock for host, clock in clocks.items() if clock is not None},
        silent=tuple(f"rank {rank} on {hosts[rank]}" for rank in missing),
        wait_seconds=seconds,
    )


def serve_examination(link: Link) -> None:
    """Answers the master's requests on every other rank, until Quit or until the master is gone. It looks
    every 0.05 s whether its own process has a report."""
    link.send(0, 0, pack(Hello(socket.gethostname())))
    until = time.monotonic() + MASTER_SILENCE_SECONDS
    with contextlib.ExitStack() as doors:
        listening, no_door, child = -1, "", None
        while time.monotonic() < until and not (link.orphaned or 0 in link.failed):
            if child is not None and child.ended:
                found = child.answer(0.0)
                if found is not None:
                    link.send(0, 0, pack(replace(found, fault=found.fault or no_door)))
                child = None
            received = link.receive(0.05)
            if received is None:
                continue
            message = unpack(ToGroup, received.data)
            if isinstance(message, AskTime):
                link.send(0, 0, pack(TimeOfDay(message.number, time.time())))
            elif isinstance(message, ExamineHost):
                asked, probe = (message.nonce, message.data_path), Path(message.probe)
                found_here = examine_host(probe, *asked, os.environ, message.wait_seconds, message.trains)
                link.send(0, 0, pack(found_here))
            elif isinstance(message, OpenDoor):
                door = "", 0
                try:
                    door, listening = doors.enter_context(_door(message.spans_hosts))
                except WorldError as error:
                    no_door = str(error)
                link.send(0, 0, pack(Door(*door)))
            elif isinstance(message, ExamineDevice):
                meet = Meet(message.host, message.port, listening) if message.port else None
                where = (message.place, socket.gethostname(), meet)
                child = device_process(message.kind, message.format, *where, message.wait_seconds)
            elif isinstance(message, Quit):
                break
        if child is not None:
            child.kill()
    link.send(0, 0, pack(Bye()))
    link.flush(5.0)


def _places(hosts: Sequence[str], config: Config, options: RankOptions) -> tuple[tuple[Place, ...], str]:
    """Places of the ranks that train; without any, the reason why they cannot be divided into groups."""
    try:
        places = layout(hosts, options.devices_per_trial, options.spread)
        refuse_uneven_batch(config.training.batch_size, len(places[0].group))
    except (WorldError, ConfigError) as error:
        return (), str(error)
    return places, ""


def _pretended(place: Place, host: str) -> DeviceReport:
    """Report for a rank whose worker would pretend, and has no device to examine."""
    return DeviceReport(place.rank, host)


def _clock(link: Link, rank: int, seconds: float) -> ClockReading | None:
    """A rank's clock compared with this one's, by round trips of at most `seconds`; None without an
    answer."""
    trips, unanswered = RoundTrips(), 0
    while not trips.enough and unanswered < ROUND_TRIPS:
        link.send(rank, 0, pack(AskTime(trips.ask(time.time(), time.monotonic()))))
        received = link.receive(seconds)
        message = None if received is None else unpack(FromGroup, received.data)
        unanswered += received is None
        if isinstance(message, TimeOfDay):
            trips.hear(message.number, message.wall_seconds, time.monotonic())
    return trips.best


def _doors(link: Link, places: Sequence[Place], seconds: float) -> Mapping[tuple[int, ...], tuple[str, int]]:
    """Address at which the ranks of each group meet, as its leader reports; groups of one rank need none. A
    leader that does not answer in `seconds` has no door, and its group is then examined without meeting."""
    leaders = {place.rank: place for place in places if place.leads and len(place.group) > 1}
    for rank, place in leaders.items():
        link.send(rank, 0, pack(OpenDoor(place.spans_hosts)))
    answers = _collect(link, {(rank, Door) for rank in leaders}, time.monotonic() + seconds)
    return {
        leaders[rank].group: (door.host, door.port)
        for (rank, _), door in answers.items()
        if isinstance(door, Door)
    }


def _collect(link: Link, wanted: Answers, until: float) -> dict[tuple[int, type[FromGroup]], FromGroup]:
    """The answers that arrived in time, by rank and kind."""
    found: dict[tuple[int, type[FromGroup]], FromGroup] = {}
    while wanted - found.keys() and time.monotonic() < until and not link.failed:
        received = link.receive(0.2)
        if received is not None:
            message: FromGroup = unpack(FromGroup, received.data)
            found[received.source, type(message)] = message
    return found


@contextlib.contextmanager
def _door(spans_hosts: bool) -> Iterator[tuple[tuple[str, int], int]]:
    """A listening socket: its host and port, and its file descriptor."""
    with open_door(spans_hosts, os.environ) as listening:
        host, port = listening.getsockname()[:2]
        yield (host, port), listening.fileno()


@contextlib.contextmanager
def _probe(directory: Path) -> Iterator[tuple[Folder, Path, str]]:
    """Writes a file into the run directory, by which other hosts can be seen to share it, and measures the
    directory. The file is removed at the end, and so is the directory if it did not exist before."""
    nonce, there = secrets.token_hex(8), directory.exists()
    probe = directory / f".doctor-{nonce}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        probe.write_text(nonce, encoding="utf-8")
    except OSError as error:
        yield Folder(str(directory), fault=error.strerror or str(error)), probe, nonce
        return
    try:
        yield try_folder(directory), probe, nonce
    finally:
        probe.unlink(missing_ok=True)
        if not there:
            with contextlib.suppress(OSError):  # somebody else uses it by now
                directory.rmdir()


def _library() -> str:
    """Name of the MPI library that mpi4py finds, or the reason why there is none."""
    try:
        import mpi4py

        mpi4py.rc.initialize = mpi4py.rc.finalize = False
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # RuntimeError: no libmpi
        return f"none: {str(error).splitlines()[0]}"
    version: str = MPI.Get_library_version()
    return version.splitlines()[0].split(",")[0].strip("\0 ")


class OwnProcess(Generic[Report]):
    """A child process that is started at once, and asked for its report later."""

    def __init__(self, child: Child, kind: type[Report], fault: Callable[[str, str], Report]) -> None:
        """`fault` makes the report for a child that died, from the reason and a remedy, if one is known."""
        self._child, self._kind, self._fault = child, kind, fault

    @property
    def ended(self) -> bool:
        """Whether its report can be had without waiting."""
        return self._child.ended

    def answer(self, seconds: float) -> Report | None:
        """Waits at most `seconds` for the report; without one, the child is killed, and the result is None. A
        child that died is a report with a fault."""
        try:
            return decode(self._kind, self._child.answer(seconds))
        except TimeoutError:
            return None
        except ForeignLibrary as error:
            return self._fault(error.seen, error.remedy)
        except BrokenImport as error:
            return self._fault(str(error), IMPORT_REMEDY)
        except Killed as error:
            return self._fault(str(error), MEMORY_REMEDY if error.signal == signal.SIGKILL else "")
        except (AiperfError, NoReply, RecordError) as error:
            return self._fault(str(error), "")

    def kill(self) -> None:
        """Ends the child without asking for its report."""
        self._child.kill()


def device_process(
    kind: str, format: str, place: Place, host: str, meet: Meet | None, wait_seconds: float
) -> OwnProcess[DeviceReport]:
    """Starts the examination of a device. The leader's process keeps the socket at which its group
    meets."""
    texts = [json.dumps(encode(value)) for value in (place, meet)]
    keep = () if meet is None or meet.listening < 0 else (meet.listening,)
    words = ("aiperf.doctor.device_report:device", kind, format, texts[0], host, texts[1], str(wait_seconds))
    return OwnProcess(
        Child(*words, keep=keep), DeviceReport, lambda *fault: DeviceReport(place.rank, host, *fault)
    )


def data_process(config: DataConfig) -> OwnProcess[DataReport]:
    """Starts reading the data set, which may take as long as the examination."""
    child = Child("aiperf.doctor.device_report:data", json.dumps(encode(config)))
    return OwnProcess(child, DataReport, lambda fault, remedy: DataReport(fault, remedy=remedy))
