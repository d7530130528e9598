"""From one process to a master and its ranks, where no launcher started them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from aiperf.config import load_preset
from aiperf.errors import WorldError, installation
from aiperf.ranks import ranks
from aiperf.ranks.rank_options import RankOptions
from aiperf.ranks.ranks import Ranks, across
from aiperf.ranks.world import ALONE
from tests.tables import ComesTo

# Writes down how it was called, and ends as a run that its scheduler stopped.
MPIEXEC = """#!/bin/bash
printf '%s\\n' "$@" >"$LOG"
echo "$OMPI_ALLOW_RUN_AS_ROOT $PRTE_MCA_rmaps_default_mapping_policy" >>"$LOG"
exit 75
"""


def never(ranks: Ranks) -> int:
    raise AssertionError("nobody is to lead here")


@pytest.fixture(autouse=True)
def _command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["aiperf-hpc", "run", "--minutes", "1"])
    monkeypatch.setattr(ranks, "visible_devices", lambda kind: 4 if kind == "cuda" else 1)
    monkeypatch.setattr(ranks, "allowed_cores", lambda: 2)


def test_one_device_is_led_by_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    led: list[Ranks] = []

    def lead(ranks: Ranks) -> int:
        led.append(ranks)
        return 7

    assert across(RankOptions("cpu"), lead) == 7
    assert across(RankOptions("cuda", devices=1), lead) == 7
    assert [each.places(load_preset("digits")) for each in led] == [(ALONE,), (ALONE,)]
    assert [each.terminal for each in led] == [None, None]


@pytest.mark.parametrize(("hosts", "trains"), [((), True), (("a", "a", "b"), True), (("a", "b", "b"), False)])
def test_the_masters_host_trains_if_another_rank_is_there_or_none(
    hosts: tuple[str, ...], trains: bool
) -> None:
    assert Ranks(RankOptions("cpu"), hosts=hosts).masters_host_trains is trains


@pytest.mark.parametrize(("wanted", "number"), [(RankOptions("cuda"), 5), (RankOptions("cpu", devices=2), 3)])
def test_several_devices_are_several_ranks_of_the_same_command(
    wanted: RankOptions, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mpiexec = tmp_path / "mpiexec"
    mpiexec.write_text(MPIEXEC, encoding="utf-8")
    mpiexec.chmod(0o755)
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    monkeypatch.setattr(ranks, "_mpiexec", lambda: str(mpiexec))
    assert across(wanted, never) == 75, "what the ranks end with"
    words = (tmp_path / "log").read_text(encoding="utf-8").splitlines()
    assert words[:5] == ["-n", str(number), "--bind-to", "none", sys.executable]
    assert words[-4:] == ["run", "--minutes", "1", "1 :oversubscribe"]


def test_ranks_that_cannot_be_started_are_refused_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
) -> None:
    """Several devices without MPI, more ranks than devices or cores, and Horovod without MPI."""
    monkeypatch.setattr(ranks, "_mpiexec", lambda: None)

    def started(options: RankOptions, **environment: str) -> int:
        with monkeypatch.context() as patched:
            for name, value in environment.items():
                patched.setenv(name, value)
            try:
                return across(options, never)
            except WorldError as error:
                raise WorldError(str(error).replace(installation("mpi"), "INSTALL IT")) from None

    comes_to_what_was_read("unstarted.txt", {"started": started, "RankOptions": RankOptions})


def test_the_mpiexec_beside_this_python_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere, beside = tmp_path / "elsewhere", tmp_path / "bin"
    for folder in (elsewhere, beside):
        folder.mkdir()
        (folder / "mpiexec").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(elsewhere))
    monkeypatch.setattr("sys.executable", str(beside / "python"))
    monkeypatch.setitem(sys.modules, "mpi4py", object())
    assert ranks._mpiexec() == str(beside / "mpiexec")
    (beside / "mpiexec").unlink()
    assert ranks._mpiexec() == str(elsewhere / "mpiexec")
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    assert ranks._mpiexec() is None
