"""The windows of a text: which bytes they hold, each predicted once, the same for any number of ranks."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
import torch

from aiperf.config import DataConfig, load_preset, parse_setting, with_overrides
from aiperf.data import Data, load
from aiperf.data.texts import grid, loading, reading
from aiperf.tasks.language.data import TextData
from tests.aiperf.data.sets import CPU, refusal
from tests.tables import ComesTo

TINY = bytes(range(200))  # each byte says where it is
SIZE = 4


def written(folder: Path, text: bytes = TINY) -> str:
    path = folder / "text"
    path.write_bytes(text)
    return str(path)


def config(path: str, size: int = SIZE, training: int = 0, validation: int = 0) -> DataConfig:
    return TextData(
        "text", 1, size, 256, path=path, training_examples=training, validation_examples=validation
    )


@pytest.fixture(params=["read", "held", "folder"])
def data(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Data:
    """The tiny text in each of the ways in which it may lie."""
    monkeypatch.setattr(grid, "BLOCK_BYTES", 4096)  # else half a megabyte of tiny windows is read ahead
    monkeypatch.setattr(loading, "is_held", lambda device, num_bytes: request.param == "held")
    if request.param != "folder":
        return load(config(written(tmp_path)), CPU, 1)
    monkeypatch.setattr(reading, "MOST_MAPPED", 2)
    monkeypatch.setattr(reading, "is_text", lambda path: None)  # for the byte 0 is in no text
    (tmp_path / "deeper").mkdir()
    # In the order of their bytes: "-" comes before "/".
    pieces = {"a": 3, "deeper-": 1, "deeper/a": 90, "deeper/b": 0, "ä": 70, "ö": 36}
    begin = 0
    for name, length in pieces.items():
        (tmp_path / name).write_bytes(TINY[begin : begin + length])
        begin += length
    assert begin == len(TINY)
    return load(config(str(tmp_path)), CPU, 1)


def pairs(batches: object) -> list[tuple[list[int], list[int]]]:
    return [
        (window.tolist(), following.tolist())
        for symbols, targets in batches
        for window, following in zip(symbols, targets, strict=True)
    ]


def test_validation_and_test_are_adjoining_windows(data: Data) -> None:
    assert pairs(data.validation.sweep(2)) == [
        ([180, 181, 182, 183], [181, 182, 183, 184]),
        ([184, 185, 186, 187], [185, 186, 187, 188]),
    ]
    assert pairs(data.test.sweep(8)) == [
        ([190, 191, 192, 193], [191, 192, 193, 194]),
        ([194, 195, 196, 197], [195, 196, 197, 198]),
    ]


def test_a_batch_is_whole_numbers_of_64_bits(data: Data) -> None:
    for symbols, targets in (*islice(data.train.stream(6, 1), 2), *data.test.sweep(8)):
        assert symbols.dtype == targets.dtype == torch.int64
        assert symbols.shape == targets.shape == (len(symbols), SIZE)
        assert symbols.is_contiguous()
        assert targets.is_contiguous()


def test_a_pass_is_the_grid_of_windows_from_one_offset(data: Data) -> None:
    windows = data.train.num_examples
    assert windows == 44
    shown = pairs(islice(data.train.stream(windows, 7), 8))
    offsets, orders = set(), set()
    for first in range(0, len(shown), windows):
        starts = [symbols[0] for symbols, _ in shown[first : first + windows]]
        offset = min(starts)
        assert 0 <= offset < SIZE
        assert sorted(starts) == list(range(offset, offset + SIZE * windows, SIZE))
        offsets.add(offset)
        orders.add(tuple((start - offset) // SIZE for start in starts))
    assert offsets == set(range(SIZE))
    assert len(orders) == 8
    assert all(symbols[1:] == targets[:-1] for symbols, targets in shown)
    assert all(targets == list(range(symbols[0] + 1, symbols[0] + 5)) for symbols, targets in shown)
    assert max(targets[-1] for _, targets in shown) < 180


def test_passes_run_into_one_another(data: Data) -> None:
    """Steps that divide no pass show the same windows in the same order."""
    whole = pairs(islice(data.train.stream(44, 3), 5))
    assert pairs(islice(data.train.stream(5, 3), 44)) == whole
    assert pairs(islice(data.train.stream(110, 3), 2)) == whole


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_each_byte_of_a_part_is_predicted_once_over_all_ranks(tmp_path: Path, ranks: int) -> None:
    text = random.Random(3).randbytes(5000)
    data = load(config(written(tmp_path, text), size=7), CPU, 1)
    for split, part in ((data.validation, text[4500:4750]), (data.test, text[4750:])):
        sweeps = [batch for rank in range(ranks) for batch in split.sweep(6, rank, ranks)]
        assert max(len(symbols) for symbols, _ in sweeps) * ranks <= 6
        predicted = [byte for _, targets in pairs(sweeps) for byte in targets]
        assert bytes(predicted) == part[1 : 1 + 7 * split.num_examples]
        assert 0 <= len(part) - 1 - len(predicted) < 7


def test_the_manifest(data: Data, as_it_was_read: Callable[[str, str], None]) -> None:
    """By sha256sum of the bytes 0 … 199, however they lie; of these 200 - 48 * 4 - 3 are left out."""
    as_it_was_read(json.dumps(dict(data.manifest), indent=1) + "\n", "manifest.json")


def test_short_epochs_go_through_all_windows_and_less_is_validated(tmp_path: Path) -> None:
    data = load(config(written(tmp_path), training=5, validation=1), CPU, 1)
    whole = load(config(written(tmp_path)), CPU, 1)
    assert data.train.num_examples == 5
    epochs = pairs(islice(data.train.stream(5, 1), 44))
    assert epochs == pairs(islice(whole.train.stream(44, 1), 5))  # five passes of all 44 windows
    assert pairs(data.validation.sweep(8)) == [([180, 181, 182, 183], [181, 182, 183, 184])]
    assert data.manifest["official_training_examples"] == 46
    assert data.manifest["bytes_left_out"] == 200 - 8 * 4 - 3


def test_what_does_not_fit_is_refused(tmp_path: Path, comes_to_what_was_read: ComesTo) -> None:
    """With what to lower, and how long the text must be; where no window fits, without a setting."""

    def refused(text: bytes = TINY, **changed: int) -> str:
        return refusal(config(path := written(tmp_path, text), **changed)).replace(path, "text")

    comes_to_what_was_read("refused_texts.txt", {"refused": refused})


@pytest.mark.parametrize("num_bytes", [60, 79, 80, 3000, 5139, 5140, 20_000, 60_000, 655_339])
def test_who_follows_either_remedy_is_not_refused_again(tmp_path: Path, num_bytes: int) -> None:
    """The preset asks for more windows than a small text has."""
    text, preset = random.Random(num_bytes).randbytes(700_000), load_preset("text")
    path = written(tmp_path, text[:num_bytes])
    small = with_overrides(preset, {"data.path": path})
    lowered, _, enough = refusal(small.data).rpartition("; or give a text of at least ")
    settings = dict(map(parse_setting, lowered.split(" --set ")[1:]))
    assert settings
    load(with_overrides(small, settings).data, CPU, 1)
    Path(path).write_bytes(text[: int(enough.removesuffix(" bytes").replace(",", ""))])
    load(small.data, CPU, 1)


def test_a_text_of_up_to_a_gibibyte_lies_on_its_device() -> None:
    """But for a processor, whose memory it lies in."""
    for kind, size, held in (("cpu", 1, False), ("cuda", 1 << 30, True), ("cuda", (1 << 30) + 1, False)):
        assert loading.is_held(torch.device(kind), size) == held
    assert loading.is_held(torch.device("xpu"), 10**9)
