"""Files decoded in processes of their own, ahead of the training that asks for them."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import threading
from collections.abc import Generator, Iterator
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import ForkServerContext
from typing import Any, NamedTuple
from weakref import WeakSet

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from aiperf.data.decode import decode, refusal
from aiperf.errors import DataError
from aiperf.scheduler_warning import ALL, held, outlive

# Images a message of a decoding process. A step is put together from several, so that its first
# images come soon and one step is decoded by many processes.
PIECE = 32
# Pieces that each process prepares ahead.
PREFETCH = 4


class Item(NamedTuple):
    """One image to decode. The processes know nothing else, so they serve every split and trial."""

    path: str
    label: int
    draws: str
    """What the random crop and flip are drawn from; empty: the evaluation crop."""


Piece = tuple[Tensor, Tensor]
"""Bytes (m, size, size, channels) and labels (m,), m ≤ PIECE."""


class Decoders:
    """Groups of decoding processes, each busy with one plan at a time and kept for the next.

    They are started by a server without MPI, threads or a device context, none of which survives a fork.
    """

    def __init__(self, channels: int, size: int, processes: int, pin: bool) -> None:
        self._decoder = _Decoder(channels, size)
        self.processes = processes
        self._pin = pin
        self._idle: list[tuple[_Plan, DataLoader[Piece]]] = []
        self._busy: WeakSet[Generator[Piece, None, None]] = WeakSet()
        _LIVING.add(self)

    def run(self, plan: Iterator[list[Item]]) -> Iterator[Piece]:
        """The pieces of a plan in its order; decoding begins at once, before the first is asked for.

        Raises DataError for a file that cannot be decoded, when its piece is asked for.
        """
        group, loader = self._idle.pop() if self._idle else self._start()
        group.plan = plan
        started = self._pieces(group, loader, iter(loader))
        self._busy.add(started)
        # Once more for each plan: what is registered last runs first, and torch's own wait for each
        # process at the end, five seconds, is registered when its group starts.
        atexit.unregister(_close_all)
        atexit.register(_close_all)
        return started

    def here(self, items: list[Item]) -> Tensor:
        """The images of these items, decoded by this process itself. Raises DataError."""
        piece = self._decoder.__getitems__(items)
        if isinstance(piece, str):
            raise DataError(piece)
        return piece[0]

    def close(self) -> None:
        """Ends every plan and all processes. Those of a later `run` are started anew."""
        for pieces in list(self._busy):
            pieces.close()
        self._idle.clear()

    def _pieces(
        self, group: _Plan, loader: DataLoader[Piece], pieces: Iterator[Piece | str]
    ) -> Generator[Piece, None, None]:
        reusable = False
        try:
            for piece in pieces:
                if isinstance(piece, str):
                    reusable = True
                    raise DataError(piece)
                yield piece
            reusable = True
        except GeneratorExit:
            reusable = True
            raise
        finally:
            group.plan = iter(())
            if reusable:  # after any other end the processes may be dead; they are not asked again
                self._idle.append((group, loader))

    def _start(self) -> tuple[_Plan, DataLoader[Piece]]:
        group = _Plan()
        loader: DataLoader[Piece] = DataLoader(
            self._decoder,
            generator=torch.Generator(),  # else each plan would move the training's own generator on
            batch_sampler=group,
            num_workers=self.processes,
            collate_fn=_as_it_is,
            pin_memory=self._pin,
            multiprocessing_context=server(__name__),
            prefetch_factor=PREFETCH,
            persistent_workers=True,
            worker_init_fn=_outlive,
        )
        return group, loader


class _Plan(Sampler[list[Item]]):
    """What a group of processes is to decode; set anew before each iteration.

    The loader keeps what `__iter__` gives, and must not keep the plan by it: the plan holds the split,
    the split these decoders, they the loader, and processes in a ring of garbage are waited for in vain.
    """

    def __init__(self) -> None:
        self.plan: Iterator[list[Item]] = iter(())

    def __iter__(self) -> Iterator[list[Item]]:
        while (items := next(self.plan, None)) is not None:
            yield items


class _Decoder(Dataset[Piece]):
    """Runs in the decoding processes."""

    def __init__(self, channels: int, size: int) -> None:
        self._channels = channels
        self._size = size

    def __getitems__(self, items: list[Item]) -> Piece | str:
        """The piece, or the line that says why there is none (an exception would lose its own words)."""
        pixels = np.empty((len(items), self._size, self._size, self._channels), np.uint8)
        for index, item in enumerate(items):
            try:
                pixels[index] = decode(item.path, self._channels, self._size, item.draws)
            except Exception as error:  # whatever Pillow meets in a damaged file
                return refusal(item.path, error)
        return torch.from_numpy(pixels), torch.tensor([item.label for item in items])


def server(module: str) -> ForkServerContext:
    """What starts processes that call this module: without MPI, threads or a device context."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([module, "PIL.Image"])
    with held(*ALL):  # for good, and in a decoding process until it has its handlers
        resource_tracker.ensure_running()
    with held(*ALL):  # again, for Python 3.11 ends it in there
        forkserver.ensure_running()
    return context


_LIVING: WeakSet[Decoders] = WeakSet()


def _close_all() -> None:
    for decoders in list(_LIVING):
        decoders.close()


def _outlive(worker: int) -> None:
    """The closing validation still needs this process. Torch has just set a handler that would end it."""
    outlive()
    threading.Thread(target=end_with_parent, daemon=True).start()


def end_with_parent() -> None:
    """However the process that trains ends. Torch looks at the server, which itself waits for this one."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _as_it_is(piece: Any) -> Any:
    return piece
