"""Generated images and text: different, learnable, the same for a seed, and cheap to hold."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch

from aiperf.config import DataConfig
from aiperf.data import Data, Split, load
from aiperf.data.synthetic import LINES
from aiperf.data.texts.generated import SHARES
from aiperf.tasks.images.data import ImageData
from aiperf.tasks.language.data import TextData
from aiperf.tasks.language.facts import GENERATED_BITS
from aiperf.tasks.registry import task_of
from tests.aiperf.data.sets import CPU, refusal
from tests.tables import ComesTo

IMAGES = ImageData("synthetic", 3, 16, 5, training_examples=500, validation_examples=50, test_examples=200)
TEXT = TextData(
    "synthetic-text", 1, 64, 256, training_examples=2000, validation_examples=50, test_examples=300
)
both = pytest.mark.parametrize("config", [IMAGES, TEXT], ids=["images", "text"])


def whole(split: Split) -> tuple[torch.Tensor, torch.Tensor]:
    examples, labels = (torch.cat(each) for each in zip(*split.sweep(64)))
    return examples, labels


def texts(split: Split) -> torch.Tensor:
    """The bytes (windows, 65) of each window."""
    symbols, targets = whole(split)
    assert torch.equal(symbols[:, 1:], targets[:, :-1])
    return torch.cat([symbols, targets[:, -1:]], 1)


def parts(data: Data) -> tuple[Split, Split, Split]:
    return data.train, data.validation, data.test


@both
def test_the_seed_makes_the_set_and_its_fingerprint(config: DataConfig) -> None:
    one, again, other = (load(config, CPU, seed) for seed in (1, 1, 2))
    assert one.manifest == again.manifest
    assert one.manifest["synthetic"] is True
    assert one.manifest["sha256"] != other.manifest["sha256"]
    assert torch.equal(whole(one.test)[0], whole(again.test)[0])
    assert not torch.equal(whole(one.test)[0], whole(other.test)[0])


@both
def test_all_examples_are_different(config: DataConfig) -> None:
    shown = [whole(split)[0] for split in parts(load(config, CPU, 1))]
    counts = [config.training_examples, config.validation_examples, config.test_examples]
    assert [len(examples) for examples in shown] == counts
    assert len({each.numpy().tobytes() for each in torch.cat(shown)}) == sum(counts)
    if config is IMAGES:  # and white on the whole
        assert abs(torch.cat(shown).mean().item()) < 0.1
        assert abs(torch.cat(shown).std().item() - 1) < 0.1


def test_images_can_be_learnt_and_what_is_learnt_holds_on_the_test_images() -> None:
    data = load(IMAGES, CPU, 1)
    seen, labels = whole(data.train)
    weights = torch.linalg.lstsq(
        seen.flatten(1), torch.nn.functional.one_hot(labels, 5).float(), driver="gelsd"
    )
    tested, expected = whole(data.test)
    right = (tested.flatten(1) @ weights.solution).argmax(1) == expected
    assert right.float().mean() > 0.9


def test_a_set_of_the_size_of_imagenet_holds_megabytes_and_any_shape_will_do() -> None:
    large: dict[str, Any] = {
        "training_examples": 1_231_167,
        "validation_examples": 50_000,
        "test_examples": 50_000,
    }
    data = load(replace(IMAGES, size=224, classes=1000, **large), CPU, 1)
    tensors = [value for split in parts(data) for value in vars(split).values()]
    held = {value.data_ptr(): value.nbytes for value in tensors if isinstance(value, torch.Tensor)}
    assert sum(held.values()) < 64 << 20
    assert next(data.train.stream(4, 1))[0].shape == (4, 3, 224, 224)
    assert data.manifest["training_examples_per_class"] == [1231, 1232]
    assert next(load(replace(IMAGES, channels=2, size=7), CPU, 1).train.stream(3, 1))[0].shape == (3, 2, 7, 7)


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


def test_the_entropy_that_the_rules_know_is_that_of_the_chain() -> None:
    """Half of all steps repeat the one before, the others are drawn."""
    drawn = np.array(SHARES) / sum(SHARES)
    following = (np.eye(len(drawn)) + drawn) / 2
    assert pytest.approx(-(drawn @ (following * np.log2(following)).sum(axis=1)), abs=5e-4) == GENERATED_BITS


def test_windows_are_those_of_the_chain_written_down() -> None:
    data = load(TEXT, CPU, 5)
    for split, number in zip(parts(data), (0, 2000, 2050)):
        for index in (0, 1, 37):
            assert bytes(texts(split)[index].tolist()) == window(5, number + index, 65)


@both
def test_the_manifest_is_what_is_foreseen_of_it(config: DataConfig) -> None:
    manifest = load(config, CPU, 1).manifest
    assert {**manifest, "sha256": ""} == task_of(config).data.foreseen(config)


def test_a_billion_windows_hold_nothing() -> None:
    data = load(replace(TEXT, size=1024, validation_examples=10**9), CPU, 1)
    symbols, targets = next(islice(data.validation.sweep(4), 1, 2))
    assert symbols.shape == targets.shape == (4, 1024)


def test_what_it_cannot_do_is_refused(comes_to_what_was_read: ComesTo) -> None:
    comes_to_what_was_read("refused_generated.txt", globals() | {"LINES": LINES, "refusal": refusal})
