"""A worker by itself, told what to do by a list and heard by another."""

from __future__ import annotations

import gc
import json
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
import torch

from aiperf.config import Config, LimitsConfig, TrainingConfig
from aiperf.data import load
from aiperf.device import Cpu, Device, bind
from aiperf.errors import GroupBroken
from aiperf.journal.run_files import RunFiles
from aiperf.parallel.parallel import Parallel, Solo
from aiperf.ranks.world import ALONE
from aiperf.tasks.images.data import ImageData
from aiperf.training import train as train_module
from aiperf.training import worker as worker_module
from aiperf.training.built_trial import BuiltTrial, Rank, build
from aiperf.training.kept_network import Kept, read_kept
from aiperf.training.worker import Worker
from aiperf.wire.layout import Place
from aiperf.wire.messages import Assign, Quit, Release, Setup, Steps, ToGroup, Validated
from aiperf.wire.reports import TYPICAL, Finished, FromGroup, Ready, Started, TimedStep
from aiperf.wire.trial import HyperParameters, State, Trial
from nas.modules import Network
from nas.morphisms import Morphism
from nas.record import graph_to_json
from nas.search import Evolution
from nas.seeds import residual
from nas.weights import digest, initial

SIZE, CLASSES = (1, 8, 8), 2
CONFIG = Config(
    preset="test",
    seed_architecture="-",
    data=ImageData(
        "synthetic",
        *SIZE[:2],
        classes=CLASSES,
        training_examples=64,
        validation_examples=16,
        test_examples=24,
    ),
    training=TrainingConfig(
        "fp32", batch_size=8, learning_rate=0.05, epochs=(2,), validate_every_examples=64
    ),
    limits=LimitsConfig(minutes=1),
)
SEED = residual(SIZE, CLASSES, (4, 8))


def trial(
    number: int, parent: int | None = None, morphisms: tuple[Morphism, ...] = (), **hyper: Any
) -> Trial:
    chosen = HyperParameters(**({"learning_rate": 0.05, "batch_size": 8} | hyper))
    return Trial(number, parent, morphisms, chosen, 1, 2, 17 + number)


def child_of(number: int, parent: int) -> Trial:
    search = Evolution(SEED, 1, CONFIG.search.bounds, population=2)
    search.ask(0, 1)
    return trial(number, parent, search.ask(1, 2).morphisms)


@dataclass
class Told:
    """A channel that is a list on either side."""

    inbox: SimpleQueue[ToGroup] = field(default_factory=SimpleQueue)
    said: list[FromGroup] = field(default_factory=list)
    broken: str = ""
    worker: Worker = field(init=False)

    def send(self, message: FromGroup) -> None:
        self.said.append(message)

    def receive(self) -> ToGroup:
        return self.inbox.get()

    def tell(self, *messages: ToGroup) -> None:
        for message in messages:
            self.inbox.put(message)

    def wait(self, kind: type[FromGroup], count: int = 1) -> Any:
        until = time.monotonic() + 60
        while len(found := [message for message in self.said if isinstance(message, kind)]) < count:
            assert time.monotonic() < until, f"{kind.__name__} was not said; but: {self.said}"
            time.sleep(0.01)
        return found[count - 1]


@contextmanager
def working(
    directory: Path,
    place: Place = ALONE,
    parallel: Parallel | None = None,
    probe: str = "",
    every: int = CONFIG.training.validate_every_examples,
    device: Device | None = None,
    step: str = CONFIG.training.step,
) -> Iterator[Told]:
    channel = Told()
    config = replace(CONFIG, training=replace(CONFIG.training, validate_every_examples=every, step=step))
    setup = Setup(config, graph_to_json(SEED), str(directory), probe)
    channel.worker = worker = Worker(setup, channel, device or bind("cpu", 0), place, parallel or Solo())

    def serve() -> None:
        try:
            worker.serve()
        except GroupBroken as error:  # here the process would end, and the others would notice
            channel.broken = str(error)
            worker.parallel.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        channel.wait(Ready)
        yield channel
    finally:
        channel.tell(Quit())
        thread.join(60)
        assert not thread.is_alive()


def ended(directory: Path, *trials: Trial, **options: Any) -> list[Finished]:
    """How these ended, each in its first attempt."""
    with working(directory, **options) as channel:
        channel.tell(*(Assign(each, 1) for each in trials))
        return [channel.wait(Finished, count) for count in range(1, 1 + len(trials))]


def own_log(directory: Path, rank: int) -> list[dict[str, int]]:
    (path,) = directory.glob(f"logs/*.rank{rank}.steps.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.contract
def test_a_trial_from_its_first_step_to_its_kept_weights(tmp_path: Path) -> None:
    with working(tmp_path) as channel:
        channel.tell(Release(None), Assign(trial(0), 1))
        finished = channel.wait(Finished)
    ready = channel.said[0]
    assert isinstance(ready, Ready)
    assert (ready.rank, ready.visible_devices, ready.device_id, ready.sees_run) == (1, 1, "", True)
    assert (finished.trial, finished.attempt, finished.state) == (0, 1, State.COMPLETE)
    assert [type(message) for message in channel.said if not isinstance(message, Steps)] == [
        Ready,
        Started,
        Validated,
        Validated,
        Finished,
    ]
    blocks = [message.block for message in channel.said if isinstance(message, Steps)]
    assert blocks[0].steps == 1  # the first step stands by itself
    assert sum(block.steps for block in blocks) == 16
    assert sum(block.examples for block in blocks) == 128
    kept = read_kept(RunFiles(tmp_path).weights(0))
    assert kept.graph.key == SEED.key
    assert kept.state["momentum"].keys() == SEED.weights.keys()
    log = own_log(tmp_path, 1)
    assert [line["examples"] for line in log if "examples" in line] == [block.examples for block in blocks]
    closed = [message.segment for message in channel.said if isinstance(message, Validated)]
    assert finished.kept == min(closed, key=lambda segment: segment.unbounded).index
    assert [line["correct"] for line in log if "of" in line] == [segment.tally.correct for segment in closed]


@pytest.mark.parametrize(("faster", "threads"), [(0.05, 2), (0.12, 1)])
def test_a_trial_has_the_threads_that_are_best_for_it_and_says_so(
    tmp_path: Path, faster: float, threads: int
) -> None:
    """Here in a group that was started again, which gets what it had measured."""
    before = torch.get_num_threads()
    timed = tuple(TimedStep(TYPICAL, count, "eager", took, 5) for count, took in ((1, 0.1), (2, faster)))
    try:
        with working(tmp_path) as channel:
            channel.tell(Release(None, {"1": 3 - threads}, timed={"1": timed}), Assign(trial(0), 1))
            started, finished = channel.wait(Started), channel.wait(Finished)
    finally:
        torch.set_num_threads(before)
    assert (started.threads, finished.state) == ((threads,), State.COMPLETE)


def test_dropout_is_of_training_alone_and_reaches_the_last_layer(tmp_path: Path) -> None:
    """Two networks of the same weights differ in a step, and agree in what they validate."""
    start, data = Kept(SEED, initial(SEED, 1), {}), load(CONFIG.data, torch.device("cpu"), 1)
    rank = Rank(bind("cpu", 0), data, CONFIG.training, Solo())
    plain, dropped = (build(rank, trial(0, dropout=rate), 1, start).network for rate in (0.0, 0.9))
    examples = next(data.train.stream(8, 1, 0, 1))[0]
    torch.manual_seed(1)
    assert not torch.allclose(plain(examples), dropped(examples))
    # Nine in ten of what the last layer reads are zero.
    seen: list[torch.Tensor] = []
    dropped.layers[-1].register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    dropped(examples)
    assert 0.8 < float((seen[0] == 0).float().mean()) < 1
    # The steps above moved the running statistics.
    dropped.load({name: tensor.detach().numpy() for name, tensor in plain.tensors().items()})
    for network in (plain, dropped):
        network.eval()
    assert torch.equal(plain(examples), dropped(examples))


@pytest.mark.contract
@pytest.mark.parametrize("between", [(), (trial(2, learning_rate=0.01),)], ids=["at once", "later"])
def test_a_child_goes_on_with_its_parents_weights_and_momentum(
    between: tuple[Trial, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether its group trained the parent last or another trial in between."""
    starts: list[Kept] = []

    def watched(rank: Rank, what: Trial, attempt: int, start: Kept) -> Any:
        starts.append(start)
        return build(rank, what, attempt, start)

    monkeypatch.setattr(worker_module, "build", watched)
    with working(tmp_path) as channel:
        child = child_of(1, parent=0)
        for place, each in enumerate((trial(0), *between, child), start=1):
            channel.tell(Assign(each, 1))
            channel.wait(Finished, place)
    kept, first, last = read_kept(RunFiles(tmp_path).weights(0)), starts[0], starts[-1]
    assert not first.state
    for morphism in child.morphisms:
        carried = morphism.carry(kept.graph, kept.weights)
        momentum = morphism.carry_state(kept.graph, kept.state["momentum"])
        kept = Kept(morphism.apply(kept.graph), carried, {"momentum": momentum})
    assert last.graph == kept.graph
    assert digest(last.weights) == digest(kept.weights)
    assert digest(last.state["momentum"]) == digest(kept.state["momentum"])
    assert any(values.any() for values in kept.state["momentum"].values())


def test_weights_that_cannot_be_read_end_the_trial_and_no_other(tmp_path: Path) -> None:
    RunFiles(tmp_path).weights_directory.mkdir()
    RunFiles(tmp_path).weights(5).write_bytes(b"no weights")
    with working(tmp_path) as channel:
        channel.tell(Assign(child_of(6, parent=5), 1), Assign(child_of(7, parent=4), 2), Assign(trial(8), 1))
        damaged, absent, good = (channel.wait(Finished, count) for count in (1, 2, 3))
    assert (damaged.trial, damaged.state, damaged.out_of_memory) == (6, State.FAILED, False)
    assert f"{tmp_path}/weights/5.safetensors: the kept weights cannot be read" in damaged.reason
    assert damaged.reason.startswith("rank 1 on ")
    assert "Traceback" in damaged.traceback
    assert (absent.trial, absent.attempt, absent.state) == (7, 2, State.FAILED)
    assert (good.trial, good.state) == (8, State.COMPLETE)


def test_a_loss_that_is_no_number_ends_the_trial(tmp_path: Path) -> None:
    bad, good = ended(tmp_path, trial(0, learning_rate=1e30), trial(1))
    assert bad.state is State.FAILED
    assert "NotFinite: the loss is " in bad.reason
    assert good.state is State.COMPLETE


def no_memory_of_a_device() -> None:
    used.append(weakref.ref(large := torch.empty(1)))
    raise torch.OutOfMemoryError(f"no memory left for {large}")


def no_memory_of_the_host() -> None:
    used.append(weakref.ref(large := torch.empty(1)))
    torch.empty(large.numel() << 60)


used: list[weakref.ref[torch.Tensor]] = []
"""What these use when they fail."""


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How much of that is left whenever the device is to give memory back, without a collection."""
    found = list[int]()
    monkeypatch.setattr(Cpu, "clean", lambda self: found.append(sum(each() is not None for each in used)))
    gc.disable()
    yield found
    gc.enable()
    used.clear()


@pytest.mark.parametrize(
    ("fill", "failing"), [(no_memory_of_a_device, "build"), (no_memory_of_the_host, "step")]
)
def test_too_little_memory_is_told_as_such(
    fill: Callable[[], None], failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: list[int]
) -> None:
    """And none of it is left for the next trial."""

    def full(rank: Rank, what: Trial, number: int, start: Kept) -> BuiltTrial:
        if what.number == 0 and failing == "build":
            fill()
        attempt = build(rank, what, number, start)
        if what.number == 0:
            monkeypatch.setattr(attempt.engine, "step", lambda *batch: fill())
        return attempt

    monkeypatch.setattr(worker_module, "build", full)
    failed, good = ended(tmp_path, trial(0), trial(1))
    assert (failed.out_of_memory, good.state, left, len(used)) == (True, State.COMPLETE, [0], 1)


def test_weights_that_cannot_be_written_fail_the_trial(tmp_path: Path) -> None:
    (tmp_path / "weights").write_text("no directory")
    (finished,) = ended(tmp_path, trial(0))
    assert finished.state is State.FAILED
    assert "weights/0.safetensors cannot be written" in finished.reason


def test_who_does_not_see_the_probe_is_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiperf.training.driver.PROBE_SECONDS", 0.0)
    with working(tmp_path, probe="1234") as channel:
        assert channel.wait(Ready).sees_run is False
    RunFiles(tmp_path).probe.write_text("1234")
    with working(tmp_path, probe="1234") as channel:
        assert channel.wait(Ready).sees_run is True


@pytest.mark.parametrize("every", [64, 128], ids=["while it goes on", "at its end"])
def test_a_network_that_cannot_be_kept_fails_its_own_trial(
    every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: list[int]
) -> None:
    """Nobody waits for a network to be kept: the next work is decided already."""
    real = train_module.state_of

    def full(network: Network, optimizer: torch.optim.Optimizer) -> Any:
        monkeypatch.setattr(train_module, "state_of", real)
        no_memory_of_a_device()

    monkeypatch.setattr(train_module, "state_of", full)
    failed, good = ended(tmp_path, trial(0), trial(1), every=every)
    assert (failed.trial, failed.state, failed.out_of_memory) == (0, State.FAILED, True)
    assert (good.trial, good.state, left, len(used)) == (1, State.COMPLETE, [0], 1)
