"""A run that is refused before its clock starts: one line that says why, and no run directory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.config import Config
from aiperf.device import first_kind
from aiperf.errors import ConfigError, DataError, WorldError
from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from aiperf.ranks.rank_options import RankOptions
from aiperf.ranks.ranks import Ranks
from aiperf.run.checks import refuse_secrets
from aiperf.run.run import _removed_if_refused, begin
from tests.aiperf.commands.typed import Typed
from tests.aiperf.groups import FakeWorld, Refuses
from tests.aiperf.presets import resolved_preset
from tests.launch.stand_ins import install

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]


def begun(config: Config, directory: Path) -> None:
    begin(config, RunFiles(directory), Ranks(RankOptions("cpu")), lambda replay, t: None)


def test_a_refused_run_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ranks, "world", lambda self, config, files: FakeWorld(Refuses))
    with pytest.raises(WorldError, match=r"^rank 2 on node2: the data is not here$"):
        begun(resolved_preset("digits"), tmp_path / "runs" / "one")
    assert not (tmp_path / "runs").exists()


def test_a_secret_in_the_configuration_is_refused(tmp_path: Path) -> None:
    digits = resolved_preset("digits")
    data = replace(digits.data, name="imagefolder", path=f"/data/hf_{'a1B2' * 8}")
    with pytest.raises(ConfigError, match=r"^data\.path looks like a secret.*; give it without the secret$"):
        begun(replace(digits, data=data, seed_architecture="residual-8-16-32"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    refuse_secrets(replace(digits, data=replace(data, path=f"mine/{'9f86d081' * 4}")))


def test_what_was_in_the_directory_stays(tmp_path: Path) -> None:
    files = RunFiles(tmp_path)
    (tmp_path / "logs").mkdir()
    before = [tmp_path / "logs", tmp_path / "logs" / "mine", tmp_path / "slurm-1.out"]
    for path in before[1:]:
        path.touch()

    def refused() -> None:
        with _removed_if_refused(files, Replay()):
            files.journal.touch()
            files.config.touch()
            raise DataError("of other classes")

    with pytest.raises(DataError):
        refused()
    assert sorted(tmp_path.rglob("*")) == before


def test_devices_that_torch_does_not_see_are_not_replaced_by_the_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: Typed
) -> None:
    if first_kind() != "cpu":
        pytest.skip("torch sees the devices of this host")
    install(tmp_path / "bin", {"nvidia-smi": "#!/bin/sh\necho 'GPU 0: NVIDIA T4 (UUID: GPU-5a)'\n"})
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert typed("run", "--directory", tmp_path / "run") == 1
    last = typed.err.splitlines()[-1]
    assert last.startswith("aiperf-hpc: rank 1 on ")
    assert "nvidia-smi lists 1 device, torch " in last
    assert last.endswith("install the matching build of torch, or use the processor with --device cpu")
    assert not (tmp_path / "run").exists()
