"""Generated text: a chain of order 2, the same for a seed, no window of it in two parts."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch

from aiperf.config import DataConfig
from aiperf.data import Data, Split, load
from aiperf.data.texts.generated import SHARES
from aiperf.errors import DataError

CPU = torch.device("cpu")
CONFIG = DataConfig(
    "synthetic-text", 1, 64, 256, training_examples=2000, validation_examples=50, test_examples=300
)


def whole(split: Split) -> torch.Tensor:
    """The bytes (windows, 65) of each window."""
    symbols, targets = (torch.cat(each) for each in zip(*split.sweep(64)))
    assert torch.equal(symbols[:, 1:], targets[:, :-1])
    return torch.cat([symbols, targets[:, -1:]], 1)


def window(seed: int, number: int, length: int) -> bytes:
    """The same window, a byte after the other."""

    def mixed(word: int) -> int:
        for _ in range(2):
            word = (word >> 16 ^ word) * 0x45D9F3B % 2**32
        return word >> 16 ^ word

    source = np.random.default_rng(seed)
    letters = source.permutation(256)[:16].tolist()
    steps = [step for step, share in zip(source.permutation(16).tolist(), SHARES) for _ in range(share)]
    key = mixed(number ^ int(source.integers(2**32 - 1, endpoint=True)))
    symbol, step = key % 16, None
    text = [letters[symbol]]
    for at in range(1, length):
        noise = mixed(key ^ mixed(at))
        if step is None or noise % 2:
            step = steps[noise // 256 % 256]
        symbol = (symbol + step) % 16
        text.append(letters[symbol])
    return bytes(text)


def test_windows_are_those_of_the_chain_written_down() -> None:
    data = load(CONFIG, CPU, 5)
    first = {"train": 0, "validation": 2000, "test": 2050}
    for name, number in first.items():
        shown = whole(getattr(data, name))
        assert shown.dtype == torch.int64
        for index in (0, 1, 37):
            assert bytes(shown[index].tolist()) == window(5, number + index, 65)


def test_what_is_known_of_the_last_two_bytes_is_all_there_is_to_know() -> None:
    """Counts of training, in bits per byte of test: 4 of order 0, 1.98 of order 1, 1.48 of orders 2 and 3."""
    data = load(replace(CONFIG, training_examples=20_000), CPU, 1)
    trained, tested = whole(data.train), whole(data.test)
    assert bits(trained, tested, 0) == pytest.approx(4.0, abs=0.01)
    assert bits(trained, tested, 1) == pytest.approx(1.98, abs=0.03)
    assert bits(trained, tested, 2) == pytest.approx(1.48, abs=0.03)
    assert bits(trained, tested, 3) == pytest.approx(1.48, abs=0.03)


def bits(trained: torch.Tensor, tested: torch.Tensor, order: int) -> float:
    """Per byte, of counts with one added."""
    letters = trained.unique()
    codes = [torch.searchsorted(letters, text) for text in (trained, tested)]
    length = codes[0].shape[1]
    context, following = zip(
        *(
            (
                sum(
                    (text[:, 3 - back : length - back] * 16 ** (back - 1) for back in range(1, order + 1)),
                    torch.zeros_like(text[:, 3:]),
                ),
                text[:, 3:],
            )
            for text in codes
        )
    )
    counts = torch.ones(16**order, 16, dtype=torch.float64)
    counts.index_put_((context[0], following[0]), torch.ones(1, dtype=torch.float64), accumulate=True)
    shares = counts / counts.sum(1, keepdim=True)
    return -shares[context[1], following[1]].log2().mean().item()


def test_no_window_is_in_two_parts() -> None:
    data = load(CONFIG, CPU, 1)
    shown = [{bytes(row.tolist()) for row in whole(split)} for split in parts(data)]
    assert [len(each) for each in shown] == [2000, 50, 300]
    assert len(set().union(*shown)) == 2350


def test_the_seed_makes_the_text_and_its_fingerprint() -> None:
    one, again, other = (load(CONFIG, CPU, seed) for seed in (1, 1, 2))
    assert one.manifest == again.manifest
    assert one.manifest["sha256"] != other.manifest["sha256"]
    assert torch.equal(whole(one.test), whole(again.test))
    assert not torch.equal(whole(one.test), whole(other.test))


def test_the_manifest() -> None:
    told = dict(load(CONFIG, CPU, 1).manifest)
    assert len(told.pop("sha256")) == 64
    assert told == {
        "name": "synthetic-text",
        "synthetic": True,
        "channels": 1,
        "size": 64,
        "classes": 256,
        "official_training_examples": 2050,
        "training_examples": 2000,
        "validation_examples": 50,
        "test_examples": 300,
        "bytes_left_out": 0,
    }


def test_a_pass_shows_each_window_once_whatever_the_ranks() -> None:
    data = load(replace(CONFIG, training_examples=30), CPU, 1)
    known = {bytes(row.tolist()): number for number, row in enumerate(whole(data.train)[:, :-1])}
    for ranks in (1, 2, 3):
        streams = [data.train.stream(7, 4, rank, ranks) for rank in range(ranks)]
        shown = [
            known[bytes(row.tolist())] for _ in range(9) for stream in streams for row in next(stream)[0]
        ]
        assert sorted(shown[:30]) == sorted(shown[30:60]) == list(range(30))
        assert shown[:30] != shown[30:60]
        if ranks == 1:
            alone = shown
        assert shown == alone


def test_a_billion_windows_hold_nothing() -> None:
    data = load(replace(CONFIG, size=1024, validation_examples=10**9), CPU, 1)
    symbols, targets = next(islice(data.validation.sweep(4), 1, 2))
    assert symbols.shape == targets.shape == (4, 1024)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (
            {"test_examples": 0},
            (
                "synthetic text: data.training_examples, data.validation_examples and data.test_examples "
                "must all be set in the configuration"
            ),
        ),
        (
            {"training_examples": 2**31, "test_examples": 2**31},
            (
                "synthetic text: 4,294,967,346 windows requested, but only 4,294,967,295 differ; "
                "lower data.training_examples"
            ),
        ),
    ],
)
def test_what_it_cannot_do_is_refused(changed: dict[str, int], expected: str) -> None:
    with pytest.raises(DataError) as refused:
        load(replace(CONFIG, **changed), CPU, 1)
    assert str(refused.value) == expected


def parts(data: Data) -> tuple[Split, Split, Split]:
    return data.train, data.validation, data.test
