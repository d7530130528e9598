"""Language: at each byte of a text, the one that follows."""

from __future__ import annotations

from aiperf.errors import ConfigError
from aiperf.tasks.data import DataConfig
from aiperf.tasks.language.data import TextData
from aiperf.tasks.language.facts import TEXT_FACTS
from aiperf.tasks.language.known_texts import ENWIK9
from aiperf.tasks.language.tally import BITS_OF_A_BYTE, UNIT, Predicted
from aiperf.tasks.language.text_windows import TextWindows
from aiperf.tasks.task import Amount, ControlNetwork, Examples, Manifest, RankedLimits, Task
from aiperf.wording import percent
from nas.graph import Graph
from nas.head import BYTES, NextSymbol
from nas.morphisms.text import TEXT_MIX
from nas.text_seeds import TEXT_SEEDS, gpt2_small_bytes, gpt_4x128
from nas.tuning import text_space

WINDOW = 1_024
"""Bytes of a window in a ranked run and in the control on an accelerator: as long as GPT-2's context."""
CLIMB = ((WINDOW, 1), (WINDOW, 4))
"""On a processor: window and windows per step."""
SMALLER_CLIMB = ((64, 12),)
"""The climb of gpt-4x128: nanoGPT's window and batch on a processor, and no others, so that rates compare."""
WINDOWS = "windows of {:,} bytes"
CONTROL_BATCH = 32
"""Windows a step: 32,768 bytes keep an accelerator of today busy."""
MOST_ERROR = 0.20
"""1.6 bits per byte of enwik9. There gzip needs 2.6, bzip2 2.0, the best programs 0.9: Mahoney, "Large Text
Compression Benchmark"."""


def _generated(graph: Graph, parts: tuple[int, int, int]) -> DataConfig:
    """Generated text for an architecture. Raises ConfigError for one with another number of symbols."""
    if graph.classes != BYTES:
        raise ConfigError(f"generated text has {BYTES} symbols, and this seed {graph.classes}")
    return TextData("synthetic-text", 1, graph.input[0], BYTES, "", *parts)


def _tally(examples: int, size: int, error: float) -> Predicted:
    """The tally of a network with this error, as if all bytes were equally hard."""
    num_bytes = examples * size
    return Predicted(examples, round(error * BITS_OF_A_BYTE * UNIT * num_bytes), num_bytes)


def _error_text(error: float) -> str:
    """An error of 1 is shown as a bound, because a worse one counts as 1 as well."""
    bits = f"{error * BITS_OF_A_BYTE:.3f} bits per byte"
    return f"{percent(error)}, {bits}{' or more' if error >= 1 else ''}"


def _unlike_enwik9(manifest: Manifest) -> list[str]:
    """All of it, in windows of that length: no limit has made a part smaller."""
    if manifest.get("name") != ENWIK9.name or manifest.get("sha256") != ENWIK9.sha256:
        return [f"the text is not {ENWIK9.title}: its SHA-256 differs"]
    windows = TextWindows(ENWIK9.bytes, WINDOW)
    whole = {"training_examples": windows.training, "validation_examples": windows.validation}
    return [
        f"{key} is {manifest.get(key)!r}, not {value!r}"
        for key, value in {"size": WINDOW, **whole, **ENWIK9.facts({"size": WINDOW})}.items()
        if manifest.get(key) != value
    ]


def _training() -> object:
    from aiperf.tasks.language.training import TRAINING  # and with it torch

    return TRAINING


LANGUAGE = Task(
    name="language",
    example="window",
    amount=Amount("bytes", lambda size: size),
    data_class=TextData,
    head=NextSymbol,
    examples=lambda data: Examples((data.size,), data.classes, NextSymbol()),
    reads=lambda data: f"windows of {data.size} bytes of {data.name}, as numbers from 0 to 255",
    generated=_generated,
    optimizer="adamw",
    data=TEXT_FACTS,
    tally=_tally,
    error_text=_error_text,
    error_law="language",
    chance=lambda classes: 1.0,
    seeds=TEXT_SEEDS,
    morphisms=TEXT_MIX,
    space=text_space,
    untuned_version=3,  # before, heads could be wider than the stream
    tuned_version=4,
    products="linear layers and attention",
    in_aiperf1=False,
    control=ControlNetwork(
        name="GPT-2 small over bytes",
        short="GPT-2 small",
        sizes=(WINDOW,),
        size_text=WINDOWS,
        examples_text=WINDOWS,
        examples="windows",
        graph=lambda size: gpt2_small_bytes((size,), BYTES),
        batch_size=CONTROL_BATCH,
        climb=CLIMB,
        smaller=ControlNetwork(
            name="gpt-4x128 in place of GPT-2 small",
            short="gpt-4x128",
            sizes=(SMALLER_CLIMB[0][0],),
            size_text=WINDOWS,
            examples_text=WINDOWS,
            examples="windows",
            graph=lambda size: gpt_4x128((size,), BYTES),
            batch_size=SMALLER_CLIMB[0][1],
            climb=SMALLER_CLIMB,
        ),
    ),
    training=_training,
    ranked=RankedLimits(
        seed="llama-12x768",
        most_error=MOST_ERROR,
        control_size=WINDOW,
        data=f"{ENWIK9.title}, whole, in windows of {WINDOW:,} bytes",
        data_faults=_unlike_enwik9,
    ),
)
