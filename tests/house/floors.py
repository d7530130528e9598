"""The floors of the house: which module stands where, and which libraries may enter there."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.house.tree import PACKAGES, ROOT, module_name


@dataclass(frozen=True)
class Floor:
    """Modules of one height. A module belongs to the floor that names it most exactly."""

    number: int
    modules: tuple[str, ...]
    libraries: frozenset[str]


FLOORS = (
    Floor(0, ("nas",), frozenset({"numpy"})),
    Floor(1, ("aiperf",), frozenset({"numpy", "tomli", "tomli_w"})),
    Floor(2, ("launch",), frozenset({"tomli"})),
    Floor(
        2,
        ("analysis",),
        frozenset(
            {
                "numpy",
                "jinja2",
                "markupsafe",
                "plotly",
                "matplotlib",
                "jsonschema",
                "cryptography",
                "prometheus_client",
            }
        ),
    ),
    Floor(
        3,
        (
            "nas.modules",
            "aiperf.device",
            "aiperf.batchnorm",
            "aiperf.before_span",
            "aiperf.ceiling",
            "aiperf.control",
            "aiperf.data",
            "aiperf.ddp",
            "aiperf.doctor.devices",
            "aiperf.kept",
            "aiperf.parallel",
            "aiperf.precision",
            "aiperf.reevaluation",
            "aiperf.surroundings",
            "aiperf.telemetry",
            "aiperf.threads",
            "aiperf.train",
            "aiperf.training_step",
            "aiperf.worker",
        ),
        frozenset({"numpy", "torch", "safetensors", "sklearn", "PIL", "psutil"}),
    ),
    Floor(
        4,
        (
            "aiperf.world",
            "aiperf.master",
            "aiperf.link",
            "aiperf.mpi",
            "aiperf.torchrun",
            "aiperf.ranks",
            "aiperf.relay",
            "aiperf.doctor.together",
        ),
        frozenset({"mpi4py"}),
    ),
    Floor(4, ("aiperf.hvd",), frozenset({"mpi4py", "horovod", "torch"})),
    Floor(
        5,
        (
            "aiperf.__main__",
            "aiperf.commands",
            "aiperf.display",
            "aiperf.on_nni",
            "aiperf.rehearsal",
            "aiperf.run",
            "aiperf.start",
        ),
        frozenset({"click", "rich"}),
    ),
)

# Search libraries and those of vendors are extras: imported by these modules only, in the function that
# uses them.
LAZY: Mapping[str, frozenset[str]] = {
    "aiperf.telemetry.nvidia": frozenset({"pynvml"}),
    "aiperf.telemetry.amd": frozenset({"amdsmi"}),
    "nas.search": frozenset({"sklearn", "optuna"}),
    "nas.tuning": frozenset({"nni", "optuna"}),
    "aiperf.on_nni": frozenset({"nni"}),
}


# As of the newest Python that is tested: 3.10 does not know tomllib yet.
STANDARD = sys.stdlib_module_names | {"tomllib"}

# Imports that are calls; a name that is computed is not seen.
CALLS = ("import_module", "importlib.import_module", "__import__")


@dataclass(frozen=True)
class Import:
    name: str
    line: int
    lazy: bool
    """Inside a function."""

    @property
    def top(self) -> str:
        return self.name.partition(".")[0]


def floor_of(module: str) -> Floor:
    """The floor whose list names the module or the nearest package around it."""
    named = [(name, floor) for floor in FLOORS for name in floor.modules]
    fitting = [(name, floor) for name, floor in named if f"{module}.".startswith(f"{name}.")]
    return max(fitting, key=lambda pair: len(pair[0]))[1]


@cache
def imports(path: Path) -> tuple[Import, ...]:
    """Every import of a file wherever it stands, `if TYPE_CHECKING` and import_module("…") included."""
    module = module_name(path)
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    return tuple(_imports(ast.parse(path.read_text(encoding="utf-8")), package, lazy=False))


def _imports(node: ast.AST, package: str, lazy: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (Import(alias.name, child.lineno, lazy) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - child.level + 1] if child.level else []
            origin = ".".join([*above, *([child.module] if child.module else [])])
            for alias in child.names:
                inner = f"{origin}.{alias.name}"
                yield Import(inner if _source(inner) else origin, child.lineno, lazy)
        elif isinstance(child, ast.Call) and ast.unparse(child.func) in CALLS:
            name = child.args[0] if child.args else None
            if isinstance(name, ast.Constant):
                yield Import(str(name.value), child.lineno, lazy)
        inside = lazy or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from _imports(child, package, inside)


def needs_torch(test: Path) -> bool:
    """Whether a test reaches above floor 2, by itself or through the test modules that it imports."""
    return any(_above(name) for name in _reached(test, frozenset()))


def faults(path: Path) -> list[str]:
    """What in a module's imports breaks a rule of the floors."""
    module = module_name(path)
    floor = floor_of(module)
    return [
        f"{path.relative_to(ROOT)}:{found.line}: floor {floor.number} imports {found.name}"
        for found in imports(path)
        if not _allowed(module, floor, found)
    ]


def _allowed(module: str, floor: Floor, found: Import) -> bool:
    if found.top in STANDARD:
        return True
    if found.top in PACKAGES:
        return floor_of(found.name).number <= floor.number
    lazily = {name for place, names in LAZY.items() if f"{module}.".startswith(f"{place}.") for name in names}
    return found.top in floor.libraries or (found.lazy and found.top in lazily)


def _reached(path: Path, seen: frozenset[Path]) -> Iterator[str]:
    for found in imports(path):
        helper = _source(found.name)
        if found.top == "tests" and helper and helper not in seen:
            yield from _reached(helper, seen | {path})
        yield found.name


def _above(name: str) -> bool:
    top = name.partition(".")[0]
    if top in PACKAGES:
        return floor_of(name).number > 2
    pure = {library for floor in FLOORS if floor.number <= 2 for library in floor.libraries}
    return top in {library for floor in FLOORS for library in floor.libraries} - pure


def _source(module: str) -> Path | None:
    """The file of a module of this repository."""
    if module.partition(".")[0] not in (*PACKAGES, "tests"):
        return None
    path = ROOT.joinpath(*module.split("."))
    candidates = (path.with_suffix(".py"), path / "__init__.py")
    return next((candidate for candidate in candidates if candidate.is_file()), None)
