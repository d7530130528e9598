"""An import goes to its own package or down, never up; torch, MPI and plotting enter on their floors."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from tests.house import floors
from tests.house.tree import PACKAGES, ROOT, expect_none, module_name, sources

MODULES = sources(*PACKAGES)


MOST_MODULES = 18  # of a folder: more are chapters of something


def test_no_import_goes_upward() -> None:
    expect_none(fault for path in MODULES for fault in floors.faults(path))


def test_every_package_stands_on_its_floor() -> None:
    """As low as its imports allow; so the table is the drawing."""
    below: dict[str, int] = {}
    for path in MODULES:
        module = module_name(path)
        inner = (found.name for found in floors.imports(path) if found.top in PACKAGES)
        floors_of = [floors.floor_of(n) for n in inner if floors.package_of(n) != floors.package_of(module)]
        package = floors.package_of(module)
        below[package] = max([below.get(package, -1), *floors_of])
    named = [package for floor in floors.FLOORS for package in floor]
    expect_none(f"{name}: there is no such package" for name in set(named) - set(below))
    parts = {
        ".".join(module_name(path).split(".")[:2])
        for path in MODULES
        if len(path.relative_to(ROOT).parts) > 2
    }
    expect_none(
        f"{part}: stands on no floor" for part in parts if part not in named and not part.startswith("nas.")
    )
    expect_none(
        f"{name}: stands on floor {floors.floor_of(name)}, the highest that it imports from is {below[name]}"
        for name in named
        if floors.floor_of(name) != below.get(name, -1) + 1
    )


def test_the_drawing_is_the_table() -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    drawn = re.search(r"^```\n( ?\d+ .*?)^```", page, re.MULTILINE | re.DOTALL)
    assert drawn, "docs/architecture.md: no drawing of the floors"
    rows = [line.split() for line in drawn[1].splitlines()]
    stated = [[str(number), *floors.FLOORS[number]] for number in reversed(range(len(floors.FLOORS)))]
    assert [[row[0], *sorted(row[1:])] for row in rows] == [[row[0], *sorted(row[1:])] for row in stated]


def test_no_modules_import_each_other_in_a_circle() -> None:
    ways = {module_name(path): {found.name for found in floors.imports(path)} for path in MODULES}
    clear: set[str] = set()

    def circle(module: str, way: tuple[str, ...]) -> str:
        if module in way:
            return " → ".join([*way[way.index(module) :], module])
        if module in clear or module not in ways:
            return ""
        found = next(filter(None, (circle(name, (*way, module)) for name in sorted(ways[module]))), "")
        clear.add(module)
        return found

    expect_none({circle(module, ()) for module in ways} - {""})


def test_no_folder_is_a_warehouse() -> None:
    modules = [path for path in sources(*PACKAGES, "tests", "benchmarks") if path.name != "__init__.py"]
    folders = Counter(path.parent.relative_to(ROOT).as_posix() for path in modules)
    expect_none(f"{folder}: {count} modules" for folder, count in folders.items() if count > MOST_MODULES)


def test_no_two_classes_have_one_name() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(path.relative_to(ROOT).as_posix())
    expect_none(f"{name}: {', '.join(where)}" for name, where in places.items() if len(where) > 1)


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("nas/ops.py", "import torch"),
        ("nas/ops.py", "import aiperf.trial"),
        ("nas/ops.py", "from . import graph\nimport aiperf"),
        ("nas/ops.py", "from . import modules"),
        ("nas/ops.py", "import sklearn"),
        ("aiperf/trial.py", "if TYPE_CHECKING:\n    from torch import Tensor"),
        ("aiperf/trial.py", "def f():\n    import aiperf.training.worker"),
        ("aiperf/trial.py", "from importlib import import_module\nimport_module('torch')"),
        ("aiperf/trial.py", "from aiperf.training import worker"),
        ("aiperf/trial.py", "from .training.worker import Worker"),
        ("aiperf/trial.py", "import matplotlib"),
        ("aiperf/trial.py", "import aiperf.start"),
        ("aiperf/rules/who.py", "import aiperf.data"),
        ("aiperf/rules/who.py", "import nas.modules"),
        ("aiperf/run/run.py", "import analysis.readings.facts"),
        ("analysis/pages/page.py", "def f():\n    import aiperf.device"),
        ("aiperf/device/cpu.py", "import analysis.pages"),
        ("aiperf/device/cpu.py", "COMMAND = ['python', '-m', 'aiperf.training.worker']"),
        ("aiperf/device/cpu.py", "PROGRAM = 'from aiperf.training.worker import main; main()'"),
        ("aiperf/training/train.py", "import mpi4py"),
        ("aiperf/ranks/world.py", "import torch"),
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
