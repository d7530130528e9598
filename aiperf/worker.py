"""A rank that trains: it prepares the next trial while it trains this one, and says what it did.

Run as a program it is the worker of a machine without MPI.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import queue
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Protocol

import torch

from aiperf.code import code_hash
from aiperf.control import measure_control
from aiperf.data import load
from aiperf.device import Device, bind
from aiperf.errors import AiperfError
from aiperf.files import RunFiles
from aiperf.kept import Kept, read_kept, write_kept
from aiperf.messages import (
    Assign,
    Control,
    Evaluate,
    Evaluated,
    Finished,
    FromGroup,
    MeasureControl,
    Quit,
    Ready,
    Release,
    Setup,
    Started,
    Steps,
    Stop,
    ToGroup,
    Validated,
    pack,
    unpack,
)
from aiperf.parallel import Parallel, Solo
from aiperf.train import Attempt, Pace, Rank, build, evaluate, train
from aiperf.trial import State, Trial
from nas.modules import Network
from nas.record import graph_from_json
from nas.weights import digest, initial

__all__ = ["Channel", "Worker"]

log = logging.getLogger(__name__)


class Channel(Protocol):
    """The worker's way to the master."""

    def send(self, message: FromGroup) -> None:
        """May be called from any thread."""

    def receive(self) -> ToGroup:
        """Waits for the next message. Raises EOFError when the master is gone."""


@dataclass(frozen=True)
class _Prepared:
    """A trial on its way: the future of its network."""

    assign: Assign
    attempt: Future[Attempt]
    asked: float
    """In `perf_counter` seconds."""


class Worker:
    """The leader of a group: one thread listens, one prepares and one writes while this one trains."""

    def __init__(self, setup: Setup, channel: Channel, device: Device, number: int) -> None:
        self.config, self.files = setup.config, RunFiles(Path(setup.directory))
        self.seed = graph_from_json(setup.seed_graph)
        self.channel, self.device, self.number = channel, device, number
        self.host = socket.gethostname()
        self.work: queue.SimpleQueue[_Prepared | MeasureControl | Evaluate | Quit] = queue.SimpleQueue()
        self.halted = threading.Event()
        self.pace = Pace(self.halted.is_set)
        self.preparing = ThreadPoolExecutor(1, "prepare")
        self.writing = ThreadPoolExecutor(1, "write")
        self.saved: dict[int, Future[str]] = {}
        self.last: tuple[int, Kept] | None = None
        self.parallel: Parallel = Solo()

    def serve(self) -> None:
        """From initialisation to Quit. Raises AiperfError for what ends the run before it began."""
        began = time.perf_counter()
        self.device.declare(self.config.training.format)
        self.seed_weights = initial(self.seed, self.config.random_seed)
        data = load(self.config.data, self.device.torch, self.config.random_seed)
        self.rank = Rank(self.device, data, self.config.training, self.parallel)
        self.channel.send(
            Ready(
                rank=self.number,
                host=self.host,
                pid=os.getpid(),
                device=self.device.name,
                memory_bytes=self.device.memory_bytes,
                software=self.device.software(),
                code_hash=code_hash(),
                data=data.manifest,
                initial_weights=digest(self.seed_weights),
                wall_seconds=time.time(),
                seconds=time.perf_counter() - began,
            )
        )
        threading.Thread(target=self._listen, name="listen", daemon=True).start()
        self._work()

    def _listen(self) -> None:
        """Turns messages into work. Ends the process when the master is gone: nobody would use its work."""
        while True:
            try:
                message = self.channel.receive()
            except (EOFError, OSError):
                log.error("the master is gone")
                os._exit(1)
            if isinstance(message, Assign):
                attempt = self.preparing.submit(self._prepare, message)
                self.work.put(_Prepared(message, attempt, time.perf_counter()))
            elif isinstance(message, Release):
                if message.seconds_left is not None:
                    self.pace.deadline = time.perf_counter() + message.seconds_left
            elif isinstance(message, Stop):
                self.halted.set()
            elif isinstance(message, (MeasureControl, Evaluate, Quit)):
                self.work.put(message)

    def _work(self) -> None:
        with open(self._witness(), "a", encoding="utf-8", buffering=1) as witness:
            while not isinstance(job := self.work.get(), Quit):
                if isinstance(job, Evaluate):
                    self._evaluate(job.trial)
                elif isinstance(job, MeasureControl):
                    self._measure_control()
                elif self.pace.must_close():
                    self._drop(job)
                else:
                    self._attempt(job, witness.write)
        self.writing.shutdown()

    def _measure_control(self) -> None:
        rate = measure_control(self.device, self.config.training.format)
        self.channel.send(
            Control(
                rank=self.number,
                host=self.host,
                device=self.device.name,
                batch_size=rate.batch_size,
                steps=rate.steps,
                seconds=rate.seconds,
                images_per_second=rate.images_per_second,
            )
        )

    def _drop(self, job: _Prepared) -> None:
        job.attempt.cancel()
        self.channel.send(Finished(job.assign.trial.number, job.assign.attempt, State.WAITING, "never began"))

    def _prepare(self, assign: Assign) -> Attempt:
        return build(self.rank, assign.trial, assign.attempt, self._start_of(assign.trial))

    def _start_of(self, trial: Trial) -> Kept:
        """The child's network, with the weights and momentum that its parent's become."""
        seed = Kept(self.seed, self.seed_weights, {})
        kept = seed if trial.parent is None else self._kept(trial.parent)
        for morphism in trial.morphisms:
            kept = Kept(
                morphism.apply(kept.graph),
                morphism.carry(kept.graph, kept.weights),
                morphism.carry_momentum(kept.graph, kept.momentum) if kept.momentum else {},
            )
        return kept

    def _kept(self, trial: int) -> Kept:
        """From memory when this group trained it last, else from its file."""
        if self.last is not None and self.last[0] == trial:
            return self.last[1]
        if trial in self.saved:
            self.saved[trial].result()
        return read_kept(self.files.weights(trial))

    def _attempt(self, job: _Prepared, witness: Callable[[str], object]) -> None:
        trial, number = job.assign.trial, job.assign.attempt

        def report(message: Started | Steps | Validated) -> None:
            if isinstance(message, Steps):
                witness(_witnessed(message))
            self.channel.send(message)

        try:
            attempt = job.attempt.result()
            report(Started(trial.number, number, attempt.network.graph.key, time.perf_counter() - job.asked))
            state, reason, kept = train(self.rank, attempt, self.pace, report)
        except Exception as error:  # a trial is foreign code: whatever it raises is its own end, and is told
            self._fail(trial, number, error)
        else:
            self.writing.submit(self._finish, trial.number, number, state, reason, kept, time.perf_counter())

    def _finish(
        self, trial: int, attempt: int, state: State, reason: str, kept: Kept | None, ended: float
    ) -> None:
        """Writes the weights, then tells: a finished trial can be a parent at once."""
        finished = Finished(trial, attempt, state, reason)
        try:
            if kept is not None:
                finished = replace(finished, weights=write_kept(self.files.weights(trial), kept))
                self.last = (trial, kept)
        except OSError as error:
            path = self.files.weights(trial)
            reason = f"{path} cannot be written ({error.strerror}); make room or choose another directory"
            finished = Finished(trial, attempt, State.FAILED, self._signed(reason))
        self.channel.send(replace(finished, age_seconds=time.perf_counter() - ended))

    def _fail(self, trial: Trial, attempt: int, error: Exception) -> None:
        text = "".join(traceback.format_exception(error))
        log.error("trial %d, attempt %d failed\n%s", trial.number, attempt, text)
        self.channel.send(
            Finished(
                trial=trial.number,
                attempt=attempt,
                state=State.FAILED,
                reason=self._signed(f"{type(error).__name__}: {error}"),
                out_of_memory=isinstance(error, (torch.OutOfMemoryError, MemoryError)),
                traceback=text,
            )
        )
        self.device.clean()

    def _evaluate(self, trial: int) -> None:
        kept = self._kept(trial)
        network = Network(kept.graph)
        network.load(kept.weights)
        network.place(self.device.torch)
        correct, of, seconds = evaluate(self.rank, network, self.rank.data.test)
        self.channel.send(Evaluated(trial, correct, of, seconds))

    def _signed(self, reason: str) -> str:
        return f"rank {self.number} on {self.host}: {reason}"

    def _witness(self) -> Path:
        path = self.files.witness(self.host, self.number)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


def _witnessed(steps: Steps) -> str:
    record = {
        "trial": steps.trial,
        "attempt": steps.attempt,
        "segment": steps.segment,
        "steps": steps.steps,
        "images": steps.images,
    }
    return json.dumps(record) + "\n"


class _SocketChannel:
    """One end of the socket pair to a master on this machine."""

    def __init__(self, file: int) -> None:
        self._connection = Connection(file)
        self._sending = threading.Lock()

    def send(self, message: FromGroup) -> None:
        with self._sending:
            self._connection.send_bytes(pack(message))

    def receive(self) -> ToGroup:
        message: ToGroup = unpack(ToGroup, self._connection.recv_bytes())
        return message


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--socket", type=int, required=True)
    parser.add_argument("--device", required=True)
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole terminal; the master answers it
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    channel = _SocketChannel(options.socket)
    try:
        setup = channel.receive()
        assert isinstance(setup, Setup), setup
        Worker(setup, channel, bind(options.device, 0), number=1).serve()
    except AiperfError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
