"""The outside mark of language: a GPT of nanoGPT's size, trained by this program and by a loop of its own.

    python -m benchmarks.text.outside FILE [--repeats 3] [--steps 2000]

Both train the same network in fp32 on one thread, on the same text with the same steps, in turns; the loop is
loop.py. Of
the program it is one trial of a run, and seconds are those of its steps. nanoGPT's README
(github.com/karpathy/nanoGPT) states a validation loss of 1.88 nats a character for tiny Shakespeare after
2,000 such steps.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
from pathlib import Path

from aiperf.tasks.language.tally import Predicted
from benchmarks.script import answer_of, made_run

LOOP = Path(__file__).with_name("loop.py")
BATCH, EPOCHS = 12, 2
SETTINGS = {
    "data.size": 64,
    "data.validation_examples": 0,
    "search.population": 2,
    "limits.max_trials": 1,
    "limits.minutes": 0,
    "training.batch_size": BATCH,
    "training.epochs": f"[{EPOCHS}]",
    "training.optimizer": "adamw",
    "training.learning_rate": 1e-3,
    "training.momentum": 0.9,
    "training.weight_decay": 0.1,
    "training.gradient_clip": 1.0,
    "training.warmup": 0.05,
    "training.decay": "cosine",
    "training.label_smoothing": 0,
    "training.step": "eager",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2000)
    options = parser.parse_args()
    windows = options.steps * BATCH // EPOCHS
    found = []
    for seed in range(1, options.repeats + 1):
        own = _own(options.file, windows, seed)
        bare = answer_of(LOOP, options.file, options.steps, seed)
        found.append((*own, bare["nats"], bare["seconds"]))
        print(
            f"seed {seed}: program {own[0]:.4f} nats per byte in {own[1]:.1f} s, "
            f"loop {bare['nats']:.4f} in {bare['seconds']:.1f} s",
            flush=True,
        )
    difference = statistics.mean(each[0] - each[2] for each in found)
    ratio = statistics.median(each[3] / each[1] for each in found)
    print(
        f"mean difference {difference:+.4f} nats per byte; the program is {ratio:.3f} times as fast (medians)"
    )


def _own(file: Path, windows: int, seed: int) -> tuple[float, float]:
    """Nats per byte of its validation part, and the seconds of its steps."""
    settings = {**SETTINGS, "data.training_examples": windows}
    settings["training.validate_every_examples"] = EPOCHS * windows
    words = [
        "--preset",
        "text",
        "--data",
        file,
        "--seed",
        "gpt-4x128",
        "--random-seed",
        seed,
        "--format",
        "fp32",
    ]
    words += [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    with tempfile.TemporaryDirectory() as folder:
        run = made_run(Path(folder) / "run", *words)
    # On a slow machine more than one: a segment of the journal is no longer than some minutes.
    segments = [validated.segment for validated in run.attempts[0].validations]
    tally = segments[-1].tally
    assert isinstance(tally, Predicted)
    return tally.bits_per_byte * math.log(2), sum(segment.train_seconds for segment in segments)


if __name__ == "__main__":
    main()
