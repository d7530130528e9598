"""The processes that decode: what they show, and how they end."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import time
import weakref
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import torch
from torch import Tensor

from aiperf.config import DataConfig
from aiperf.data import Data, imagefolder, load
from aiperf.data.decode import decode, decoder_name
from aiperf.data.decoders import Decoders
from aiperf.data.decoding_process import ClassFolders, DecodeRequest, Decoding
from aiperf.data.splits import Order
from tests.aiperf.data.sets import CPU, refused_by, write_folders

NO_PICTURE = "is neither a JPEG nor a PNG file; replace or remove it"


def test_a_file_that_breaks_later_is_named_and_the_next_plan_goes_on(config: DataConfig) -> None:
    data = load(config, CPU, 1)
    broken = Path(config.path) / "val/class1/2.jpg"
    whole = broken.read_bytes()
    broken.write_text("gone bad")
    assert refused_by(swept, data) == f"{broken}: {NO_PICTURE}"
    broken.write_bytes(whole)
    assert swept(data) == 15


def test_an_interrupt_at_the_terminal_leaves_the_decoding_processes_alone(written: DataConfig) -> None:
    data = load(written, CPU, 1)
    assert swept(data) == 15
    processes = psutil.Process().children(recursive=True)
    assert processes
    for process in processes:
        process.send_signal(signal.SIGINT)
    assert swept(data) == 15


def test_the_processes_end_with_the_set_and_not_when_garbage_is_collected(written: DataConfig) -> None:
    data = load(written, CPU, 1)
    next(data.train.stream(4, 1))
    living = weakref.ref(data.train._decoders)
    gc.disable()
    try:
        del data
        assert living() is None
    finally:
        gc.enable()


def test_memory_is_not_used_again_before_the_device_has_copied_it(
    written: DataConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a device that copies only when it is waited for; its events are played here."""
    shown: list[tuple[Tensor, Tensor]] = []
    copied: list[int] = []

    class Copying:
        def record(self, stream: object) -> None:
            self.number = len(shown) - 1

        def query(self) -> bool:
            return False

        def synchronize(self) -> None:
            now, then = shown[self.number]
            assert torch.equal(now, then)
            copied.append(self.number)

    pinned: list[tuple[int, int, int]] = []
    runtime = SimpleNamespace(
        cudaHostRegister=lambda *memory: pinned.append(memory) or 0,
        cudaHostUnregister=lambda address: pinned.remove(next(each for each in pinned if each[0] == address)),
    )
    monkeypatch.setattr(torch.cuda, "Event", Copying)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    listing, _ = imagefolder.list_files(Path(written.path))
    folders = [ClassFolders(str(listing.root), listing.classes)]
    decoders = Decoders(Decoding(folders, 3, 16, listing.names.itemsize, False), 1, torch.device("cuda"))
    plan = (
        DecodeRequest(0, listing.names[[image]], listing.labels[[image]], "", np.array([image]))
        for image in range(9)
    )
    for images, labels in decoders.run(plan):
        assert labels.tolist() == listing.labels[[len(shown)]].tolist()
        shown.append((images, images.clone()))
    assert len({then.numpy().tobytes() for _, then in shown}) == 9
    assert copied == list(range(len(copied)))
    assert len(copied) >= 6, "three of nine have memory of their own"
    assert [memory[1] for memory in pinned] == [3 * 128 * 16 * 16 * 3]
    decoders.close()
    assert pinned == []


def swept(data: Data) -> int:
    return sum(len(labels) for _, labels in data.test.sweep(4))


TRAINS = """
import sys, time
import torch
from aiperf.data import load
from aiperf.tasks.images.data import ImageData

if __name__ == "__main__":
    data = ImageData("imagefolder", 3, 8, 3, path=sys.argv[1], validation_examples=6, loader_processes=2)
    batches = load(data, torch.device("cpu"), 1).train.stream(4, 1)
    next(batches)
    print("decodes", flush=True)
    while True:
        next(batches)
"""


def shared_by(number: int) -> list[str]:
    """The memory that a process and those that it started share for writing."""
    processes = [number, *(each.pid for each in psutil.Process(number).children(recursive=True))]
    return [
        line.split(maxsplit=5)[5].strip()
        for process in processes
        for line in Path(f"/proc/{process}/maps").read_text().splitlines()
        if line.split()[1] == "rw-s"
    ]


@pytest.mark.timeout(120)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_nothing_is_left_of_the_decoding_when_the_process_that_trains_is_killed(
    written: DataConfig, tmp_path: Path
) -> None:
    """In the middle of decoding: its processes end, and their memory has no name that could stay."""
    program = tmp_path / "trains.py"
    program.write_text(TRAINS)
    with subprocess.Popen(
        [sys.executable, program, written.path], stdout=subprocess.PIPE, text=True
    ) as trains:
        assert trains.stdout is not None
        assert trains.stdout.readline() == "decodes\n"
        until = time.monotonic() + 30
        # The second decoding process may have no work, and so no memory, before the first batches are there.
        while len(shared := shared_by(trains.pid)) < 3 and time.monotonic() < until:
            time.sleep(0.1)
        theirs = psutil.Process(trains.pid).children(recursive=True)
        trains.kill()
    try:
        assert len(theirs) >= 4  # the server, two that it forked, and the tracker
        assert shared == ["/memfd:aiperf-decoders (deleted)"] * 3, "of the three, and no other"
        until = time.monotonic() + 20
        while (left := [each for each in theirs if each.is_running()]) and time.monotonic() < until:
            time.sleep(0.1)
        assert left == []
    finally:
        for each in theirs:
            with suppress(psutil.NoSuchProcess):
                each.kill()


def test_a_decoding_process_that_is_killed_ends_the_plan_with_a_line_and_the_next_plan_has_others(
    written: DataConfig,
) -> None:
    data = load(written, CPU, 1)
    assert swept(data) == 15
    server = {process.pid for process in psutil.Process().children()}
    for process in psutil.Process().children(recursive=True):
        if process.pid not in server and process.ppid() in server:
            process.kill()
            process.wait()
    assert refused_by(swept, data) == (
        "a process that decodes images ended early (signal 9); if there was not enough memory, set "
        "data.loader_processes to fewer"
    )
    assert swept(data) == 15


@pytest.mark.parametrize(("batch_size", "steps", "processes"), [(10, 100, 1), (600, 2, 2)])
def test_each_image_of_a_step_is_that_of_its_place_however_many_decode_it(
    batch_size: int, steps: int, processes: int, written: DataConfig
) -> None:
    """A request is at most 128 images: many small steps, or a part of a step."""
    config = replace(written, augmentation="resized-crop-flip", loader_processes=processes)
    train = load(config, CPU, 1).train
    listing, _ = imagefolder.list_files(Path(config.path))
    order = Order(30, 5).take(0, steps * batch_size)[0]
    mine = slice(batch_size // 3, 2 * batch_size // 3)
    for step, (images, labels) in enumerate(islice(train.stream(batch_size, 5, 1, 3), steps)):
        places = range(step * batch_size, (step + 1) * batch_size)[mine]
        files = [int(train._chosen[order[place]]) for place in places]
        expected = [decode(listing.path(file), 3, 16, f"5/{place}") for file, place in zip(files, places)]
        shown = train._normalisation(torch.from_numpy(np.stack(expected))).permute(0, 3, 1, 2)
        assert torch.equal(images, shown)
        assert labels.tolist() == listing.labels[files].tolist()


def test_a_draft_changes_training_alone_and_the_manifest_says_so(tmp_path: Path) -> None:
    config = replace(
        write_folders(tmp_path), size=8
    )  # of images of 24 to 36 pixels, so some crops are drafted
    whole, draft = (
        load(replace(config, augmentation=name), CPU, 1)
        for name in ("resized-crop-flip", "resized-crop-flip-draft")
    )
    assert draft.manifest == {**whole.manifest, "draft": {"part": "training", "decoder": decoder_name()}}
    for part in ("validation", "test"):
        (one, _), (other, _) = (next(getattr(data, part).sweep(99)) for data in (whole, draft))
        assert torch.equal(one, other)
    (one, _), (other, _) = (next(data.train.stream(30, 1)) for data in (whole, draft))
    same = (one == other).flatten(1).all(1)
    assert same.any(), "small crops"
    assert not same.all()
