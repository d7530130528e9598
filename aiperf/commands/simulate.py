"""`simulate`: the real master on a virtual clock, for what search, dispatch and storage cost on machines that
nobody has.

The master, the search and the journal are those of a run; only the groups are played. docs/scaling.md says
how near the predictions came to runs that were made, and what the machine models rest on.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from aiperf.commands.arguments import PATH, Number, Whole, node_counts, only_with
from aiperf.commands.compare import refuse_no_table, write_table
from aiperf.commands.messages import say
from aiperf.commands.optional_libraries import extra
from aiperf.commands.user_files import write_file, writing
from aiperf.config import Config, load_preset, parse_setting, with_overrides
from aiperf.errors import AiperfError, ConfigError
from aiperf.pretending.assumptions import Assumptions, assumed, assumption_names, assumptions_toml
from aiperf.pretending.rank_report import refuse_notary
from aiperf.wording import counted, percent
from analysis.table import aligned
from nas.record import RecordError, decode

DEFAULT_MACHINE = "h100"
"""The machine model without --assume: published figures of a common accelerator, not of a machine of ours."""
STUDY_ONLY = (
    *("devices", "devices_per_trial", "spread", "preset", "hours", "random_seed", "repeats", "same_search"),
    *("settings", "measure_master"),
)
"""Options that a run whose result is predicted brings itself."""


@click.command()
@click.option("--nodes", metavar="N,N,…", help="Sizes in nodes, such as 4,8,16,32,64,128,256,512,1024,4096.")
@click.option("--devices", type=Whole(1), default=8, help="Devices per node.")
@click.option(
    "--devices-per-trial",
    type=Whole(0),
    default=0,
    help="Devices that train one trial together; 0: as many as a node has.",
)
@click.option(
    "--spread",
    is_flag=True,
    help="Lay the devices of each trial over as many and as distant nodes as possible.",
)
@click.option("--preset", default="ranked", metavar="NAME|FILE", help="Preset; no data is read.")
@click.option(
    "--hours", type=Number(min=0, min_open=True), help="Length of the span [h]; default: the preset's."
)
@click.option("--random-seed", type=Whole(0), help="Random seed of the search, the speeds and the failures.")
@click.option(
    "--repeats",
    type=Whole(1),
    default=1,
    help="Simulations of each size, each with the next random seed; shows the spread of sustained OPS.",
)
@click.option(
    "--same-search",
    is_flag=True,
    help="With --repeats: draw only speeds and failures again, and keep the random seed of the search.",
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Any other key of the preset.")
@click.option(
    "--assume",
    multiple=True,
    metavar="NAME|FILE|PART.NAME=NUMBER",
    help=f"Machine model: {', '.join(assumption_names())} or a TOML file; repeat for single numbers, such "
    f"as failures.node_hours=512.",
)
@click.option(
    "--measure-master",
    is_flag=True,
    help="Use the master's real time on this processor instead of the assumed one.",
)
@click.option(
    "--silence-seconds",
    type=Number(min=1),
    default=60.0,
    help="A group that is silent for this long [s] is lost.",
)
@click.option("--calibrate", type=PATH, metavar="RUN", help="Take the machine model from this run.")
@click.option("--write", type=PATH, metavar="FILE", help="Write the machine model to this TOML file.")
@click.option(
    "--predict",
    type=PATH,
    metavar="RUN",
    help="Simulate this run and compare; default: the run of --calibrate.",
)
@click.option("--directory", type=PATH, default="simulation", help="Directory of the study.")
def simulate(
    nodes: str | None,
    devices: int,
    devices_per_trial: int,
    spread: bool,
    preset: str,
    hours: float | None,
    random_seed: int | None,
    repeats: int,
    same_search: bool,
    settings: tuple[str, ...],
    assume: tuple[str, ...],
    measure_master: bool,
    silence_seconds: float,
    calibrate: Path | None,
    write: Path | None,
    predict: Path | None,
    directory: Path,
) -> int:
    """Model the overhead of search, dispatch and storage by size: the real master on a virtual clock.

    Nothing is trained and no data is read; all durations come from a machine model. Each size gets a run
    directory whose journal says SIMULATED; `score`, `report` and `scaling` read it like any other. The same
    random seed gives the same journal.
    """
    with extra("simulate"):
        from aiperf.commands import simulated_run
        from aiperf.simulation.load_figures import SizeFigures, columns, modelled, spread_rows
        from aiperf.simulation.simulated_machine import SimulatedMachine
    if nodes is None and calibrate is None and predict is None:
        raise click.UsageError(
            "give the sizes with --nodes, or a run with --calibrate", click.get_current_context()
        )
    only_with("a study with --nodes", nodes is not None, *STUDY_ONLY)
    only_with("a single run; --nodes is for a study", nodes is None, "predict")
    calibrated = None
    if calibrate is not None:
        calibrated = simulated_run.assumptions_of_run(calibrate, assumed(DEFAULT_MACHINE))
    assumptions = chosen_assumptions(assume, calibrated)
    if write is not None:
        _write(write, assumptions)
    if nodes is None:
        run = predict or calibrate
        assert run is not None
        return simulated_run.show_prediction(run, assumptions, directory, silence_seconds)
    refuse_no_table()
    config = _config(preset, hours, random_seed, settings)
    machines = [SimulatedMachine(size, devices, devices_per_trial, spread) for size in _sizes(nodes)]
    only_with("several simulations of each size, with --repeats", repeats > 1, "same_search")
    first = config.random_seed
    runs = [(machine, repeat) for machine in machines for repeat in range(repeats)]
    of_run = {
        (machine.nodes, repeat): simulated_run.run_directory(directory, machine.nodes, repeat)
        for machine, repeat in runs
    }
    for where in of_run.values():  # all of them, before the first takes its minutes
        simulated_run.refuse_existing(where)
    click.echo(f"SIMULATED, nothing was measured; machine model: {assumptions.name} ({assumptions.source})")
    click.echo(modelled(assumptions))
    shown: dict[tuple[int, int], SizeFigures] = {}
    for machine, repeat in runs:
        try:
            figures = simulated_run.simulate_run(
                machine,
                # One search leaves only the machine to vary; several show the luck of the search as well.
                config if same_search else replace(config, random_seed=first + repeat),
                assumptions,
                of_run[machine.nodes, repeat],
                silence_seconds,
                measure_master,
                repeat if same_search else 0,
            ).figures
        except AiperfError as error:  # the other sizes are not lost
            say(f"{counted(machine.nodes, 'node')}: {error}")
            continue
        shown[machine.nodes, repeat] = figures
        size = f"{counted(machine.nodes, 'node')} × {devices}{f', repeat {repeat}' if repeat else ''}"
        took = f"simulated in {figures.simulated_seconds:.1f} s"
        say(f"{size}: {took}, utilisation {percent(figures.utilisation)}")
    if not shown:
        raise AiperfError("no size could be simulated")
    # The table is of one simulation per size: repeats of the smallest would change the base of all.
    firsts = {run: figures for run, figures in shown.items() if run[1] == 0}
    left_out = write_table([of_run[run] for run in firsts], directory, published=False, tolerant=True)
    if firsts:
        click.echo(_side_by_side([columns(each, assumptions.messages) for each in firsts.values()]))
    if repeats > 1:
        drawn = "draws of the machine, one search" if same_search else "random seeds"
        click.echo(f"\nsustained OPS over {repeats} {drawn}, from {first}")
        click.echo(aligned(spread_rows(list(shown.values()))))
    rows = [{"origin": "simulated", "repeat": run[1], **asdict(each)} for run, each in shown.items()]
    _write_figures(directory / "simulation.csv", rows)
    return int(len(shown) < len(runs) or left_out > 0)


def chosen_assumptions(words: Sequence[str], otherwise: Assumptions | None = None) -> Assumptions:
    """The assumptions that these words of --assume state: the name of a machine or a file, and changes of
    single numbers. Without a name, `otherwise` is used. Raises ConfigError."""
    names = [word for word in words if "=" not in word]
    if len(names) > 1 or (names and otherwise is not None):
        several = " and ".join([*(["what --calibrate found"] if otherwise is not None else []), *names])
        raise ConfigError(
            f"--assume: {several}; give one name or file; write single numbers as PART.NAME=NUMBER"
        )
    assumptions = otherwise or assumed(names[0] if names else DEFAULT_MACHINE)
    for word in words:
        if "=" in word:
            assumptions = _with(assumptions, word)
    return assumptions


def _with(assumptions: Assumptions, setting: str) -> Assumptions:
    """The assumptions with one number changed, which their name then includes. Raises ConfigError for a
    number that the machine model does not have, or that cannot be."""
    key, value = parse_setting(setting)
    part, _, name = key.partition(".")
    record: dict[str, Any] = asdict(assumptions)
    if not isinstance(record.get(part), dict) or name not in record[part]:
        known = [
            f"{one}.{each}" for one, inner in record.items() if isinstance(inner, dict) for each in inner
        ]
        raise ConfigError(f"--assume {setting}: unknown key {key}; known: {', '.join(known)}")
    record[part][name] = value
    record["name"] = f"{assumptions.name}, {key} = {value}"
    try:
        return decode(Assumptions, record)
    except (ValueError, RecordError) as error:
        raise ConfigError(f"--assume {setting}: {error}") from None


def _config(preset: str, hours: float | None, random_seed: int | None, settings: tuple[str, ...]) -> Config:
    """The configuration of a study, from its options. Raises ConfigError."""
    length = {} if hours is None else {"limits.minutes": 60 * hours}
    seed = {} if random_seed is None else {"random_seed": random_seed}
    config = with_overrides(load_preset(preset), {**length, **seed, **dict(map(parse_setting, settings))})
    refuse_notary(config)
    return config


def _sizes(text: str) -> list[int]:
    """The numbers of nodes, each once, from the smallest. Raises ConfigError."""
    sizes = node_counts(text)
    if len(set(sizes)) < len(sizes):
        raise ConfigError(f"--nodes is {text!r}; give each size once")
    return sorted(sizes)


def _side_by_side(sizes: Sequence[Mapping[str, str]]) -> str:
    """A row for each figure, a column for each size."""
    return aligned([[name, *(size[name] for size in sizes)] for name in sizes[0]])


def _write(path: Path, assumptions: Assumptions) -> None:
    """Writes a machine model where --assume can read it. Raises AiperfError rather than overwrite a file."""
    if path.suffix != ".toml":
        raise ConfigError(f"--write {path}: the name must end in .toml, so that --assume can read it")
    if path.exists():
        raise AiperfError(f"{path} already exists; remove it, or choose another name")
    click.echo(write_file(path, assumptions_toml(assumptions)))


def _write_figures(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Writes all figures of all simulations as a table, one row per simulation."""
    with writing(path), path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
