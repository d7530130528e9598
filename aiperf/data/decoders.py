"""Files decoded in processes of their own, ahead of the training that asks for them.

Only tickets pass between the processes, 16 bytes for each piece in shared memory; nothing is serialised. The
process that trains needs no thread for it, so its thread never waits for Python's lock.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import select
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from typing import NamedTuple, NoReturn
from weakref import WeakSet, finalize

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aiperf.data.decoding_process import PIECE, TICKET, DecodeRequest, Decoding, Slots, serve
from aiperf.errors import DataError
from aiperf.host.scheduler_warning import ALL, held

# Pieces that each process decodes ahead.
PREFETCH = 4
# Pieces of a request, at least: what a request costs the process that trains is spread over them.
LEAST_PIECES = 4
# Requests in memory, at least: one that is read, one that is decoded, and one that the device may still copy.
LEAST_SLOTS = 3
# Tickets that are read from a pipe at once.
READ_TICKETS = 1024
# A process ends with the piece that it decodes; one that does not is killed, which harms nothing.
END_SECONDS = 5


class Decoded(NamedTuple):
    """The images of a request, in memory that is used again once the next are asked for."""

    images: Tensor
    """Bytes (m, size, size, channels); pinned for an accelerator, which may still copy them when the next are
    asked for."""
    labels: NDArray[np.int64]


class Decoders:
    """Groups of decoding processes, each busy with one plan at a time and kept for the next.

    They are started by a server without MPI, threads or a device context, none of which survives a fork.
    """

    def __init__(self, decoding: Decoding, processes: int, device: torch.device) -> None:
        self.decoding = decoding
        self.processes = processes
        self.images = PIECE * max(LEAST_PIECES, processes)
        self._device = device
        self._idle: list[_Group] = []
        self._busy: WeakSet[Generator[Decoded, None, None]] = WeakSet()
        _LIVING.add(self)

    def run(self, plan: Iterator[DecodeRequest]) -> Iterator[Decoded]:
        """The images of a plan in its order, by requests of at most `images` images; decoding begins at once,
        before the first are asked for.

        Raises DataError for a file that cannot be decoded, when its request is asked for.
        """
        group = self._idle.pop() if self._idle else self._start()
        decoded = self._decoded(group, plan)
        next(decoded)  # begins, and so also ends: a generator that never began has no end of its own
        self._busy.add(decoded)
        return decoded

    def here(self, request: DecodeRequest) -> Tensor:
        """The images of a request, decoded by this process itself. Raises DataError."""
        size, channels = self.decoding.size, self.decoding.channels
        pixels = np.empty((len(request.labels), size, size, channels), np.uint8)
        if fault := self.decoding.decode(request, pixels):
            raise DataError(fault)
        return torch.from_numpy(pixels)

    def close(self) -> None:
        """Ends every plan and all processes. Those of a later `run` are started anew."""
        for decoded in list(self._busy):
            decoded.close()
        for group in self._idle:
            group.close()
        self._idle.clear()

    def _decoded(self, group: _Group, plan: Iterator[DecodeRequest]) -> Generator[Decoded, None, None]:
        """The generator behind `run`. Its first value is empty: it is there so that decoding begins with
        the call."""
        begun = deque[tuple[int, NDArray[np.int64]]]()
        try:
            begun.extend(group.begin(plan))
            yield Decoded(torch.empty(0), np.empty(0, np.int64))
            while begun:
                slot, labels = begun.popleft()
                group.wait_for(slot)
                try:
                    yield Decoded(group.shown(slot, len(labels)), labels)
                finally:
                    group.release(slot)
                begun.extend(group.begin(plan, needed=not begun))
        finally:
            group.cancel(slot for slot, _ in begun)
            if group.lives:
                self._idle.append(group)
            else:
                group.close()

    def _start(self) -> _Group:
        """A new group of processes; earlier ones are busy, or were closed."""
        group = _Group(self.decoding, self.images, self.processes, self._device)
        # What is registered last runs first, and multiprocessing waits for its processes at the end.
        atexit.unregister(_close_all)
        atexit.register(_close_all)
        return group


class _Group:
    """Some processes, and the slots that they fill."""

    def __init__(self, decoding: Decoding, images: int, processes: int, device: torch.device) -> None:
        self._slots = Slots(decoding, max(LEAST_SLOTS, PREFETCH * PIECE * processes // images), images)
        self._memory = torch.from_numpy(self._slots.pixels)
        self._images = self._memory.unbind()
        # CUDA lets shared memory be pinned; other accelerators get a pinned copy. A CPU and Apple's
        # devices read the memory itself.
        self._copies = device.type not in ("cpu", "mps", "cuda")
        self._cuda = device if device.type == "cuda" else None
        pinned = _pin(self._memory) if self._cuda else None
        context = server(serve.__module__)
        read_tickets, self._tickets = context.Pipe(duplex=False)
        self._done, write_done = context.Pipe(duplex=False)
        os.set_blocking(self._done.fileno(), False)
        self._processes = [
            context.Process(target=serve, args=(self._slots, read_tickets, write_done), daemon=True)
            for _ in range(processes)
        ]
        for process in self._processes:
            process.start()
        read_tickets.close()
        write_done.close()
        self._poll = select.poll()
        self._poll.register(self._done, select.POLLIN)
        for process in self._processes:
            self._poll.register(process.sentinel, select.POLLIN)
        self._free = deque(range(self._slots.number))
        self._decoding: dict[int, int] = {}  # pieces of each slot that are not decoded
        self._cancelled: set[int] = set()
        self._copying: deque[tuple[torch.cuda.Event, int]] = deque()
        self.lives = True
        self.close = finalize(self, _end, self._tickets, self._done, self._processes, pinned)
        self.close.atexit = False

    def begin(
        self, plan: Iterator[DecodeRequest], needed: bool = True
    ) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Hands out requests of a plan while there are free slots, and at least one if one is needed. Yields
        each slot and the labels of its images."""
        self._free_slots(needed)
        while self._free and (request := next(plan, None)) is not None:
            slot = self._free.popleft()
            tickets = self._slots.write(slot, request)
            self._decoding[slot] = len(tickets)
            try:
                os.write(self._tickets.fileno(), tickets.data)
            except BrokenPipeError:
                self._refuse_ended()
            yield slot, request.labels

    def wait_for(self, slot: int) -> None:
        """Raises DataError for a file of the slot that cannot be decoded, and for a process that ended."""
        while slot in self._decoding:
            self._hear()
        if fault := self._slots.fault(slot):
            self._free.append(slot)
            raise DataError(fault)

    def shown(self, slot: int, images: int) -> Tensor:
        """The first images of a decoded slot, as they are copied to the device."""
        pixels = self._images[slot][:images]
        return pixels.pin_memory() if self._copies else pixels

    def release(self, slot: int) -> None:
        """Lets the slot be used again, once the device has copied from it what it was given to copy."""
        if self._cuda is None:
            self._free.append(slot)
            return
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(self._cuda))
        self._copying.append((event, slot))

    def cancel(self, slots: Iterator[int]) -> None:
        """Gives up the requests in these slots. A process that is decoding one of them finishes it."""
        for slot in slots:
            if slot in self._decoding:
                self._slots.cancel(slot)
                self._cancelled.add(slot)
            else:
                self._free.append(slot)

    def _free_slots(self, needed: bool) -> None:
        """Frees the slots that the device has copied, without waiting; if one is needed and none is free,
        waits for the device or for a process."""
        while self._copying and self._copying[0][0].query():
            self._free.append(self._copying.popleft()[1])
        while needed and not self._free:
            if self._copying:
                event, slot = self._copying.popleft()
                event.synchronize()
                self._free.append(slot)
            else:
                self._hear()

    def _hear(self) -> None:
        """Waits until some pieces are decoded. Raises DataError for a process that ended."""
        try:
            tickets = os.read(self._done.fileno(), TICKET.itemsize * READ_TICKETS)
        except BlockingIOError:
            # No piece is decoded yet. A process that ends cannot write, so its end is waited for, too.
            waited = {descriptor for descriptor, _ in self._poll.poll()}
            if self._done.fileno() in waited:
                return
            tickets = b""
        if not tickets:
            self._refuse_ended()
        for slot in np.frombuffer(tickets, np.int32)[:: TICKET.shape[0]].tolist():
            self._decoding[slot] -= 1
            if not self._decoding[slot]:
                del self._decoding[slot]
                if slot in self._cancelled:
                    self._cancelled.remove(slot)
                    self._free.append(slot)

    def _refuse_ended(self) -> NoReturn:
        """Raises DataError for a process that ended; the group is not used again."""
        self.lives = False
        raise DataError(_ended(self._processes))


def _pin(images: Tensor) -> Tensor:
    """Lets a CUDA device copy from this memory while the thread that asked for it goes on."""
    fault = int(torch.cuda.cudart().cudaHostRegister(images.data_ptr(), images.nbytes, 0))
    if fault:
        raise DataError(
            f"{images.nbytes >> 20} MiB of memory for decoded images cannot be pinned (CUDA error {fault}); "
            "set data.loader_processes to fewer, which need less"
        )
    return images


def _end(
    tickets: Connection, done: Connection, processes: Sequence[BaseProcess], pinned: Tensor | None
) -> None:
    """Ends the processes of a group: they read the end of the tickets' pipe once they have decoded their
    piece."""
    tickets.close()
    for process in processes:
        process.join(END_SECONDS)
        if process.is_alive():
            process.kill()
    done.close()
    if pinned is not None:
        torch.cuda.cudart().cudaHostUnregister(pinned.data_ptr())


def _ended(processes: Sequence[BaseProcess]) -> str:
    """The line on the first of some processes that has ended. Its pipes close before its code is known."""
    wait([process.sentinel for process in processes], END_SECONDS)
    code = next((process.exitcode for process in processes if process.exitcode is not None), None)
    how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
    return (
        f"a process that decodes images ended early ({how}); if there was not enough memory, set "
        "data.loader_processes to fewer"
    )


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
    """Ends all decoding processes of this one; it must run before multiprocessing waits for them."""
    for decoders in list(_LIVING):
        decoders.close()
