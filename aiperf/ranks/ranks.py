"""From one command on many ranks to one master and its workers, and from one process to many."""

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from aiperf import warned
from aiperf.config import Config
from aiperf.errors import WorldError, installation
from aiperf.files import RunFiles
from aiperf.ranks.connect import abort, connect, disconnect
from aiperf.ranks.launched import TORCHRUN, Launched, launched
from aiperf.ranks.link import Link
from aiperf.ranks.mpi import MpiWorld, describe, dismiss, gather
from aiperf.ranks.relay import serve
from aiperf.ranks.visible import visible_devices
from aiperf.ranks.wanted import Wanted
from aiperf.ranks.worker import device_at
from aiperf.ranks.world import ALONE, LocalWorld, World
from aiperf.wire.layout import Described, Place, layout, refuse_uneven_batch

log = logging.getLogger(__name__)

PROGRAM = (sys.executable, "-c", "from aiperf.start import main; raise SystemExit(main())")
"""The words of this program's command, whatever else is installed under its name."""


@dataclass(frozen=True)
class Ranks:
    """What the master has: itself alone, or all ranks."""

    wanted: Wanted
    link: Link | None = None
    hosts: tuple[str, ...] = ()
    """Of every rank, when there are several."""

    @property
    def terminal(self) -> bool | None:
        """False under a launcher, which may give the master a terminal of its own making."""
        return None if self.link is None else False

    def places(self, config: Config) -> tuple[Place, ...]:
        """Of those that train. Raises WorldError or ConfigError where they cannot be divided into
        groups, or cannot share a batch."""
        if self.link is None:
            return (ALONE,)
        places = layout(self.hosts, self.wanted.devices_per_trial)
        refuse_uneven_batch(config.training.batch_size, len(places[0].group))
        return places

    def devices(self, config: Config) -> tuple[Described, ...]:
        """What each rank that trains would bind. Raises as `places`."""
        if self.link is None:
            return self.found((device_at(ALONE, self.wanted.device, self.wanted.pretend),))
        return self.found(describe(self.link, self.places(config)))

    def first_devices(self, config: Config) -> tuple[Described, ...]:
        """One of each host. Raises as `places`."""
        if self.link is None:
            return self.devices(config)
        places = {self.hosts[place.rank]: place for place in reversed(self.places(config))}
        return self.found(describe(self.link, tuple(places.values())))

    def found(self, devices: tuple[Described, ...]) -> tuple[Described, ...]:
        """The same. Raises WorldError where a rank has none."""
        for each in devices:
            if not each.kind:
                host = self.hosts[each.rank] if self.hosts else socket.gethostname()
                raise WorldError(f"rank {each.rank} on {host} has no device: {each.device}")
        return devices

    def world(self, config: Config, files: RunFiles) -> World:
        """Raises as `places`."""
        places = self.places(config)
        if self.link is None:
            return LocalWorld(files.log(socket.gethostname()), self.wanted.device, self.wanted.pretend)
        return MpiWorld(self.link, files, self.hosts, places, children=self.wanted.backend == "ddp")


def across(wanted: Wanted, lead: Callable[[Ranks], int]) -> int:
    """Calls `lead` in the process that is the master, and serves it in all others; the exit code.

    Where no launcher started this process and it sees several devices, it starts its ranks itself.
    """
    started = launched(os.environ)
    if started is not None:
        return _as_rank(started, wanted, lead)
    if wanted.backend == "horovod":
        raise WorldError("--backend horovod needs several ranks; start them with mpiexec or srun")
    num_devices = wanted.devices or (1 if wanted.pretend else visible_devices(wanted.device))
    if num_devices > 1:
        return _start_ranks(num_devices + 1)
    return lead(Ranks(wanted))


def _as_rank(started: Launched, wanted: Wanted, lead: Callable[[Ranks], int]) -> int:
    if started.launcher == TORCHRUN and wanted.backend == "horovod":
        raise WorldError("--backend horovod needs MPI; start the ranks with mpiexec or srun")
    if started.rank > 0:  # the master answers the signals that mpiexec or srun sends to all ranks
        warned.outlive()
    link = connect(started)
    if link.rank > 0:
        serve(link, wanted.device, wanted.backend, wanted.pretend)
        disconnect(link)
        return 0
    try:
        code = lead(Ranks(wanted, link, gather(link)))
    except BaseException:
        _leave(link, 1)
        raise
    _leave(link, code)
    return code


def _leave(link: Link, code: int) -> None:
    if dismiss(link):
        disconnect(link)
    else:  # at the very end, when everything is said
        log.warning("some ranks no longer answer; they are being killed")
        atexit.register(abort, link, code)


def _start_ranks(num_ranks: int) -> int:
    """This same command once more, on so many ranks of this host; its exit code.

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
    # As root Open MPI wants to be told twice; whoever started this process as root has decided that.
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    environment = os.environ | allowed | {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
    # On SIGINT mpiexec would end all ranks at once, without a result.
    code, interrupted = run_for_this(command, environment, (signal.SIGUSR1, signal.SIGTERM))
    return 130 if interrupted and code == 75 else code


def run_for_this(
    command: Sequence[str], environment: Mapping[str, str], interrupts: tuple[signal.Signals, signal.Signals]
) -> tuple[int, bool]:
    """Runs a command that does the work of this process; its exit code, and whether Ctrl-C was pressed.

    It hears of a scheduler's warning by SIGUSR1, which `warned.noted` then has as well, and of the first
    Ctrl-C and of later ones by `interrupts`: it is in a session of its own, so the terminal sends it none.
    """
    process = subprocess.Popen(
        command, env=environment, start_new_session=True, preexec_fn=_warned_without_parent
    )

    def hand_on(number: int, frame: FrameType | None) -> None:
        warned.noted().append(number)
        process.send_signal(signal.SIGUSR1)

    before = {number: signal.signal(number, hand_on) for number in warned.heeded()}
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
    """However this process ends, the ranks close their trials: prctl(2), PR_SET_PDEATHSIG."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGUSR1)


def _mpiexec() -> str | None:
    """Of the MPI that this Python's mpi4py takes: beside the interpreter first."""
    try:
        import mpi4py  # noqa: F401
    except ImportError:
        return None
    beside = Path(sys.executable).parent / "mpiexec"
    return str(beside) if beside.exists() else shutil.which("mpiexec")
