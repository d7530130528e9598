"""The floors of the house: which package stands where, and which libraries may enter there."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path

from tests.house.tree import PACKAGES, ROOT, module_name

# What those need who train on a task's examples. It lies in the task's folder, above its pure facts, and a
# function of the task imports it when it is called.
TASK_TRAINING = ("aiperf.tasks.images.training", "aiperf.tasks.language.training")

# From the ground up. A package imports itself and what stands below its line.
FLOORS: tuple[Mapping[str, str], ...] = (
    {"aiperf": "tomli", "nas": "numpy", "aiperf.telemetry": "psutil", "analysis": ""},
    {"aiperf.host": "", "aiperf.tasks": "", "nas.modules": "numpy torch", "nas.portable": "numpy"},
    {"aiperf.config": "tomli_w", "aiperf.data": "numpy torch PIL"},
    {"aiperf.wire": "", **dict.fromkeys(TASK_TRAINING, "torch")},
    {"aiperf.journal": "numpy", "aiperf.hardware": "", "aiperf.scenarios": ""},
    {"aiperf.score": "numpy", "aiperf.proposing": "", "aiperf.device": "torch psutil", "launch": ""},
    {
        "aiperf.rules": "numpy",
        "aiperf.conduct": "",
        "aiperf.parallel": "torch",
        "aiperf.engines": "torch triton",
    },
    {"analysis.readings": "numpy", "aiperf.pretending": "tomli_w", "aiperf.measuring": "torch"},
    {
        "analysis.exports": "prometheus_client",
        "analysis.comparing": "",
        "aiperf.training": "numpy torch safetensors",
    },
    {
        "analysis.pages": "numpy jinja2 markupsafe matplotlib",
        "aiperf.ranks": "mpi4py",
        "aiperf.inference": "torch",
    },
    {
        "analysis.submissions": "jsonschema cryptography confusable_homoglyphs",
        "aiperf.run": "rich",
        "aiperf.doctor": "torch mpi4py",
        "aiperf.on_nni": "",
        "aiperf.simulation": "numpy simpy",
        "aiperf.profiling": "torch",
    },
    {"aiperf.commands": "click rich"},
)

# Above all floors: the way in, which nobody imports.
ROOF = ("aiperf.start", "aiperf.__main__")

# Search libraries, vendors' and Horovod are extras: imported in the function that uses them.
LAZY: Mapping[str, str] = {
    "aiperf.telemetry": "pynvml amdsmi",
    "aiperf.parallel": "horovod",
    "nas": "sklearn optuna nni",
    "nas.portable": "onnx",
    "aiperf.on_nni": "nni",
    "aiperf.inference": "mlperf_loadgen",
}

# What trains and what starts it, by the extra `run`. All other packages are pure: reading results needs no
# torch, so they import nothing of these, and a pure run of the tests goes without them.
RUNNING = frozenset(
    {
        *("aiperf.data", "aiperf.telemetry", "aiperf.device", "aiperf.parallel", "aiperf.engines"),
        *("nas.modules", "aiperf.measuring", "aiperf.inference", "aiperf.profiling"),
        *("aiperf.training", "aiperf.ranks", "aiperf.run", "aiperf.doctor", "aiperf.on_nni"),
        *("aiperf.simulation", "aiperf.commands", *TASK_TRAINING, *ROOF),
    }
)

# What is not installed: tests, and what they start.
OURS = ("tests", "benchmarks")

# As of the newest Python that is tested: 3.10 does not know tomllib yet. Only type checkers, which bring it,
# read typing_extensions.
STANDARD = sys.stdlib_module_names | {"tomllib", "typing_extensions"}

# Imports that are calls; a name that is computed is not seen.
CALLS = ("import_module", "importlib.import_module", "__import__")
# Programs in strings: "-m aiperf.training.worker", "from aiperf.data.own_images import main".
IN_STRING = re.compile(rf"(?<![\w./])(?:{'|'.join(PACKAGES)})(?:\.\w+)+")


@dataclass(frozen=True)
class Import:
    name: str
    line: int
    lazy: bool
    """Inside a function, or in a program that is started."""
    started: bool = False
    """In a program that is started."""

    @property
    def top(self) -> str:
        return self.name.partition(".")[0]


def dotted(node: ast.AST) -> str:
    """`a.b.c` of an expression that is only such a name; of any other, the part after what it is taken from.
    To unparse every call of the program takes seconds."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def package_of(module: str) -> str:
    """The package of the table that a module belongs to; a module of the roof is its own."""
    if module in ROOF:
        return module
    named = [package for floor in FLOORS for package in floor]
    return max((name for name in named if f"{module}.".startswith(f"{name}.")), key=len)


def floor_of(module: str) -> int:
    """From 0, the lowest; the roof stands above all, its entry above the rest."""
    package = package_of(module)
    if package in ROOF:
        return len(FLOORS) + ROOF.index(package)
    return next(number for number, floor in enumerate(FLOORS) if package in floor)


@cache
def imports(path: Path) -> tuple[Import, ...]:
    """Every import of a file."""
    module = module_name(path)
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    return tuple(imported(path.read_text(encoding="utf-8"), package))


def imported(source: str, package: str) -> Iterator[Import]:
    """Every import of a module in this package, wherever it is: `if TYPE_CHECKING`, import_module("…"), and
    those of the programs that it starts, whose text is in a string."""
    said = _lines_that_may_name(source)
    waiting: list[tuple[ast.AST, bool]] = [(ast.parse(source), False)]
    while waiting:
        node, lazy = waiting.pop()
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno, lazy) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{origin}.{alias.name}"
                yield Import(inner if _source(inner) else origin, node.lineno, lazy)
        elif isinstance(node, ast.Call) and node.args and isinstance(name := node.args[0], ast.Constant):
            if dotted(node.func) in CALLS:
                yield Import(str(name.value), node.lineno, lazy)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # Who starts the program itself imports nothing of it.
            named = [name for name in IN_STRING.findall(node.value) if _source(name) and name not in ROOF]
            yield from (Import(name, node.lineno, lazy=True, started=True) for name in named)
        inside = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for child in [] if docstring else ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt | ast.expr):
                first = min([child.lineno, *(each.lineno for each in getattr(child, "decorator_list", ()))])
                if said[child.end_lineno or 0] == said[first - 1]:
                    continue
            waiting.append((child, inside))


def _lines_that_may_name(source: str) -> list[int]:
    """How many of the first lines of a file, 0 and more of them, could import something. Only the nodes on
    these lines are looked at, for a walk through all of them takes as long as to parse."""
    lines = [bool(IN_STRING.search(line) or "import" in line) for line in source.split("\n")]
    return [0, *accumulate(lines)]


@cache
def needs_torch(test: Path) -> bool:
    """Whether a test reaches what a pure run is without, by itself or through the test modules that it
    imports."""
    return any(_is_running(name) or name.partition(".")[0] in _impure() for name in _reached(test))


def faults(module: str, found: Iterable[Import]) -> list[str]:
    """What in a module's imports breaks a rule of the floors."""
    return [
        f"{module}:{each.line}: floor {floor_of(module)} imports {each.name}"
        for each in found
        if not _allowed(module, each)
    ]


def is_called_for(module: str, found: Import) -> bool:
    """Whether a task imports how it is trained, in a function."""
    own = module.startswith("aiperf.tasks.") and f"{module.rpartition('.')[0]}.training"
    return found.lazy and found.name == own and own in TASK_TRAINING


def _allowed(module: str, found: Import) -> bool:
    if found.top in STANDARD or is_called_for(module, found):
        return True
    package = package_of(module)
    if found.top in PACKAGES:
        # "nas" in `import nas` is the package itself, whose __init__ imports nothing.
        inside = package_of(found.name) == package and found.name not in ROOF
        pure = _is_running(module) or not _is_running(found.name)
        # The benchmark runs without what shows it; its commands do both.
        apart = found.top != "analysis" or package.startswith("analysis") or package == "aiperf.commands"
        return (inside or floor_of(found.name) < floor_of(module)) and pure and apart
    return found.top in _libraries(module) or (found.lazy and found.top in LAZY.get(package, "").split())


def _libraries(module: str) -> frozenset[str]:
    """That it may import anywhere."""
    stated = next((floor[package_of(module)] for floor in FLOORS if package_of(module) in floor), "")
    return frozenset(stated.split())


def _reached(test: Path) -> Iterator[str]:
    """What a test and the test modules that it imports import, except in the programs that they start."""
    seen, waiting = {test}, [test]
    while waiting:
        for found in imports(waiting.pop()):
            helper = _source(found.name) if found.top in OURS else None
            if helper and helper not in seen:
                seen.add(helper)
                waiting.append(helper)
            if not found.started:
                yield found.name


def _is_running(module: str) -> bool:
    in_house = module.partition(".")[0] in PACKAGES
    return in_house and package_of(module) in RUNNING


@cache
def _impure() -> frozenset[str]:
    """Libraries that a pure run is without."""
    packages = {package for floor in FLOORS for package in floor}
    pure = {library for package in packages - RUNNING for library in _libraries(package)}
    return frozenset(library for package in packages for library in _libraries(package)) - pure


@cache
def _source(module: str) -> Path | None:
    """The file of a module of this repository."""
    if module.partition(".")[0] not in (*PACKAGES, *OURS):
        return None
    path = ROOT.joinpath(*module.split("."))
    candidates = (path.with_suffix(".py"), path / "__init__.py")
    return next((candidate for candidate in candidates if candidate.is_file()), None)
