"""One simulated run (the real master, journal and search on a simulated world), assumptions derived from a
measured run, and the comparison of that run with its simulation."""

from __future__ import annotations

import time
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import click

from aiperf.commands.messages import say
from aiperf.commands.optional_libraries import extra
from aiperf.commands.user_files import write_file
from aiperf.config import Config
from aiperf.errors import JournalError
from aiperf.host.code import code_hash
from aiperf.journal.file import read_journal
from aiperf.journal.mark import mark_of
from aiperf.journal.replay import Replay
from aiperf.journal.replay import replay as replayed
from aiperf.journal.run_files import RunFiles
from aiperf.pretending.assumptions import Assumptions, assumptions_toml
from aiperf.pretending.rank_report import refuse_no_examples
from aiperf.run.checks import virtual_config
from aiperf.run.run import play
from analysis.table import aligned
from nas.frozen import frozen

with extra("simulate"):
    from aiperf.simulation.calibrate import calibrate
    from aiperf.simulation.load_figures import SizeFigures, size_figures
    from aiperf.simulation.prediction import machine_of, prediction_rows, throughput, work_seconds
    from aiperf.simulation.simulated_machine import SimulatedFiles, SimulatedMachine
    from aiperf.simulation.simulated_world import SimulatedWorld

OTHERS = 4
"""Number of simulations of a run with other random seeds, in addition to the one with its own seed, which
predicts it. With another seed a search takes another path and finds networks of another size. The differences
between these simulations show how much of a result is luck."""


@frozen
class Simulated:
    """A simulated run: its journal, replayed, and how busy the parts of the machine were."""

    replay: Replay
    figures: SizeFigures
    """Load of the master, traffic and losses."""


def simulate_run(
    machine: SimulatedMachine,
    config: Config,
    assumptions: Assumptions,
    directory: Path,
    silence_seconds: float,
    measures_master: bool = False,
    repeat: int = 0,
) -> Simulated:
    """Simulates a run and writes its directory. `repeat` is the number of the draw of the machine's speeds
    and failures, for the same search. Raises AiperfError."""
    ranks = machine.devices_per_trial or machine.devices
    refuse_no_examples(config)
    config = virtual_config(config, ranks, assumptions.format)
    refuse_existing(directory)
    code = code_hash()
    world = SimulatedWorld(machine, assumptions, config.random_seed + repeat, code, measures_master)
    files = SimulatedFiles(directory, world.storage)
    text = assumptions_toml(assumptions)
    began = time.perf_counter()
    command = _command(machine, assumptions, text)
    replay = play(config, files, world, world.clock, say, silence_seconds, command)
    write_file(files.assumptions, text)
    took = time.perf_counter() - began
    return Simulated(replay, size_figures(replay, world, files.journal, machine.nodes, took))


def refuse_existing(directory: Path) -> None:
    """Raises JournalError for a directory with files, because a simulation would overwrite them."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise JournalError(f"{directory} already exists; remove it, or choose another --directory")


def _command(machine: SimulatedMachine, assumptions: Assumptions, text: str) -> tuple[str, ...]:
    """The command that the journal records, without the directory, so that equal simulations have equal
    journals."""
    return (
        *("aiperf-hpc", "simulate", "--nodes", str(machine.nodes), "--devices", str(machine.devices)),
        *("--devices-per-trial", str(machine.devices_per_trial), *(["--spread"] if machine.spread else [])),
        *("--assume", assumptions.name, sha256(text.encode()).hexdigest()),
    )


def run_directory(directory: Path, nodes: int, repeat: int) -> Path:
    """Directory of the simulation of a size; repeats are counted from 0."""
    return directory / f"{nodes}-nodes{f'-repeat-{repeat}' if repeat else ''}"


def assumptions_of_run(run: Path, otherwise: Assumptions) -> Assumptions:
    """The assumptions that follow from a run; those that do not are taken from `otherwise`. Prints which are
    which. Raises JournalError."""
    calibration = calibrate(read_journal(RunFiles(run).journal), otherwise)
    rows = [[each.names, "from the run" if each.known else "not known"] for each in calibration.found]
    names = aligned(rows).split("\n")
    click.echo("\n".join(f"{name}  {each.text}" for name, each in zip(names, calibration.found)))
    return calibration.assumptions


def show_prediction(run: Path, assumptions: Assumptions, directory: Path, silence_seconds: float) -> int:
    """Simulates a run that was made, and prints both. `directory` gets one run for each random seed. The exit
    code is always 0: a prediction that is off is a result."""
    measured = replayed(read_journal(RunFiles(run).journal))
    machine, was = machine_of(measured), throughput(measured)
    config = measured.opened.config
    modelled = []
    for seed in range(config.random_seed, config.random_seed + 1 + OTHERS):
        where = directory / f"seed-{seed}"
        simulated = simulate_run(
            machine, replace(config, random_seed=seed), assumptions, where, silence_seconds
        )
        modelled.append(throughput(simulated.replay))
    origin = measured.opened.origin
    if (mark := mark_of(origin)) is not None:
        click.echo(f"{run} is not a measurement. {mark.line}")
    click.echo(
        f"{origin.value}: {run}; modelled: the same random seed, {assumptions.name}; "
        f"others: {OTHERS} more random seeds"
    )
    own, *others = modelled
    rows = prediction_rows(was, own, others, work_seconds(measured, assumptions), origin.value)
    click.echo(aligned(rows))
    return 0
