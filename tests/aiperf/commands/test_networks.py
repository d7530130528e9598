"""`graph --torch` and `--onnx`: a recorded run's best network answers elsewhere as it did in the run."""

from __future__ import annotations

import runpy
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import onnxruntime
import pytest
import torch

from aiperf.data import load
from aiperf.errors import DataError
from aiperf.journal.file import read_journal
from aiperf.journal.replay import replay
from tests.aiperf.commands.typed import Typed
from tests.house.tree import ROOT

RUN = ROOT / "tests/recorded/groups"


def test_both_files_answer_as_the_journal_says(typed: Typed, tmp_path: Path) -> None:
    python, onnx = tmp_path / "best.py", tmp_path / "best.onnx"
    assert typed("graph", RUN, "--torch", python, "--onnx", onnx) == 0, typed.err
    assert typed.out.split() == [str(python), str(tmp_path / "best.safetensors"), str(onnx)]
    run = replay(read_journal(RUN / "journal.jsonl"))
    config = run.opened.config
    test = load(config.data, torch.device("cpu"), config.random_seed).test
    parts = [(images.numpy(), targets.numpy()) for images, targets in test.sweep(16, 0, 1)]
    images, targets = (np.concatenate(part) for part in zip(*parts))
    (by_onnx,) = onnxruntime.InferenceSession(str(onnx)).run(["logits"], {"images": images})
    by_torch = runpy.run_path(str(python))["load"]()(torch.from_numpy(images)).detach().numpy()
    np.testing.assert_allclose(by_onnx, by_torch, rtol=1e-4, atol=1e-4)
    for logits in (by_onnx, by_torch):
        assert (int((logits.argmax(1) == targets).sum()), len(targets)) == (run.tested.tally.correct, 64)
    assert np.bincount(targets).max() < 40  # no answer that is always the same does it
    assert "network: trial 0 of groups\n" in python.read_text(encoding="utf-8")
    assert "test: 0 of 64 wrong\n" in python.read_text(encoding="utf-8")


def test_without_the_data_a_line_says_that_prepare_is_missing(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse = Mock(side_effect=DataError("/data is not a folder"))
    monkeypatch.setattr("aiperf.training.found_network.preparation_of", refuse)
    assert typed("graph", RUN, "--torch", tmp_path / "best.py") == 0
    assert typed.err == (
        "aiperf-hpc: no prepare() in the file, for the data cannot be read here: /data is not a folder\n"
    )
    assert "prepare" not in (tmp_path / "best.py").read_text(encoding="utf-8")
