"""The file kept for a trial, and the log of a rank with what a killed rank or a full disk leaves."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from aiperf.errors import DataError
from aiperf.journal.events import Closed, Stepped
from aiperf.journal.run_files import RunFiles
from aiperf.tasks.images.tally import Classified
from aiperf.training.kept_network import Kept, read_kept, write_kept
from aiperf.training.rank_log import StepLog
from aiperf.wire.trial import Segment, StepBlock
from nas.morphisms.text import WidenStream
from nas.record import graph_to_json
from nas.seeds import residual
from nas.text_seeds import llama_4x128
from nas.weights import digest, initial
from tests.journals import log_line

GRAPH = residual()


def kept() -> Kept:
    weights = initial(GRAPH, 1)
    momentum = {name: np.full(shape, 0.5, np.float32) for name, shape in GRAPH.weights.items()}
    return Kept(GRAPH, weights, {"momentum": momentum})


def digests(kept: Kept) -> dict[str, str]:
    """Those of the weights and of each kind of state, by names, types, shapes and values."""
    return {kind: digest(arrays) for kind, arrays in {"": kept.weights, **kept.state}.items()}


@pytest.mark.contract
def test_what_was_written_is_read(tmp_path: Path) -> None:
    """A number of steps, as AdamW's, is one number, of shape (), and comes back as that."""
    steps = {name: np.array(7, np.float32) for name in GRAPH.weights}
    path, whole = tmp_path / "weights" / "3.safetensors", kept()
    for state in ({}, whole.state, {**whole.state, "step": steps}):
        written = replace(whole, state=state)
        file_digest = write_kept(path, written)
        found = read_kept(path)
        assert (found.graph, digests(found)) == (GRAPH, digests(written))
        assert file_digest == sha256(path.read_bytes()).hexdigest()
        assert [entry.name for entry in path.parent.iterdir()] == ["3.safetensors"]
    assert {array.shape for array in found.state["step"].values()} == {()}


def test_each_kind_of_state_follows_a_factor_in_its_own_way() -> None:
    """A wider stream makes γ's gradient √(D/d) times as long; its square goes by D/d, its steps stay."""
    parent = llama_4x128((8,))
    ones = {name: np.ones(shape, np.float32) for name, shape in parent.weights.items()}
    steps = dict.fromkeys(ones, np.array(7, np.float32))
    state = {"momentum": ones, "exp_avg": ones, "exp_avg_sq": ones, "step": steps}
    child = Kept(parent, initial(parent, 1), state).grown(WidenStream("embedding", 512, 0))
    found = {kind: arrays["norm.weight"] for kind, arrays in child.state.items()}
    for kind, factor in (("momentum", 2.0), ("exp_avg", 2.0), ("exp_avg_sq", 4.0)):
        assert np.array_equal(found[kind], np.repeat(np.float32([factor, 0.0]), [128, 384])), kind
    assert found["step"] == 7


def test_a_file_of_before_there_were_other_optimizers_is_read(tmp_path: Path) -> None:
    """Its names, as they were always written."""
    tensors = {f"weights/{name}": array for name, array in kept().weights.items()}
    tensors |= {f"momentum/{name}": array for name, array in kept().state["momentum"].items()}
    save_file(tensors, tmp_path / "0.safetensors", {"graph": json.dumps(graph_to_json(GRAPH))})
    assert digests(read_kept(tmp_path / "0.safetensors")) == digests(kept())
    again = write_kept(tmp_path / "1.safetensors", kept())
    assert again == sha256((tmp_path / "0.safetensors").read_bytes()).hexdigest()


def test_a_run_directory_that_was_renamed_is_not_made_again(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_kept(RunFiles(tmp_path / "run").weights(0), kept())
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "1.safetensors"
    write_kept(path, kept())
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"1\.safetensors: the kept weights cannot be read"):
        read_kept(path)
    with pytest.raises(DataError, match=r"2\.safetensors"):
        read_kept(tmp_path / "2.safetensors")


def test_weights_of_another_architecture_are_refused(tmp_path: Path) -> None:
    weights = initial(residual(widths=(4, 8, 24)), 1)
    write_kept(tmp_path / "1.safetensors", Kept(GRAPH, weights, {}))
    with pytest.raises(DataError, match="do not fit the architecture"):
        read_kept(tmp_path / "1.safetensors")


def test_the_digest_is_that_of_the_file_also_where_a_rank_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "log"
    for _ in range(2):  # the second time it was started again
        with StepLog(path) as log:
            assert log.digest() == sha256(path.read_bytes()).digest()
            log.steps(0, 1, 0, 2, 100)
            log.answers(0, 1, 0, Classified(4, 3))
            assert log.digest() == sha256(path.read_bytes()).digest()
    tally = Classified(4, 3)
    block, segment = StepBlock(0, 1, 0, 2, 100, 1.0, 1.0), Segment(0, 1, 0, 2, 100, 1.0, tally, 1.0)
    fabricated = log_line(Stepped(block, 1.0), 0, 1) + log_line(Closed(segment, 2.0), 0, 1)
    assert path.read_text() == 2 * fabricated
    assert path.read_text().splitlines() == 2 * [
        '{"trial": 0, "attempt": 1, "segment": 0, "steps": 2, "examples": 100}',
        '{"trial": 0, "attempt": 1, "segment": 0, "of": 4, "correct": 3}',
    ]


def test_a_line_that_a_killed_rank_left_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with StepLog(path) as log:
        log.steps(0, 1, 0, 2, 100)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"trial": 0, "att')
    with StepLog(path) as log:
        assert path.read_bytes() == whole
        assert log.digest() == sha256(whole).digest()


def test_a_full_disk_leaves_no_part_of_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    with StepLog(path) as log:
        log.steps(0, 1, 0, 2, 100)
        whole = path.read_bytes()
        real, room = os.write, [5]

        def write(file: int, data: bytes) -> int:
            if not room:
                raise OSError(28, "No space left on device")
            return real(file, data[: room.pop()])

        with monkeypatch.context() as patched:
            patched.setattr(os, "write", write)
            with pytest.raises(OSError, match="No space left"):
                log.steps(0, 1, 0, 3, 150)
        assert path.read_bytes() == whole
        log.answers(0, 1, 0, Classified(4, 3))
        assert log.digest() == sha256(path.read_bytes()).digest()
        assert len(path.read_text().splitlines()) == 2
