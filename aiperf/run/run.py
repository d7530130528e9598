"""A run, from its configuration to its last line: everything that touches the world."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from types import FrameType
from typing import Protocol

from aiperf import __version__
from aiperf.clock import Clock
from aiperf.config import Config, to_toml
from aiperf.errors import ConfigError, DataError, JournalError, MissingExtra, NotReady, WorldError
from aiperf.host.code import code_hash
from aiperf.host.scheduler_warning import heeded, noted
from aiperf.journal.events import TERMINATED, Line, Opened, Origin
from aiperf.journal.file import RULES_VERSION, VERSION
from aiperf.journal.names import fingerprint, new_salt
from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from aiperf.journal.writer import JournalWriter, refuse_taken
from aiperf.os_error import unwritable
from aiperf.pretending.assumptions import assumptions_toml
from aiperf.pretending.rank_report import pretending_notice
from aiperf.proposing.jobs import Jobs
from aiperf.proposing.proposals import libraries, proposals_version
from aiperf.ranks.ranks import Ranks
from aiperf.ranks.world import World
from aiperf.rules.ending import can_go_on
from aiperf.run.checks import (
    check_run,
    other_bounds_text,
    refuse_edited,
    refuse_other_origin,
    refuse_other_program,
    refuse_secrets,
    refuse_unknown_place,
    starting_graph,
)
from aiperf.run.handler import Audience, Watch
from aiperf.run.ledger import Ledger
from aiperf.run.master import Master
from nas.graph import Graph
from nas.record import graph_from_json, graph_to_json

STDERR = 2
"""The number of its file: a signal handler may write to it, but not print."""


def new_run_id(config: Config) -> str:
    return f"{datetime.now().strftime('%Y%m%d-%H%M%S')}-{Path(config.preset).stem}"


def _first_line(config: Config, files: RunFiles, seed: Graph, origin: Origin, salt: str) -> Opened:
    """The first line of the journal in this directory."""
    return Opened(
        salt_sha256=fingerprint(salt) if salt else "",
        version=VERSION,
        run_id=files.directory.name,
        program=__version__,
        code_hash=code_hash(),
        config=config,
        seed_graph=graph_to_json(seed),
        libraries=libraries(config),
        search=proposals_version(config),
        origin=origin,
        rules=RULES_VERSION,
    )


def begin(config: Config, files: RunFiles, ranks: Ranks, watch: Watch) -> Replay:
    """A new run in a directory of its own. Raises AiperfError before anything is measured; of a run that is
    refused before its clock starts nothing is left."""
    refuse_taken(files)
    refuse_secrets(config)
    if not ranks.options.pretend:
        config.data.refuse_no_folder()  # each worker would, once it has started
        if ranks.masters_host_trains:
            config.data.refuse_unfit()
    config, seed, tuner_note = check_run(config, ranks)  # describes a device, which imports torch
    for line in filter(None, (tuner_note, other_bounds_text(config))):
        _say(line)
    origin = Origin.PRETENDED if ranks.options.pretend else Origin.MEASURED
    replay = Replay()
    with (
        _removed_if_refused(files, replay),
        new_journal(config, files, seed, origin, replay) as (journal, jobs),
    ):
        if ranks.options.pretend:
            _write(files.assumptions, assumptions_toml(ranks.options.pretend))
        _leg(files, ranks, journal, replay, jobs, watch)
    return replay


@contextmanager
def new_journal(
    config: Config, files: RunFiles, seed: Graph, origin: Origin, replay: Replay
) -> Iterator[tuple[JournalWriter, Jobs]]:
    """The journal of a new run and its jobs; `replay` has its first line already. A simulated run has no
    names to hide."""
    salt = "" if origin is Origin.SIMULATED else new_salt()
    with JournalWriter.begin(files, salt) as journal:
        _write(files.config, to_toml(config))
        opened = _first_line(config, files, seed, origin, salt)
        journal.write(0.0, opened)
        replay.add(0.0, opened)
        yield journal, _jobs(opened, replay)


def resume(files: RunFiles, ranks: Ranks, watch: Watch) -> Replay:
    """A further leg of a run that was stopped or killed. Raises JournalError when it is complete."""
    replay, jobs = Replay(), list[Jobs]()

    def follow(line: Line) -> None:
        replay.add_line(line)
        try:
            if isinstance(line.event, Opened):
                jobs.append(_jobs(line.event, replay))
            else:
                jobs[0].follow(line.event)
        except (ValueError, LookupError) as error:
            refuse_other_program(replay.opened, files)
            raise _not_continued(files, line, str(error)) from None
        if replay.faults:
            raise _not_continued(files, line, replay.faults[0].text)

    with JournalWriter.resume(files, follow) as journal:
        opened = replay.opened
        if not can_go_on(replay):
            raise JournalError(f"{files.journal}: this run is complete; `aiperf-hpc score` shows its result")
        refuse_unknown_place(opened.config, files)
        refuse_other_program(opened, files)
        refuse_other_origin(replay, ranks, files)
        refuse_edited(opened.config, files)
        _leg(files, ranks, journal, replay, jobs[0], watch)
    return replay


def _not_continued(files: RunFiles, line: Line, why: str) -> JournalError:
    return JournalError(
        f"{files.journal}, line {line.number} does not follow from those above it: {why}; this run cannot "
        f"be continued; start a new run"
    )


def _jobs(opened: Opened, replay: Replay) -> Jobs:
    return Jobs.of(opened.config, graph_from_json(opened.seed_graph), replay)


def _leg(
    files: RunFiles, ranks: Ranks, journal: JournalWriter, replay: Replay, jobs: Jobs, watch: Watch
) -> None:
    if ranks.options.pretend:
        _say(pretending_notice(ranks.options.pretend))
    world = ranks.world(replay.opened.config, files)
    try:
        ledger, audience = Ledger(journal, replay, jobs), Audience(watch, _say)
        master = Master(ledger, files, world, audience, ranks.options.silence_seconds)
        with _stopped_by_signals(master, files):
            started = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
            master.run(started, tuple(sys.argv), ranks.options.backend, os.uname().nodename)
        journal.refuse_if_gone()
    finally:
        world.close()


def _say(text: str) -> None:
    print(f"aiperf-hpc: {text}", file=sys.stderr, flush=True)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise JournalError(unwritable(error, path)) from None


@contextmanager
def _removed_if_refused(files: RunFiles, replay: Replay) -> Iterator[None]:
    """Removes what a run wrote that is refused before its clock starts; what was there before stays. Of a
    group that died the logs are kept, and a run that was stopped can be resumed."""
    ours = [path for path in files.before_the_clock if not path.exists()]
    around = [path for path in (files.directory, *files.directory.parents) if not path.exists()]
    try:
        yield
    except (ConfigError, DataError, MissingExtra, WorldError) as error:
        released = any(leg.released is not None for leg in replay.legs)
        if not released and not isinstance(error, NotReady):
            _remove(ours, around)
        raise


def _remove(ours: Sequence[Path], around: Sequence[Path]) -> None:
    for path in ours:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    for folder in around:
        with suppress(OSError):  # somebody else has put something into it
            folder.rmdir()


@contextmanager
def _stopped_by_signals(master: Master, files: RunFiles) -> Iterator[None]:
    """The first Ctrl-C or the scheduler's warning ends the run with a result; a second Ctrl-C, at once."""

    def stop(number: int, frame: FrameType | None) -> None:
        master.stop("interrupted" if number == signal.SIGINT else TERMINATED)
        again = f"`aiperf-hpc resume {files.directory}`"
        what = f"nothing is measured yet; {again} starts it again"
        if master.released:
            ends = "the run ends for good" if number == signal.SIGINT else "the run stops here"
            what = f"{ends} and its result follows; if it does not, the job was killed: {again} continues it"
        # A launcher that has lost a rank sends it too and leaves a second. Not by print: one may run.
        line = f"{signal.Signals(number).name}: {what}\n"
        with suppress(OSError):  # nobody may be there to read it any more
            os.write(STDERR, f"aiperf-hpc: {line}".encode())
        signal.signal(signal.SIGINT, signal.default_int_handler)

    numbers = (signal.SIGINT, *heeded())
    before = [signal.signal(number, stop) for number in numbers]
    if early := noted():
        stop(early[0], None)
    try:
        yield
    finally:
        for number, handler in zip(numbers, before):
            signal.signal(number, handler)


class ProposalClock(Clock, Protocol):
    """A virtual clock, on which a proposal takes its time."""

    def propose(self) -> None:
        """The search has proposed a candidate."""


def play(
    config: Config,
    files: RunFiles,
    world: World,
    clock: ProposalClock,
    say: Callable[[str], None],
    silence_seconds: float,
    command: tuple[str, ...],
) -> Replay:
    """Runs the real master, journal and search in a given world by a given clock, as in a simulation. Raises
    AiperfError; what was written stays."""
    seed, replay = starting_graph(config), Replay()
    with new_journal(config, files, seed, Origin.SIMULATED, replay) as (journal, jobs):
        jobs.proposed = clock.propose
        ledger = Ledger(journal, replay, jobs, clock)
        master = Master(ledger, files, world, Audience(_unwatched, say), silence_seconds)
        started = datetime.fromtimestamp(clock.wall(), timezone.utc).isoformat(timespec="milliseconds")
        try:
            master.run(started, command)
        finally:
            world.close()
    return replay


def _unwatched(replay: Replay, now: float) -> None:
    """Nobody looks on: an hour passes in seconds."""
