"""An import goes to its own package or down, never up; torch, MPI and plotting enter on their floors."""

from __future__ import annotations

import re

from tests.house import floors
from tests.house.tree import PACKAGES, ROOT, expect_none, module_name, sources
from tests.tables import ComesTo

MODULES = sources(*PACKAGES)


def test_no_import_goes_upward() -> None:
    expect_none(fault for path in MODULES for fault in floors.faults(module_name(path), floors.imports(path)))


def test_every_package_stands_on_its_floor() -> None:
    """As low as its imports allow; so the table is the drawing."""
    below: dict[str, int] = {}
    for path in MODULES:
        module, package = module_name(path), floors.package_of(module_name(path))
        below.setdefault(package, -1)
        for found in floors.imports(path):
            is_outer = found.top in PACKAGES and floors.package_of(found.name) != package
            if is_outer and not floors.is_called_for(module, found):
                below[package] = max(below[package], floors.floor_of(found.name))
    named = [package for floor in floors.FLOORS for package in floor]
    expect_none(f"{name}: there is no such package" for name in set(named) - set(below))
    folders = {path.relative_to(ROOT).parts[:2] for path in MODULES if path.parent.parent != ROOT}
    parts = {".".join(folder) for folder in folders if folder[0] != "nas"}
    expect_none(f"{part}: stands on no floor" for part in parts - {*named})
    expect_none(
        f"{name}: stands on floor {floors.floor_of(name)}, the highest that it imports from is {below[name]}"
        for name in named
        if floors.floor_of(name) != below.get(name, -1) + 1
    )


def test_the_picture_is_the_table_and_fits_a_screen() -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    drawn = re.search(r"^```\n( ?\d+ .*?)^```", page, re.MULTILINE | re.DOTALL)
    assert drawn, "docs/architecture.md: no picture of the floors"
    lines = drawn[1].splitlines()
    assert len(lines) <= 45
    assert max(map(len, lines)) <= 110
    rows = [line.split() for line in lines[: lines.index("")]]
    stated = [[str(number), *floors.FLOORS[number]] for number in reversed(range(len(floors.FLOORS)))]
    assert [[row[0], *sorted(row[1:])] for row in rows] == [[row[0], *sorted(row[1:])] for row in stated]
    way = re.findall(r"(\d+)  (\S+\.py)", drawn[1])
    assert len(way) == sum(".py" in line for line in lines)
    expect_none(
        f"{path}: floor {number}"
        for number, path in way
        if int(number) != floors.floor_of(module_name(ROOT / path))
    )


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


def test_what_is_planted_is_found(comes_to_what_was_read: ComesTo) -> None:
    comes_to_what_was_read("planted_imports.txt", {"faults": faults})


def faults(path: str, source: str) -> list[str]:
    module = module_name(ROOT / path)
    return floors.faults(module, floors.imported(source, module.rpartition(".")[0]))


def test_no_conftest_keeps_pure_tests_from_a_pure_run() -> None:
    """A folder whose conftest needs torch is left out whole, so nothing pure may lie there."""
    above = [path for path in sources("tests") if path.name == "conftest.py" and floors.needs_torch(path)]
    beside = [test for conftest in above for test in conftest.parent.rglob("test_*.py")]
    expect_none(
        f"{test}: needs no torch, its conftest does" for test in beside if not floors.needs_torch(test)
    )
