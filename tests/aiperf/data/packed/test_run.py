"""A whole run on packed images that are staged, from the command to the verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.aiperf.data.packed.pack import call, packed
from tests.aiperf.data.sets import write_folders


@pytest.mark.slow
def test_a_run_on_packed_images_is_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    write_folders(tmp_path / "set")
    target, run = packed(tmp_path / "set", tmp_path / "packed"), tmp_path / "run"
    settings = ("data.size=16", "training.epochs=[2]", "training.batch_size=8", f"data.stage={tmp_path}/disk")
    words = [word for setting in settings for word in ("--set", setting)]
    asked = ("run", "--data", target, "--max-trials", 2, "--minutes", 1, *words)
    rehearsed = call(*asked, "--dry-run")
    assert "packed, 3 classes, 16 x 16, 3 channels; 27 training, 9 validation, 15 test" in rehearsed.stdout
    assert not (tmp_path / "disk").exists()
    done = call(*asked, "--directory", run)
    assert done.returncode == 0, done.stderr
    assert "VALID, class smoke" in done.stdout
    assert len(list((tmp_path / "disk").glob("*/*.shard"))) == 2
    judged = call("validate", run, "--reevaluate")
    assert judged.returncode == 0, judged.stdout
    assert judged.stdout.count(" in the journal: agrees") == 2
