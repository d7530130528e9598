"""The system under test as LoadGen calls it, with a stopwatch of our own around each query.

Samples of one query, or of a stream of queries one after the other, are answered in the thread that LoadGen
calls from, as MLPerf's reference implementations do; those of the Server scenario in a thread beside it,
which takes whatever waits.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from array import array
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from aiperf.device import Device
from aiperf.inference.answers import Answering
from aiperf.inference.library import Library

FAILED = 70
"""The exit code of a process whose system failed inside LoadGen."""


class System:
    """Answers in the thread that LoadGen calls from."""

    def __init__(
        self,
        loadgen: Any,
        answering: Answering,
        library: Library,
        device: Device,
        format: str,
        most: int,
        per_sample: bool,
    ) -> None:
        """`most`: samples that the network takes at once. `per_sample`: each sample of a query has a latency
        of its own; otherwise the query has one."""
        self.loadgen, self.answering, self.library = loadgen, answering, library
        self.device, self.format, self.most, self.per_sample = device, format, most, per_sample
        self.seconds = array("d")
        """Latencies by our own stopwatch since `start`."""

    def computing(self) -> ExitStack:
        """Around all work of a thread: so weights are cast to the format once, not with each query."""
        stack = ExitStack()
        stack.enter_context(torch.inference_mode())
        stack.enter_context(self.device.autocast(self.format))
        return stack

    def start(self) -> None:
        self.seconds = array("d")

    def issue(self, ids: Sequence[int], places: Sequence[int]) -> None:
        began = perf_counter()
        with _ending_the_process():
            for start in range(0, len(ids), self.most):
                answers = self.answering(self.library.samples(places[start : start + self.most]))
                ended = perf_counter()
                self.complete(ids[start : start + self.most], answers)
                if self.per_sample:
                    self.seconds.extend([ended - began] * len(answers))
            if not self.per_sample:
                self.seconds.append(ended - began)

    def complete(self, ids: Sequence[int], answers: Tensor) -> None:
        """LoadGen copies what it wants of the answers before this returns."""
        size = answers.element_size() * answers[0].numel()
        first, response = answers.data_ptr(), self.loadgen.QuerySampleResponse
        self.loadgen.QuerySamplesComplete(
            [response(each, first + row * size, size) for row, each in enumerate(ids)]
        )

    def close(self) -> None:
        """No query follows."""


class QueuedSystem(System):
    """Answers beside LoadGen's thread, which goes on to issue queries when they are due."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._waiting: queue.SimpleQueue[tuple[int, int, float] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="answers")
        self._thread.start()

    def issue(self, ids: Sequence[int], places: Sequence[int]) -> None:
        began = perf_counter()
        for each, place in zip(ids, places):
            self._waiting.put((each, place, began))

    def close(self) -> None:
        self._waiting.put(None)
        self._thread.join()

    def _serve(self) -> None:
        with _ending_the_process(), self.computing():
            while batch := self._taken():
                answers = self.answering(self.library.samples([place for _, place, _ in batch]))
                ended = perf_counter()
                self.seconds.extend(ended - began for _, _, began in batch)
                self.complete([each for each, _, _ in batch], answers)

    def _taken(self) -> list[tuple[int, int, float]]:
        """Whatever waits, as many as the network takes at once; nothing at the end."""
        found = []
        entry = self._waiting.get()
        while entry is not None:
            found.append(entry)
            if len(found) == self.most:
                break
            try:
                entry = self._waiting.get_nowait()
            except queue.Empty:
                break
        return found


@contextmanager
def _ending_the_process() -> Iterator[None]:
    """An error cannot pass through LoadGen's own threads, which would wait for an answer without end."""
    try:
        yield
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(FAILED)
