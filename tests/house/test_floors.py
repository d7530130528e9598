"""An import goes sideways or down, never up; torch, MPI and plotting each enter on one floor."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house import floors
from tests.house.tree import PACKAGES, ROOT, expect_none, module_name, sources

MODULES = sources(*PACKAGES)


def test_no_import_goes_upward() -> None:
    expect_none(fault for path in MODULES for fault in floors.faults(path))


def test_every_module_a_floor_names_is_there() -> None:
    there = {module_name(path) for path in MODULES}
    named = {name for floor in floors.FLOORS for name in floor.modules}
    built = {name for name in named if (ROOT / name.partition(".")[0]).is_dir()}
    expect_none(built - there)


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("nas/ops.py", "import torch"),
        ("nas/ops.py", "import aiperf.trial"),
        ("nas/ops.py", "from . import modules"),
        ("nas/search/evolution.py", "import sklearn"),
        ("aiperf/trial.py", "if TYPE_CHECKING:\n    from torch import Tensor"),
        ("aiperf/trial.py", "def f():\n    import aiperf.worker"),
        ("aiperf/trial.py", "from importlib import import_module\nimport_module('torch')"),
        ("aiperf/trial.py", "from aiperf import worker"),
        ("aiperf/trial.py", "from .worker import Worker"),
        ("aiperf/trial.py", "import matplotlib"),
        ("aiperf/train.py", "import mpi4py"),
        ("aiperf/world.py", "import torch"),
        ("launch/slurm.py", "import numpy"),
    ],
)
def test_a_wrong_import_is_found(
    module: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in MODULES:
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.touch()
    monkeypatch.setattr("tests.house.floors.ROOT", tmp_path)
    monkeypatch.setattr("tests.house.tree.ROOT", tmp_path)
    path = tmp_path / module
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(line, encoding="utf-8")
    assert len(floors.faults(path)) == 1


def test_a_search_library_is_imported_where_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.house.floors.ROOT", tmp_path)
    monkeypatch.setattr("tests.house.tree.ROOT", tmp_path)
    path = tmp_path / "nas/search/bayesian.py"
    path.parent.mkdir(parents=True)
    path.write_text("def fit():\n    import sklearn.ensemble", encoding="utf-8")
    assert floors.faults(path) == []


def test_no_conftest_keeps_pure_tests_from_a_pure_run() -> None:
    """A folder whose conftest needs torch is left out whole, so nothing pure may lie there."""
    above = [path for path in sources("tests") if path.name == "conftest.py" and floors.needs_torch(path)]
    beside = [test for conftest in above for test in conftest.parent.rglob("test_*.py")]
    expect_none(
        f"{test}: needs no torch, its conftest does" for test in beside if not floors.needs_torch(test)
    )
