"""The system under test and its library of samples, as LoadGen calls them, with our own stopwatch around each
query.

In scenarios with one query at a time, queries are answered in the thread from which LoadGen calls, as
MLPerf's reference implementations do. In the Server scenario they are answered in a second thread, which
takes all waiting queries at once.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from aiperf.data.splits import Batch, Split
from aiperf.data.training import Numbers
from aiperf.device import Device
from aiperf.engines.objective import objective_of
from aiperf.tasks.tally import Tally
from nas.modules import Network

MOST_BYTES = 4 << 30
"""Maximum memory of loaded samples in bytes; LoadGen loads a larger set one part after the other."""
AT_ONCE = 256
"""Number of examples per read."""


class SampleLibrary:
    """Test examples by their place in the test part. By MLPerf's rules a query begins with its samples in
    host memory."""

    def __init__(self, split: Split) -> None:
        self.split = split
        self.total = split.num_examples
        first, _ = next(iter(split.sweep(1)))
        self.loadable = max(1, min(self.total, MOST_BYTES // (first.element_size() * first.numel())))
        self._row = [-1] * self.total  # of each example its row among the loaded ones, or -1
        self._examples, self._targets = torch.empty(0), torch.empty(0)

    def load(self, wanted: Sequence[int]) -> None:
        """Loads these samples and drops all others. Nothing is read if they are loaded already."""
        places = sorted(set(wanted))
        if places == [index for index, row in enumerate(self._row) if row >= 0]:
            return
        self._row, chosen = [-1] * self.total, torch.zeros(self.total, dtype=torch.bool)
        for row, place in enumerate(places):
            self._row[place] = row
        chosen[places] = True
        # First of all, so that old and new samples are not in memory together.
        self._examples, self._targets = torch.empty(0), torch.empty(0)
        kept: list[Batch] = []
        start = 0
        for batch, targets in self.split.sweep(AT_ONCE):
            here = chosen[start : start + len(targets)]
            if here.any():
                kept.append((_rows_last(batch)[here], targets[here]))
            start += len(targets)
        self._examples = torch.cat([examples for examples, _ in kept])
        self._targets = torch.cat([targets for _, targets in kept])

    def unload(self, places: Sequence[int]) -> None:
        """Does nothing: samples stay loaded until others replace them, because the next test of a search asks
        for the same ones."""

    def targets(self) -> Tensor:
        """Targets of all examples, in order."""
        return torch.cat([targets for _, targets in self.split.sweep(AT_ONCE)])

    def samples(self, places: Sequence[int]) -> Batch:
        """Examples and targets of loaded samples, as a batch for the network."""
        rows = [self._row[place] for place in places]
        if len(rows) == 1:  # a view, no copy
            examples, targets = (held[rows[0] : rows[0] + 1] for held in (self._examples, self._targets))
        else:
            chosen = torch.tensor(rows)
            examples, targets = (held.index_select(0, chosen) for held in (self._examples, self._targets))
        return (examples.permute(0, 3, 1, 2) if examples.dim() == 4 else examples), targets


class AnsweringNetwork:
    """A network on its device that turns samples in host memory into answers in host memory."""

    def __init__(self, network: Network, device: torch.device) -> None:
        network.eval()
        self.network, self.device = network, device
        self.objective = objective_of(network.graph)

    def __call__(self, batch: Batch) -> Tensor:
        """Answers (n, numbers), int64, in host memory, so the device has finished its work."""
        examples, targets = (part.to(self.device, non_blocking=True) for part in batch)
        return self.objective.answers(self.network(examples), targets).cpu().contiguous()

    def tally(self, logged: Mapping[int, Numbers], targets: Tensor) -> Tally:
        """The tally of answers by sample, with the targets of all samples. Raises NotFinite if an answer is
        not finite."""
        judged = [self.objective.judged_answer(numbers, targets[place]) for place, numbers in logged.items()]
        return self.objective.tally(len(judged), *map(sum, zip(*judged)))


FAILED = 70
"""Exit code of a process whose system failed inside LoadGen."""


class System:
    """Answers queries in the thread from which LoadGen calls."""

    def __init__(
        self,
        loadgen: Any,
        answering: AnsweringNetwork,
        library: SampleLibrary,
        device: Device,
        format: str,
        most: int,
        per_sample: bool,
    ) -> None:
        """`most` is the maximum number of samples that the network takes at once. `per_sample`: a latency is
        recorded for each sample; otherwise for each query."""
        self.loadgen, self.answering, self.library = loadgen, answering, library
        self.device, self.format, self.most, self.per_sample = device, format, most, per_sample
        self.seconds = array("d")
        """Latencies in seconds by our own stopwatch, since `start`."""

    def computing(self) -> ExitStack:
        """A context for all work of a thread. Because it is entered once, autocast converts the weights to
        the format once, and not for each query."""
        stack = ExitStack()
        stack.enter_context(torch.inference_mode())
        stack.enter_context(self.device.autocast(self.format))
        return stack

    def start(self) -> None:
        """Forgets the latencies of an earlier test."""
        self.seconds = array("d")

    def issue(self, ids: Sequence[int], places: Sequence[int]) -> None:
        """Answers a query: the ids of its samples, and their places in the test part. LoadGen calls it."""
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
        """Passes answers to LoadGen, which copies them before this returns."""
        size = answers.element_size() * answers[0].numel()
        first, response = answers.data_ptr(), self.loadgen.QuerySampleResponse
        self.loadgen.QuerySamplesComplete(
            [response(each, first + row * size, size) for row, each in enumerate(ids)]
        )

    def close(self) -> None:
        """Ends the system; no query follows."""


class QueuedSystem(System):
    """Answers queries in a second thread, while LoadGen's own thread continues to issue them when they are
    due."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._waiting: queue.SimpleQueue[tuple[int, int, float] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="answers")
        self._thread.start()

    def computing(self) -> ExitStack:
        """Without trying kernels out, which each new number of waiting queries would begin again."""
        stack = super().computing()
        stack.enter_context(self.device.untuned())
        return stack

    def issue(self, ids: Sequence[int], places: Sequence[int]) -> None:
        """Puts the samples of a query into the queue, with the time at which they were due."""
        began = perf_counter()
        for each, place in zip(ids, places):
            self._waiting.put((each, place, began))

    def close(self) -> None:
        """Ends the second thread once all waiting queries are answered."""
        self._waiting.put(None)
        self._thread.join()

    def _serve(self) -> None:
        """The second thread: answers waiting queries together until `close` is called."""
        with _ending_the_process(), self.computing():
            while batch := self._taken():
                answers = self.answering(self.library.samples([place for _, place, _ in batch]))
                ended = perf_counter()
                self.seconds.extend(ended - began for _, _, began in batch)
                self.complete([each for each, _, _ in batch], answers)

    def _taken(self) -> list[tuple[int, int, float]]:
        """The waiting queries, at most as many as the network takes at once; empty at the end."""
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
    """A context that ends the process on an error: it cannot pass through LoadGen's threads, which would wait
    for an answer forever."""
    try:
        yield
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(FAILED)


def _rows_last(batch: Tensor) -> Tensor:
    """Images with their channels last, so that rows selected from them keep the memory layout that is fastest
    for convolutions."""
    return batch.permute(0, 2, 3, 1) if batch.dim() == 4 else batch
