"""`graph`: the architecture of a trial, and its trained network in files of other programs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aiperf import __version__
from aiperf.commands.arguments import PATH, Whole, output_option, run_or_package_argument
from aiperf.commands.messages import say
from aiperf.commands.optional_libraries import extra
from aiperf.commands.user_files import opened, write_file
from aiperf.errors import AiperfError, ConfigError, DataError, JournalError
from aiperf.journal.file import read_journal
from aiperf.journal.mark import refuse_marked
from aiperf.journal.replay import Replay, replay
from aiperf.journal.run_files import RunFiles
from aiperf.score.lineage import rebuild
from aiperf.tasks.registry import task_of
from nas.frozen import frozen
from nas.layers import MissingReading
from nas.portable.identifiers import PortableError
from nas.portable.preparation import Preparation
from nas.portable.torch_file import torch_file, torch_state
from nas.record import graph_to_json

if TYPE_CHECKING:
    from aiperf.training.kept_network import Kept


def _trial(context: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """The number of a trial; None for the best one, which may be named by that word."""
    return None if value in (None, "best") else int(Whole(0)(value, param, context))


@click.command()
@run_or_package_argument
@click.argument("trial", callback=_trial, required=False)
@output_option("Write the JSON to this file.")
@click.option(
    "--torch",
    "torch_path",
    metavar="NAME.py",
    type=PATH,
    help="Write the trained network as a Python file that needs only torch and safetensors, and its weights "
    "as NAME.safetensors.",
)
@click.option(
    "--onnx", "onnx_path", metavar="FILE", type=PATH, help="Write the trained network as an ONNX file."
)
def graph(
    path: Path, trial: int | None, output: Path | None, torch_path: Path | None, onnx_path: Path | None
) -> None:
    """Rebuild the architecture of a trial from the journal, as JSON; with --torch or --onnx, write the
    network with its trained weights.

    `count --seed FILE` and `run --seed FILE` read the JSON. TRIAL defaults to the best network. A run keeps
    the weights of the best network and of trials that may still become parents.
    """
    with opened(path) as files:
        run = replay(read_journal(files.journal))
        number = best_trial(run, files) if trial is None else trial
        if torch_path or onnx_path:
            if output is not None:
                raise click.UsageError("-o is for the JSON only", click.get_current_context())
            network = kept(run, files, number)
            if torch_path:
                write_torch(network, torch_path)
            if onnx_path:
                write_onnx(network, onnx_path)
            return
        text = json.dumps(graph_to_json(rebuild(run, number)), indent=1) + "\n"
    if output is None:
        click.echo(text, nl=False)
    else:
        click.echo(str(write_file(output, text)))


@frozen
class KeptTrial:
    """The network of a trial, with notes for the exported file."""

    number: int
    network: Kept
    notes: Mapping[str, str]
    """What a reader of the exported file should know, by topic."""
    preparation: Preparation | None
    """How an example becomes the network's input, if it is known."""


def best_trial(run: Replay, files: RunFiles) -> int:
    """Number of the best trial. Raises JournalError if no network has been validated."""
    if run.best is None:
        raise JournalError(f"{files.journal}: no network has been validated yet, so there is no best one")
    return run.best.number


def kept(run: Replay, files: RunFiles, number: int) -> KeptTrial:
    """The kept network of a trial. Raises AiperfError for a run that trained nothing, and for a trial whose
    weights are missing."""
    with extra("run"):
        from aiperf.training.found_network import kept_trial
    refuse_marked(run.opened.origin, files.directory, "be written with weights")
    network = kept_trial(run, files, number)
    config, best = run.opened.config, run.trials[number].best_validation
    notes = {
        "network": f"trial {number} of {run.opened.run_id}",
        "written by": f"aiperf-hpc {__version__}",
        "validation": "unknown" if best is None else best.segment.tally.text(),
        "trained in": config.training.format,
        "reads": task_of(config.data).reads(config.data),
    }
    if run.tested is not None and run.tested.trial == number:
        notes["test"] = run.tested.tally.text()
    return KeptTrial(number, network, notes, _preparation(run))


def _preparation(run: Replay) -> Preparation | None:
    """How an example becomes the input, if that is known; if it cannot be read here, a line says so."""
    from aiperf.training.found_network import preparation_of

    try:
        return preparation_of(run)
    except AiperfError as error:
        say(f"no prepare() in the file, for the data cannot be read here: {error}")
        return None


def write_torch(trial: KeptTrial, path: Path) -> None:
    """Writes the Python file, and the weights next to it. Raises ConfigError for another file extension,
    DataError for a layer that cannot be exported."""
    if path.suffix != ".py":
        raise ConfigError(f"--torch {path}: a Python file ends with .py")
    with extra("run"):
        from aiperf.training.kept_network import plain_file
    graph = trial.network.graph
    try:
        text = torch_file(graph, trial.notes, trial.preparation)
    except MissingReading as error:
        raise DataError(f"trial {trial.number}: {error}") from None
    weights = plain_file(torch_state(graph, trial.network.weights))
    click.echo(write_file(path, text))
    click.echo(write_file(path.with_suffix(".safetensors"), weights))


def write_onnx(trial: KeptTrial, path: Path) -> None:
    """Writes the ONNX file. Raises DataError for a layer that cannot be exported, MissingExtra without the
    library."""
    with extra("onnx"):
        from nas.portable.onnx_file import onnx_file

        try:
            about = {**trial.notes, **(trial.preparation.texts if trial.preparation else {})}
            content = onnx_file(trial.network.graph, trial.network.weights, about)
        except (MissingReading, PortableError) as error:
            raise DataError(f"trial {trial.number}: {error}") from None
    click.echo(write_file(path, content))
