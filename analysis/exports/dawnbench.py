"""A run as an entry of DAWNBench's training tasks: a JSON object, and a TSV of accuracy over time.

The form is that of github.com/stanford-futuredata/dawn-bench-entries; docs/beyond.md says what a row is here.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

from aiperf.errors import AiperfError
from aiperf.journal.mark import refuse_marked
from aiperf.journal.replay import Replay
from aiperf.tasks.images.known_sets import CIFAR_10, IMAGENET_1K, known_set
from aiperf.tasks.images.tally import Classified
from aiperf.tasks.images.task import IMAGES
from analysis.exports.mllog import refuse_invalid
from analysis.exports.result import answered
from analysis.readings.hosts import num_nodes
from analysis.readings.judgement import Judged
from analysis.readings.progress import falls
from analysis.readings.run_tables import devices_and_hosts, software
from analysis.readings.score_figures import task_of_run
from launch.price import DOLLARS, Price
from nas.frozen import frozen

VERSION = "v1.0"
"""DAWNBench's version of its rules."""
TASKS = {CIFAR_10.title: "CIFAR10", IMAGENET_1K.title: "ImageNet"}
"""DAWNBench's tasks of images, by the set's name here."""


@frozen
class DawnbenchEntry:
    """The two files of an entry."""

    name: str
    """Name of both files, without the ending."""
    record: dict[str, Any]
    """What is written as JSON."""
    rows: list[tuple[float, float, float]]
    """One for each fall of the best validation error: epochs of the whole search, hours, top-1 accuracy in
    per cent."""

    @property
    def tsv(self) -> str:
        """The accuracies over time, tab-separated."""
        lines = [f"{epoch:.6g}\t{hours:.9g}\t{accuracy:.6g}\n" for epoch, hours, accuracy in self.rows]
        return "epoch\thours\ttop1Accuracy\n" + "".join(lines)


def dawnbench(judged: Judged, author: str, email: str, price: Price | None) -> DawnbenchEntry:
    """Raises AiperfError for a run that is not VALID, one that is not of images, and a price not in USD.
    `author` and `email` are written as given; `price` is that of a node, None if it is not stated."""
    replay = judged.replay
    refuse_marked(replay.opened.origin, judged.files.directory, "be written as a DAWNBench entry")
    refuse_invalid(judged, "entry")
    tested = replay.tested
    task = task_of_run(replay)
    if task is not IMAGES or tested is None or not isinstance(tested.tally, Classified):
        raise AiperfError(
            f"{judged.files.directory}: DAWNBench has no task like {task.name}; give a run of images"
        )
    if price is not None and price.currency != DOLLARS:
        raise AiperfError(f"the price is {price}; DAWNBench's costPerHour is in USD, as 12.5USD/node-hour")
    nodes = num_nodes(replay)
    validation = replay.manifest.get("validation_examples")
    data, known, hardware = replay.manifest, known_set(replay.manifest), devices_and_hosts(replay)
    record = {
        "version": VERSION,
        "author": author,
        "authorEmail": email,
        "framework": f"PyTorch {software(replay).get('torch', 'unknown')}",
        "model": f"aiperf-hpc {replay.opened.program}, trial {tested.trial} of a search",
        "hardware": hardware,
        **({} if price is None else {"costPerHour": price.money(nodes)}),
        "timestamp": _date(replay),
        "misc": {
            "task": TASKS.get(known.title if known else "", "none of DAWNBench's"),
            "data": known.title if known else str(data.get("name")),
            # DAWNBench's rows are of the test images, which here are used once only: so it is said what these
            # are of.
            "accuracies of the TSV": f"of the best so far, on {validation} validation images",
            "test top1Accuracy": 100 * tested.tally.accuracy,
            **({} if tested.top5 is None else {"test top5Accuracy": 100 * tested.top5 / tested.tally.of}),
            "test images": tested.tally.of,
            "nodes": nodes,
            "epoch": "passes over the training images by all networks of the search",
            "run": replay.opened.run_id,
            "journal": replay.last_chain,
            "verdict": answered(judged),
        },
    }
    # Their file names are author, model, hardware and framework.
    words = (author, f"aiperf-hpc-trial{tested.trial}", hardware.replace(" × ", "x"), "pytorch")
    rows = [(fall.epochs or 0.0, fall.seconds / 3600, 100 * (1 - fall.error)) for fall in falls(replay)]
    return DawnbenchEntry("_".join(map(_word, words)), record, rows)


def write_entry(entry: DawnbenchEntry, folder: Path) -> list[Path]:
    """NAME.json and NAME.tsv. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"json": json.dumps(entry.record, indent=4, ensure_ascii=False) + "\n", "tsv": entry.tsv}
    for ending, text in texts.items():
        (folder / f"{entry.name}.{ending}").write_text(text, encoding="utf-8")
    return [folder / f"{entry.name}.{ending}" for ending in texts]


def _date(replay: Replay) -> str:
    """Day on which the run started. DAWNBench means the day of submission, which is not known here."""
    try:
        return datetime.fromisoformat(replay.legs[0].began.started).date().isoformat()
    except ValueError:
        return "unknown"


def _word(text: str) -> str:
    """The text as a part of a file's name."""
    return re.sub(r"[^A-Za-z0-9.+-]+", "-", text).strip("-") or "unknown"
