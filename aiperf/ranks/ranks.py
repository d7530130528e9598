"""A master and its workers, from one command: a launcher started it on many ranks or, without a launcher, one
process starts the others."""

from __future__ import annotations

import atexit
import ctypes
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType

from aiperf.config import Config
from aiperf.errors import WorldError, installation
from aiperf.host import scheduler_warning
from aiperf.host.cores import allowed_cores
from aiperf.journal.run_files import RunFiles
from aiperf.pretending.assumptions import Assumptions
from aiperf.ranks.connect import abort, connect, disconnect
from aiperf.ranks.launcher import BY_HAND, TORCHRUN, LaunchedRank, launched_rank
from aiperf.ranks.link import Link
from aiperf.ranks.mpi import MpiWorld, describe, dismiss, gather
from aiperf.ranks.process import device_at, visible_devices, worker_at
from aiperf.ranks.rank_options import SPREAD_ALONE, RankOptions
from aiperf.ranks.relay import serve
from aiperf.ranks.world import ALONE, Gone, World
from aiperf.wire.clocks import SAME_CLOCK, ClockReading
from aiperf.wire.layout import Described, Place, layout, refuse_uneven_batch
from aiperf.wire.messages import Quit, ToGroup, pack, unpack
from aiperf.wire.reports import FromGroup
from aiperf.wording import counted
from nas.frozen import frozen

log = logging.getLogger(__name__)

PROGRAM = (sys.executable, "-c", "from aiperf.start import main; raise SystemExit(main())")
"""The command of this program by its interpreter, because another program may be installed under its name."""


@frozen
class Ranks:
    """The ranks that the master has: itself alone, or all ranks of a launcher."""

    options: RankOptions
    link: Link | None = None
    """The link to the other ranks; None without a launcher."""
    hosts: tuple[str, ...] = ()
    """Host of every rank, the master's first; empty without a launcher."""

    @property
    def terminal(self) -> bool | None:
        """False under a launcher, which may give the master a pseudo-terminal that nobody watches; otherwise
        None, which means that the output itself shows it."""
        return None if self.link is None else False

    @property
    def masters_host_trains(self) -> bool:
        """Whether another rank on the master's host trains, or the master's process itself."""
        return self.hosts[:1] == () or self.hosts[0] in self.hosts[1:]

    def places(self, config: Config) -> tuple[Place, ...]:
        """Places of the ranks that train. Raises WorldError or ConfigError if they cannot be divided into
        groups, or cannot share a batch evenly."""
        if self.link is None:
            if self.options.spread:
                raise WorldError(SPREAD_ALONE)
            return (ALONE,)
        places = layout(self.hosts, self.options.devices_per_trial, self.options.spread)
        refuse_uneven_batch(config.training.batch_size, len(places[0].group))
        return places

    def devices(self, config: Config) -> tuple[Described, ...]:
        """The device that each rank that trains would bind. Raises as `places`, and WorldError if a rank has
        none."""
        if self.link is None:
            return self.found((device_at(ALONE, self.options.device, self.options.pretend),))
        return self.found(describe(self.link, self.places(config)))

    def first_devices(self, config: Config) -> tuple[Described, ...]:
        """The device of the first rank of each host. Raises as `devices`."""
        if self.link is None:
            return self.devices(config)
        places = {self.hosts[place.rank]: place for place in reversed(self.places(config))}
        return self.found(describe(self.link, tuple(places.values())))

    def found(self, devices: tuple[Described, ...]) -> tuple[Described, ...]:
        """Returns the devices unchanged. Raises WorldError if a rank has none."""
        for each in devices:
            if not each.kind:
                host = self.hosts[each.rank] if self.hosts else socket.gethostname()
                raise WorldError(f"rank {each.rank} on {host} has no device: {each.device}")
        return devices

    def world(self, config: Config, files: RunFiles) -> World:
        """The master's interface to the groups. Starts the worker of a single process. Raises as `places`."""
        places = self.places(config)
        if self.link is None:
            return LocalWorld(files.log(socket.gethostname()), self.options.device, self.options.pretend)
        return MpiWorld(self.link, files, self.hosts, places, children=self.options.backend == "ddp")


class LocalWorld:
    """One worker in a child process, or one that pretends, in a thread."""

    def __init__(self, log: Path, device: str, pretend: Assumptions | None = None) -> None:
        """The worker's output goes to `log`; `device` is the kind that it binds."""
        self.groups: tuple[tuple[int, ...], ...] = ((1,),)
        self._log, self._device, self._pretend, self._gone = log, device, pretend, False
        self._start()

    def send(self, group: int, message: ToGroup) -> None:
        self._worker.send(pack(message))

    def send_all(self, message: ToGroup) -> None:
        self.send(0, message)

    def receive(self, seconds: float) -> tuple[int, FromGroup | Gone] | None:
        if self._gone:
            time.sleep(seconds)
            return None
        try:
            data = self._worker.receive(seconds)
        except EOFError:
            self._gone = True
            return 0, Gone(self._worker.obituary())
        return None if data is None else (0, unpack(FromGroup, data))

    def clock_of(self, rank: int) -> ClockReading:
        return SAME_CLOCK

    def restart(self, group: int) -> bool:
        self._worker.kill()
        self._start()
        return True

    def close(self) -> None:
        self.send(0, Quit())
        self._worker.end()

    def _start(self) -> None:
        self._worker = worker_at(ALONE, self._device, self._log, self._pretend)
        self._gone = False


def across(options: RankOptions, lead: Callable[[Ranks], int]) -> int:
    """Calls `lead` in the process that is the master, and serves the master in all others. Returns the exit
    code.

    If no launcher started this process and it sees several devices, it starts its ranks itself.
    """
    started = launched_rank(os.environ)
    if started is not None:
        return _as_rank(started, options, lead)
    if options.backend == "horovod":
        raise WorldError("--backend horovod needs several ranks; start them with mpiexec or srun")
    if options.devices and not options.pretend:
        _refuse_more_than_there_are(options.devices, options.device)
    num_devices = options.devices or (1 if options.pretend else visible_devices(options.device))
    if num_devices > 1:
        return _start_ranks(num_devices + 1)
    return lead(Ranks(options))


def _refuse_more_than_there_are(devices: int, kind: str) -> None:
    """Raises WorldError for more ranks than can work: each is a process with its own PyTorch, so very many
    fill the memory of a host."""
    cores = allowed_cores()
    if devices > cores and devices > (visible := visible_devices(kind)):
        raise WorldError(
            f"--devices is {devices:,}, but this process sees {counted(visible, 'device')} and may use "
            f"{counted(cores, 'core')}; give at most {max(visible, cores)}"
        )


def _as_rank(started: LaunchedRank, options: RankOptions, lead: Callable[[Ranks], int]) -> int:
    if started.launcher in (TORCHRUN, BY_HAND) and options.backend == "horovod":
        raise WorldError("--backend horovod needs MPI; start the ranks with mpiexec or srun")
    if started.rank > 0:  # the master answers the signals that mpiexec or srun sends to all ranks
        scheduler_warning.outlive()
    link = connect(started)
    if link.rank > 0:
        serve(link, options.device, options.backend, options.pretend)
        disconnect(link)
        return 0
    try:
        code = lead(Ranks(options, link, gather(link)))
    except BaseException:
        _leave(link, 1)
        raise
    _leave(link, code)
    return code


def _leave(link: Link, code: int) -> None:
    if dismiss(link):
        disconnect(link)
    else:  # at exit, after all output
        log.warning("some ranks no longer answer; they are being killed")
        atexit.register(abort, link, code)


def _start_ranks(num_ranks: int) -> int:
    """Runs this same command again under mpiexec, on `num_ranks` ranks of this host. Returns its exit code.

    Raises WorldError, with the command to type, where MPI is not installed.
    """
    mpiexec = _mpiexec()
    if mpiexec is None:
        words = " ".join(["aiperf-hpc", *sys.argv[1:]])
        raise WorldError(
            f"{num_ranks - 1} devices need one process each; {installation('mpi')}, "
            f"or load the site's MPI, and run: mpiexec -n {num_ranks} {words}; or use --devices 1"
        )
    command = [mpiexec, "-n", str(num_ranks), "--bind-to", "none", *PROGRAM, *sys.argv[1:]]
    # Open MPI refuses to run as root unless two variables are set. Whoever started this process as root has
    # made that decision already.
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    environment = os.environ | allowed | {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
    # On SIGINT mpiexec would end all ranks at once, without a result.
    code, interrupted = run_for_this(command, environment, (signal.SIGUSR1, signal.SIGTERM))
    return 130 if interrupted and code == 75 else code


def run_for_this(
    command: Sequence[str], environment: Mapping[str, str], interrupts: tuple[signal.Signals, signal.Signals]
) -> tuple[int, bool]:
    """Runs a command that does the work of this process. Returns its exit code, and whether Ctrl-C was
    pressed.

    The command runs in a session of its own, so it gets no signals from the terminal. A scheduler's warning
    is passed on to it as SIGUSR1, and is noted in `warned.noted` as well; Ctrl-C is passed on as the first of
    `interrupts`, and every further one as the second.
    """
    process = subprocess.Popen(
        command, env=environment, start_new_session=True, preexec_fn=_warned_without_parent
    )

    def hand_on(number: int, frame: FrameType | None) -> None:
        scheduler_warning.noted().append(number)
        process.send_signal(signal.SIGUSR1)

    before = {number: signal.signal(number, hand_on) for number in scheduler_warning.heeded()}
    interrupted = False
    while True:
        try:
            code = process.wait()
            break
        except KeyboardInterrupt:
            process.send_signal(interrupts[interrupted])
            interrupted = True
    for number, handler in before.items():
        signal.signal(number, handler)
    return code, interrupted


def _warned_without_parent() -> None:
    """Has the kernel send SIGUSR1 to the child when this process ends in any way, so that the ranks close
    their trials: prctl(2), PR_SET_PDEATHSIG."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGUSR1)


def _mpiexec() -> str | None:
    """Path of the mpiexec that belongs to the MPI of this Python's mpi4py: the one next to the interpreter,
    else the one in PATH."""
    try:
        import mpi4py  # noqa: F401
    except ImportError:
        return None
    beside = Path(sys.executable).parent / "mpiexec"
    return str(beside) if beside.exists() else shutil.which("mpiexec")
