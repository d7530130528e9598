"""Export of the trained networks of a run to files of other programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aiperf import __version__
from aiperf.commands.extras import extra
from aiperf.commands.options import writing
from aiperf.errors import AiperfError, ConfigError, DataError, JournalError
from aiperf.files import RunFiles
from aiperf.journal.mark import refuse_marked
from aiperf.journal.replay import Replay
from aiperf.tasks.registry import task_of
from nas.layers import MissingReading
from nas.portable.names import PortableError
from nas.portable.preparation import Preparation
from nas.portable.torch_file import torch_file, torch_state

if TYPE_CHECKING:
    from aiperf.training.kept_network import Kept


@dataclass(frozen=True)
class KeptTrial:
    """The network of a trial, with notes for the exported file."""

    number: int
    network: Kept
    told: Mapping[str, str]
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
    told = {
        "network": f"trial {number} of {run.opened.run_id}",
        "written by": f"aiperf-hpc {__version__}",
        "validation": "unknown" if best is None else best.segment.tally.text(),
        "trained in": config.training.format,
        "reads": task_of(config.data).reads(config.data),
    }
    if run.tested is not None and run.tested.trial == number:
        told["test"] = run.tested.tally.text()
    return KeptTrial(number, network, told, _preparation(run))


def _preparation(run: Replay) -> Preparation | None:
    """How an example becomes the input, if that is known; if it cannot be read here, a line says so."""
    from aiperf.training.found_network import preparation_of

    try:
        return preparation_of(run)
    except AiperfError as error:
        click.echo(
            f"aiperf-hpc: no prepare() in the file, for the data cannot be read here: {error}", err=True
        )
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
        text = torch_file(graph, trial.told, trial.preparation)
    except MissingReading as error:
        raise DataError(f"trial {trial.number}: {error}") from None
    weights = path.with_suffix(".safetensors")
    with writing(path):
        path.write_text(text, encoding="utf-8")
    with writing(weights):
        weights.write_bytes(plain_file(torch_state(graph, trial.network.weights)))
    click.echo(f"{path}\n{weights}")


def write_onnx(trial: KeptTrial, path: Path) -> None:
    """Writes the ONNX file. Raises DataError for a layer that cannot be exported, MissingExtra without the
    library."""
    with extra("onnx"):
        from nas.portable.onnx_file import onnx_file

        try:
            about = {**trial.told, **(trial.preparation.texts if trial.preparation else {})}
            content = onnx_file(trial.network.graph, trial.network.weights, about)
        except (MissingReading, PortableError) as error:
            raise DataError(f"trial {trial.number}: {error}") from None
    with writing(path):
        path.write_bytes(content)
    click.echo(str(path))
