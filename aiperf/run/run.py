"""A run, from its configuration to its last line: everything that touches the world."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from types import FrameType
from typing import Protocol

from aiperf import __version__
from aiperf.clock import Clock
from aiperf.code import code_hash
from aiperf.config import BoundsConfig, Config, load_preset, preset_names, to_toml, with_overrides
from aiperf.errors import ConfigError, DataError, JournalError, MissingExtra, NotReady, WorldError
from aiperf.files import RunFiles
from aiperf.journal.events import TERMINATED, Line, Opened, Origin
from aiperf.journal.file import RULES_VERSION, VERSION, JournalWriter
from aiperf.journal.replay import Replay
from aiperf.names import fingerprint, is_hidden, new_salt
from aiperf.os_error import unwritable
from aiperf.pretending.rank_report import pretending_notice, refuse_no_examples, refuse_notary
from aiperf.proposing.jobs import Jobs
from aiperf.proposing.proposals import libraries, morphism_mix, new_search, new_tuner, with_tuner
from aiperf.ranks.ranks import Ranks
from aiperf.ranks.world import World
from aiperf.rules.ending import can_go_on
from aiperf.run.ledger import Ledger
from aiperf.run.master import Audience, Master, Watch
from aiperf.run.origins import refuse_edited, refuse_other_origin, refuse_other_program, write_assumptions
from aiperf.scheduler_warning import heeded, noted
from aiperf.secret_shapes import without_secrets, without_tokens
from aiperf.tasks.registry import task_of
from aiperf.tasks.task import Examples
from aiperf.wire.formats import AUTO, with_format
from aiperf.wire.layout import refuse_uneven_batch
from nas.graph import Graph
from nas.layers import ShapeError
from nas.record import graph_from_json, graph_to_json
from nas.search.growth import too_narrow
from nas.search.search import why_it_cannot_grow
from nas.seeds import SeedError, resolve_seed

STDERR = 2
"""The number of its file: a signal handler may write to it, but not print."""


def new_run_id(config: Config) -> str:
    return f"{datetime.now().strftime('%Y%m%d-%H%M%S')}-{Path(config.preset).stem}"


def starting_graph(config: Config) -> Graph:
    """The seed of a configuration. Raises ConfigError when it does not fit the data."""
    task = task_of(config.data)
    wanted = task.examples(config.data)
    try:
        graph = resolve_seed(config.seed_architecture, wanted.input, wanted.classes, task.seeds)
    except SeedError as error:  # it names the seed or the file
        raise ConfigError(f"seed_architecture: {error}") from None
    except ShapeError as error:
        raise ConfigError(f"seed_architecture {config.seed_architecture!r}: {error}") from None
    if (reads := Examples.of(graph)) != wanted:
        raise ConfigError(
            f"seed_architecture {config.seed_architecture!r} is for {reads.text}; the data has {wanted.text}"
        )
    if not graph.num_parameters:
        raise ConfigError(f"seed_architecture {config.seed_architecture!r} has no weights to train")
    if in_vain := graph.counted_in_vain:
        raise ConfigError(
            f"seed_architecture {config.seed_architecture!r}: {in_vain}; nobody computes most of what "
            "is counted of it: use a smaller kernel, larger images or fewer experts"
        )
    return graph


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
        search=task_of(config.data).search_version(config.tuning.name),
        origin=origin,
        rules=RULES_VERSION,
    )


def check_run(config: Config, ranks: Ranks) -> tuple[Config, Graph, str]:
    """The configuration as this installation and these ranks can run it, its seed, and a line on the tuner.
    Raises AiperfError for what is missing or does not fit, before anything is written."""
    if ranks.options.pretend:
        refuse_no_examples(config)
        refuse_notary(config)
    config, told = with_tuner(config)
    seed = starting_graph(config)
    new_search(config, seed), new_tuner(config)
    _refuse_no_growth(config, seed)
    ranks.places(config)
    return with_format(config, ranks.first_devices), seed, told


def _refuse_no_growth(config: Config, seed: Graph) -> None:
    """A run of several trials would end after the first one."""
    name, alone = config.seed_architecture, config.limits.max_trials == 1
    if not alone and (reason := why_it_cannot_grow(seed, morphism_mix(config))):
        raise ConfigError(
            f"seed_architecture {name!r} cannot grow: {reason}; choose another seed, or set "
            "limits.max_trials=1 to train it alone"
        )
    if not alone and (round_ := too_narrow(seed, config.search.bounds, morphism_mix(config))):
        raise ConfigError(
            f"search.bounds: nothing that was tried grows from the seed {name!r} into the bounds of round "
            f"{round_}; widen them, or set search.bounds.growth_rounds=0 with the other bounds around 1"
        )


def begin(config: Config, files: RunFiles, ranks: Ranks, watch: Watch) -> Replay:
    """A new run in a directory of its own. Raises AiperfError before anything is measured; of a run that is
    refused before its clock starts nothing is left."""
    _refuse_secrets(config)
    config, seed, told = check_run(config, ranks)
    if not ranks.options.pretend:
        config.data.refuse_no_folder()  # each worker would, once it has started
        if ranks.masters_host_trains:
            config.data.refuse_absent()
    for line in filter(None, (told, _of_other_bounds(config))):
        _say(line)
    origin = Origin.PRETENDED if ranks.options.pretend else Origin.MEASURED
    replay = Replay()
    with (
        _removed_if_refused(files, replay),
        new_journal(config, files, seed, origin, replay) as (journal, jobs),
    ):
        write_assumptions(ranks.options.pretend, files)
        _leg(files, ranks, journal, replay, jobs, watch)
    return replay


def _refuse_secrets(config: Config) -> None:
    """The configuration is recorded as it is used, so nothing can be left out of it."""
    named = {**vars(config), **{f"data.{name}": value for name, value in vars(config.data).items()}}
    for name, value in named.items():
        # A folder may be named by a hash, and its path is hidden in the journal.
        without = without_tokens if name in ("data.path", "data.stage") else without_secrets
        if isinstance(value, str) and without(value) != value:
            raise ConfigError(
                f"{name} looks like a secret, such as a token or a password, or contains one, and the "
                "configuration is recorded in the journal; give it without the secret"
            )


def _of_other_bounds(config: Config) -> str:
    """Says that a seed is not searched within the bounds of its preset, which are those of the preset's
    own."""
    if config.preset not in preset_names() or config.search.bounds != BoundsConfig():
        return ""
    preset = load_preset(config.preset)
    if preset.search.bounds == BoundsConfig() or preset.seed_architecture == config.seed_architecture:
        return ""
    name = config.seed_architecture
    return f"search.bounds of the preset {config.preset} are for its own seed; {name} has the default bounds"


@contextmanager
def new_journal(
    config: Config, files: RunFiles, seed: Graph, origin: Origin, replay: Replay
) -> Iterator[tuple[JournalWriter, Jobs]]:
    """The journal of a new run and its jobs; `replay` has its first line already. A simulated run has no
    names to hide."""
    salt = "" if origin is Origin.SIMULATED else new_salt()
    with JournalWriter.begin(files, salt) as journal:
        _write_config(config, files)
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
        _refuse_unknown_place(opened.config, files)
        refuse_other_program(opened, files)
        refuse_other_origin(replay, ranks, files)
        refuse_edited(opened.config, files)
        _leg(files, ranks, journal, replay, jobs[0], watch)
    return replay


def _refuse_unknown_place(config: Config, files: RunFiles) -> None:
    """Raises JournalError if the private file lacks the line with a folder of the data."""
    for name in ("path", "stage"):
        if is_hidden(getattr(config.data, name)):
            raise JournalError(
                f"{files.private} lacks the line with data.{name}, which the journal hides; put the whole "
                "file back to continue the run, or start a new run"
            )


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


def _write_config(config: Config, files: RunFiles) -> None:
    try:
        files.config.write_text(to_toml(config), encoding="utf-8")
    except OSError as error:
        raise JournalError(unwritable(error, files.config)) from None


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
        what = "nothing is measured yet; start again, or remove it"
        if master.released:
            ends = "the run ends for good" if number == signal.SIGINT else "the run stops here"
            what = f"{ends} and its result follows; if it does not, the job was killed"
        # A launcher that has lost a rank sends it too and leaves a second. Not by print: one may run.
        told = f"{signal.Signals(number).name}: {what}: aiperf-hpc resume {files.directory}\n"
        with suppress(OSError):  # nobody may be there to read it any more
            os.write(STDERR, f"aiperf-hpc: {told}".encode())
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


def virtual_config(config: Config, ranks_of_a_group: int, format: str) -> Config:
    """The configuration as a simulation can run it, neither ranked nor notarised. `format` replaces "auto".
    Raises AiperfError if it cannot be run."""
    config, _ = with_tuner(replace(config, ranked=False, notary=False))
    if config.training.format == AUTO:
        config = with_overrides(config, {"training.format": format})
    refuse_uneven_batch(config.training.batch_size, ranks_of_a_group)
    seed = starting_graph(config)
    new_search(config, seed), new_tuner(config)
    return config


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
