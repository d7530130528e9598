"""What a rank writes down of its own work before it reports it: a second witness beside the journal."""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Protocol


class OwnLog(Protocol):
    """Takes what this rank did itself; what its group did is the sum over its ranks."""

    def steps(self, trial: int, attempt: int, segment: int, steps: int, images: int) -> None:
        """A block of steps, and the images of them that this rank trained on."""

    def answers(self, trial: int, attempt: int, segment: int, correct: int, of: int) -> None:
        """The validation that closed a segment: right answers, of the images that this rank judged."""


class NoLog:
    """Where nobody will read it."""

    def steps(self, trial: int, attempt: int, segment: int, steps: int, images: int) -> None:
        pass

    def answers(self, trial: int, attempt: int, segment: int, correct: int, of: int) -> None:
        pass


class StepLog:
    """A file of one JSON object a line, each flushed. From one thread."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", encoding="utf-8", buffering=1)

    def steps(self, trial: int, attempt: int, segment: int, steps: int, images: int) -> None:
        self._write(trial=trial, attempt=attempt, segment=segment, steps=steps, images=images)

    def answers(self, trial: int, attempt: int, segment: int, correct: int, of: int) -> None:
        self._write(trial=trial, attempt=attempt, segment=segment, correct=correct, of=of)

    def _write(self, **record: int) -> None:
        self._file.write(json.dumps(record) + "\n")

    def __enter__(self) -> StepLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
