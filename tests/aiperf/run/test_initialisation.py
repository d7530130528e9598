"""What is refused before the clock starts, and what the user reads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.config import Config
from aiperf.device import first_kind
from aiperf.errors import ConfigError, DataError, WorldError
from aiperf.journal.events import RankReady
from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from aiperf.proposing.pace import block_seconds
from aiperf.ranks.rank_options import RankOptions
from aiperf.ranks.ranks import Ranks
from aiperf.rules import trial_length
from aiperf.run import initialisation, master
from aiperf.run.checks import refuse_secrets
from aiperf.run.groups import devices_by_host
from aiperf.run.handler import refuse_difference
from aiperf.run.run import _removed_if_refused, begin
from aiperf.wire.reports import NOTE, Ready
from tests.aiperf.commands.typed import Typed
from tests.aiperf.groups import FakeWorld, Refuses
from tests.aiperf.presets import resolved_preset
from tests.journals import READY
from tests.launch.stand_ins import install
from tests.tables import ComesTo

SECOND = replace(READY, rank=2, host="node2")


def differing(**changes: object) -> None:
    refuse_difference(replace(SECOND, **changes), READY)  # type: ignore[arg-type]


def with_devices(*ids: str, visible: int) -> list[Ready]:
    return [
        replace(READY, rank=1 + index, device_id=each, visible_devices=visible)
        for index, each in enumerate(ids)
    ]


def idle(*ids: str, visible: int) -> None:
    initialisation.refuse_idle_devices(with_devices(*ids, visible=visible))


def apart(seconds: float, uncertainty: float | None = None) -> None:
    ready = [RankReady(0, READY, 0.9), RankReady(1, SECOND, seconds, uncertainty)]
    initialisation.refuse_other_clocks(ready)


def computing(format: str) -> None:
    ready = [READY, replace(SECOND, multiplies={"convolution": format})]
    initialisation.refuse_other_formats("bf16", ready)


def late(*groups: tuple[int, ...]) -> str:
    return str(initialisation.not_in_time(1800.0, groups, [READY, SECOND][: len(groups)]))


CHANGES = {"formats": {"bf16": 1e9, "fp32": 1e10}, "settings": {NOTE: "no driver"}}


def notes(**of_second: object) -> list[str]:
    """What a person reads, once, where both ranks differ so from the usual ones."""
    changes = CHANGES if of_second else {}
    ranks = [replace(READY, **changes), replace(SECOND, **changes, **of_second)]  # type: ignore[arg-type]
    return initialisation.notes(Path("/runs/one"), "bf16", ranks)


def test_what_makes_work_incomparable_or_a_device_idle_is_refused_and_what_a_person_reads(
    comes_to_what_was_read: ComesTo,
) -> None:
    comes_to_what_was_read("refused_ranks.txt", {**globals(), "devices_by_host": devices_by_host})


def test_a_stop_is_obeyed_within_the_time_that_the_rules_allow() -> None:
    assert master.STOP_SECONDS + block_seconds(10**6, 3600.0) < trial_length.STOP_SECONDS


# A run that is refused leaves no run directory


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
