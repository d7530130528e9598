"""Assumptions derived from a run, and the comparison of a run with its simulation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from aiperf.commands.extras import extra
from aiperf.commands.simulated.assuming import chosen
from aiperf.commands.simulated.simulating import simulate_run
from aiperf.files import RunFiles
from aiperf.journal.file import read_journal
from aiperf.journal.mark import mark_of
from aiperf.journal.replay import replay as replayed
from aiperf.pretending.assumptions import Assumptions
from analysis.table import aligned

with extra("simulate"):
    from aiperf.simulation.calibrate import calibrate
    from aiperf.simulation.prediction import machine_of, prediction_rows, throughput, work_seconds

OTHERS = 4
"""Number of simulations of a run with other random seeds, in addition to the one with its own seed, which
predicts it. With another seed a search takes another path and finds networks of another size. The differences
between these simulations show how much of a result is luck."""


def calibrated(run: Path) -> Assumptions:
    """The assumptions that follow from a run. Prints which numbers are from the run, and which are unknown.
    Raises JournalError."""
    found = calibrate(read_journal(RunFiles(run).journal), chosen(()))
    rows = [[each.names, "from the run" if each.known else "not known"] for each in found.found]
    names = aligned(rows).split("\n")
    click.echo("\n".join(f"{name}  {each.text}" for name, each in zip(names, found.found)))
    return found.assumptions


def show_prediction(run: Path, assumptions: Assumptions, directory: Path, silence_seconds: float) -> int:
    """Simulates a run that was made, and prints both."""
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
