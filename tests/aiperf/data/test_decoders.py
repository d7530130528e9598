"""The square of a picture that is shown, crops and flips of a block of them, and the processes that decode:
what they show, and how they end."""

from __future__ import annotations

import errno
import gc
import random
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
from unittest.mock import Mock

import numpy as np
import psutil
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from aiperf.config import DataConfig
from aiperf.data import Data, imagefolder, load
from aiperf.data.decode import check_file, decode, decode_whole, decoder_name, random_box
from aiperf.data.decoders import Decoders
from aiperf.data.decoding_process import ClassFolders, DecodeRequest, Decoding
from aiperf.data.resident import Augmentation, augmentation
from aiperf.data.splits import Order
from tests.aiperf.data.sets import CPU, pictures, refused_by, write_folders
from tests.tables import ComesTo

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


SIDES = st.integers(1, 4000)


def picture(width: int, height: int) -> Image.Image:
    return Image.fromarray(pictures(1, 12, 3)[0]).resize((width, height), Image.Resampling.BICUBIC)


@given(SIDES, SIDES, st.integers())
def test_a_random_crop_lies_inside(width: int, height: int, seed: int) -> None:
    left, upper, right, lower = random_box(random.Random(seed), width, height)
    assert 0 <= left < right <= width
    assert 0 <= upper < lower <= height


def test_random_crops_are_of_the_published_areas_and_aspects() -> None:
    source = random.Random(1)
    boxes = np.array([random_box(source, 500, 400) for _ in range(2000)])
    wide, high = (boxes[:, 2] - boxes[:, 0]), (boxes[:, 3] - boxes[:, 1])
    areas, aspects = wide * high / (500 * 400), wide / high
    assert 0.079 < areas.min() < 0.1
    assert 0.9 < areas.max() <= 1
    assert 0.74 < aspects.min() < 0.78
    assert 1.28 < aspects.max() < 1.35
    assert boxes[:, :2].min() == 0
    assert boxes[:, 2].max() == 500


def test_evaluation_shows_what_resizing_and_then_cropping_shows(tmp_path: Path) -> None:
    file = tmp_path / "picture.png"
    picture(510, 384).save(file)
    with Image.open(file) as image:
        resized = image.resize((340, 256), Image.Resampling.BILINEAR)
    expected = np.asarray(resized.crop((58, 16, 58 + 224, 16 + 224))).astype(int)
    shown = decode(str(file), channels=3, size=224, draws="").astype(int)
    assert np.abs(shown - expected).max() <= 1


def test_training_shows_another_crop_for_other_draws_and_sometimes_its_mirror(tmp_path: Path) -> None:
    file = tmp_path / "picture.png"
    picture(60, 50).save(file)
    shown = {draws: decode(str(file), 3, 16, draws).tobytes() for draws in map(str, range(20))}
    assert len(set(shown.values())) == 20
    assert shown["7"] == decode(str(file), 3, 16, "7").tobytes()

    half = Image.new("L", (64, 64))
    half.paste(255, (32, 0, 64, 64))
    half.save(file)
    brighter_right = [
        float(crop[:, 8:].mean()) > float(crop[:, :8].mean())
        for crop in (decode(str(file), 1, 16, str(number)).astype(float) for number in range(200))
        if crop.std() > 0
    ]
    assert 0.35 < np.mean(brighter_right) < 0.65


def test_a_draft_is_close_to_the_whole_and_only_of_jpeg_crops_with_pixels_to_spare(tmp_path: Path) -> None:
    jpeg, png = tmp_path / "picture.jpg", tmp_path / "picture.png"
    picture(400, 300).save(jpeg, quality=95)
    picture(400, 300).save(png)
    for draws in map(str, range(12)):
        box = random_box(random.Random(draws), 400, 300)
        spare = min(box[2] - box[0], box[3] - box[1]) / 100
        whole, draft = (decode(str(jpeg), 3, 100, draws, way).astype(int) for way in (False, True))
        assert np.array_equal(whole, draft) == (spare < 2), spare
        assert np.abs(whole - draft).mean() < 2
        assert np.array_equal(decode(str(png), 3, 100, draws, True), decode(str(png), 3, 100, draws))
    assert np.array_equal(decode(str(jpeg), 3, 100, "", True), decode(str(jpeg), 3, 100, ""))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK"])
@pytest.mark.parametrize("channels", [1, 3])
def test_every_kind_of_8_bit_picture_is_shown(tmp_path: Path, mode: str, channels: int) -> None:
    file = tmp_path / ("picture.jpg" if mode == "CMYK" else "picture.png")
    picture(40, 30).convert(mode).save(file)
    check_file(file)
    assert decode(str(file), channels, 16, "").shape == (16, 16, channels)


def test_what_cannot_be_decoded_is_refused_and_is_not_blamed_for_what_lies_outside_it(
    here: Path, monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
) -> None:
    picture(200, 150).save("whole.jpg")
    Image.fromarray(np.zeros((9, 9), np.uint16)).save("deep.png")
    Path("text.jpg").write_text("no picture")
    Path("half.jpg").write_bytes((whole := Path("whole.jpg").read_bytes())[: len(whole) // 2])
    Path("more.jpg").write_bytes(whole + bytes(100))
    picture(9, 9).save("gif.jpg", format="GIF")
    Path("empty.jpg").touch()

    def refused(name: str) -> str:
        return refused_by(check_file, Path(name))

    def not_blamed(raised: Exception) -> set[str]:
        with monkeypatch.context() as patch:
            patch.setattr(Image, "open", Mock(side_effect=raised))
            return {refused("whole.jpg"), refused_by(decode_whole, "whole.jpg", 3, 8)}

    names = {"refused": refused, "not_blamed": not_blamed, "errno": errno}
    comes_to_what_was_read("refused_pictures.txt", names)


def test_a_palette_with_transparency_is_shown_as_its_colours(tmp_path: Path) -> None:
    """Without Pillow's warning, which each decoding process would print; here every warning is an error."""
    image = picture(8, 8).quantize(16)
    image.save(path := tmp_path / "a.png", transparency=bytes(range(16)))
    expected = np.asarray(image.convert("RGB"))
    assert np.array_equal(decode_whole(str(path), 3, 8), expected)


def one_by_one(images: Tensor, numbers: Tensor, draws: Tensor, how: Augmentation) -> Tensor:
    size = images.shape[1]
    shown = []
    for number, (row, column, side) in zip(numbers.tolist(), draws.tolist()):
        image = images[number].flip(1) if how.flip and side < 0.5 else images[number]
        wide = torch.zeros(size + 2 * how.pad, size + 2 * how.pad, images.shape[3], dtype=images.dtype)
        wide[how.pad : how.pad + size, how.pad : how.pad + size] = image
        top, left = (int(draw * (2 * how.pad + 1)) for draw in (row, column))
        shown.append(wide[top : top + size, left : left + size])
    return torch.stack(shown)


@pytest.mark.parametrize("how", [Augmentation(2), Augmentation(1, flip=True), Augmentation(0, flip=True)])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_block_is_moved_as_each_image_would_be(how: Augmentation, channels: int) -> None:
    source = torch.Generator().manual_seed(1)
    images = torch.randint(1, 256, (5, 6, 6, channels), dtype=torch.uint8, generator=source)
    numbers = torch.randint(5, (200,), generator=source)
    draws = torch.rand(200, 3, generator=source)
    expected = one_by_one(images, numbers, draws, how)
    assert torch.equal(how.crop(how.border(images), numbers, draws), expected)
    assert len({shown.numpy().tobytes() for shown in expected}) > 5


def test_the_border_is_in_proportion_to_the_image(comes_to_what_was_read: ComesTo) -> None:
    comes_to_what_was_read("augmentations.txt", {"augmentation": augmentation})
