"""The text that comes with the program: what it is, and that nothing else is taken for it."""

from __future__ import annotations

import builtins
import lzma
import re
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import torch

from aiperf.config import DataConfig
from aiperf.data import load
from aiperf.data.texts import bundled
from aiperf.errors import DataError
from aiperf.known_sets import BUNDLED_TEXT, known_set
from tests.aiperf.data.sets import CPU

CONFIG = DataConfig("text", 1, 256, 256)
FOLDER = resources.files("aiperf") / "data" / "texts"


def test_it_is_a_known_text_of_2_690_563_bytes() -> None:
    data = load(CONFIG, CPU, 1)
    assert data.manifest["bytes"] == 2_690_563
    assert known_set(data.manifest) is BUNDLED_TEXT
    windows = {key: value for key, value in data.manifest.items() if key.endswith("_examples")}
    assert windows == {
        "official_training_examples": 9983,
        "training_examples": 9458,
        "validation_examples": 525,
        "test_examples": 525,
    }


def test_it_is_what_its_description_states() -> None:
    packed = (FOLDER / bundled.PACKED).read_bytes()
    text = lzma.decompress(packed)
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    for name, content in (("unpacked", text), ("packed", packed)):
        assert re.search(rf"\| {name} \| {len(content):,} bytes.*{sha256(content).hexdigest()}", page)
    assert 2_000_000 <= len(text) <= 3_000_000
    assert 500_000 <= len(packed) <= 800_000


def test_its_licence_lies_beside_it() -> None:
    text = (FOLDER / "LICENSE.txt").read_text(encoding="utf-8")
    for needed in (
        "Copyright © 2001-2023 Python Software Foundation; All Rights Reserved",
        "PSF LICENSE AGREEMENT FOR PYTHON 3.11.2",
        "ZERO-CLAUSE BSD LICENSE",
    ):
        assert needed in text


def test_it_lies_on_a_device_as_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    from aiperf.data.texts import loading

    def first(config: DataConfig) -> tuple[dict[str, Any], torch.Tensor, torch.Tensor]:
        data = load(config, CPU, 1)
        return dict(data.manifest), next(data.train.stream(9, 1))[0], next(data.test.sweep(1))[1]

    read = first(CONFIG)
    monkeypatch.setattr(loading, "is_held", lambda device, num_bytes: True)
    held = first(CONFIG)
    assert read[0] == held[0]
    assert torch.equal(read[1], held[1])
    assert torch.equal(read[2], held[2])


@pytest.mark.parametrize("content", [None, b"", b"no archive", lzma.compress(b"x" * 999)[:-9]])
def test_a_damaged_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    beside(tmp_path, monkeypatch, content)
    with pytest.raises(
        DataError,
        match=r"^the bundled text: .*xz cannot be read: .*; reinstall this "
        "program",
    ):
        load(CONFIG, CPU, 1)


def test_another_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside(tmp_path, monkeypatch, lzma.compress(b"another"))
    with pytest.raises(
        DataError, match=r"^the bundled text: SHA-256 .* instead of 0e2963bc.*; reinstall this"
    ):
        load(CONFIG, CPU, 1)


def test_a_python_without_lzma_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "lzma":
            raise ImportError("No module named '_lzma'")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(
        DataError,
        match=r"without lzma; build it with liblzma, or unpack .*xz with xz -dc "
        "and",
    ):
        bundled.bundled_text()


def beside(folder: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None) -> None:
    """Another installation of the program, with this file."""
    target = folder / "data" / "texts" / bundled.PACKED
    target.parent.mkdir(parents=True)
    if content is not None:
        target.write_bytes(content)
    monkeypatch.setattr(bundled.resources, "files", lambda package: folder)
