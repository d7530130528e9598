"""What every source file keeps to: its length, its names, how it catches, what it never calls."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.house.tree import PACKAGES, ROOT, expect_none, files, sources

MODULES = sources(*PACKAGES)
PYTHON = [ROOT / path for path in files() if path.endswith(".py")]
LINES, TEST_LINES = 400, 450  # a test file is a list of cases

# Longer files, each with its reason.
LONG: Mapping[str, str] = {
    "aiperf/config.py": "every key of a preset in one place, with its check",
    "tests/journals.py": "one fabricator of runs: what it makes must be consistent as a whole",
    "tests/aiperf/rules/test_verdict.py": "every rule of a verdict broken in turn, from one run",
}

# Where an exception of any kind may be caught: the boundary to foreign code. It is recorded there.
BOUNDARIES: Mapping[str, str] = {
    "nas/families.py": "a layer of somebody else's is foreign code; what it raises becomes an ImportError",
    "aiperf/proposing/foreign_search.py": "the same of a search that runs, which becomes a SearchFailed",
    "nas/search/installed.py": "the same of a search, which becomes a SearchError",
    "analysis/submissions/ranking.py": "a package is anybody's; whatever it provokes is shown as the reason",
    "aiperf/data/decode.py": "Pillow raises what it likes on a damaged file; it becomes a DataError",
    "aiperf/data/decoders.py": "the same in a decoding process, which sends it as the line it will be",
    "aiperf/engines/check.py": "a compiler is foreign code; the trial is trained eagerly, and says so",
    "aiperf/inference/systems.py": "an error cannot pass through LoadGen's threads; its process ends",
    "aiperf/telemetry/sensor.py": "a vendor's library is foreign code; what it raises stands in the record",
    "aiperf/training/train.py": "a first step that fails is made known to the group, then raised",
    "aiperf/training/worker.py": "a trial is foreign code; the master is told whatever it raises",
    "aiperf/training/pretending_worker.py": "the same of a trial that is only pretended",
    "aiperf/ranks/post.py": "the thread that hears the master must not end unseen; its rank ends with it",
    "aiperf/ranks/pretender.py": "what would end a worker's process ends its thread, as the master hears",
}

NAMES_THAT_SAY_NOTHING = {"utils", "util", "common", "helpers", "helper", "base", "misc", "tools"}

# Code in data, a shell between us and a program, or a loader that runs what it reads.
NEVER_CALLED = ("eval", "exec", "os.system", "pickle.load", "pickle.loads", "torch.load", "yaml.load")


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def test_a_long_file_has_a_reason() -> None:
    lengths = {relative(path): len(path.read_text(encoding="utf-8").splitlines()) for path in PYTHON}
    limits = {path: TEST_LINES if path.startswith(("tests/", "benchmarks/")) else LINES for path in lengths}
    long = {path for path, length in lengths.items() if length > limits[path]}
    expect_none(
        f"{path}: {lengths[path]} lines; split it, or give its reason here" for path in long - set(LONG)
    )
    expect_none(f"{path}: listed as long, and is not" for path in set(LONG) - long)


def test_a_file_is_called_by_what_it_holds() -> None:
    expect_none(relative(path) for path in PYTHON if path.stem.strip("_") in NAMES_THAT_SAY_NOTHING)


def test_it_begins_with_a_docstring() -> None:
    expect_none(
        f"{relative(path)}: no docstring"
        for path in PYTHON
        if not ast.get_docstring(parsed(path)) and path.stat().st_size
    )


def test_a_name_with_an_underscore_stays_in_its_module() -> None:
    expect_none(
        f"{relative(path)}:{node.lineno} imports {alias.name} of {node.module}"
        for path in MODULES
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name.startswith("_") and not alias.name.startswith("__")
    )


def test_a_face_names_what_it_has() -> None:
    """Only the __init__ of a package that others use by its own name has an __all__."""
    for path in MODULES:
        names = exports(parsed(path))
        assert path.name == "__init__.py" or not names, path
        assert names <= set(bound(parsed(path))), path


def test_everything_is_caught_only_at_the_boundary() -> None:
    catching = {relative(path) for path in MODULES if broad_catches(parsed(path))}
    expect_none(f"{path}: catches everything; name what can come" for path in catching - set(BOUNDARIES))
    expect_none(f"{path}: listed as a boundary, and is not" for path in set(BOUNDARIES) - catching)


def test_what_is_caught_at_the_boundary_is_recorded() -> None:
    expect_none(
        f"{relative(path)}:{handler.lineno}: swallowed"
        for path in MODULES
        for handler in broad_catches(parsed(path))
        if handler.name not in {node.id for node in ast.walk(handler) if isinstance(node, ast.Name)}
    )


def test_nothing_dangerous_is_called() -> None:
    expect_none(
        f"{relative(path)}:{node.lineno}: {ast.unparse(node.func)}"
        for path in MODULES
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and (ast.unparse(node.func) in NEVER_CALLED or shell(node))
    )


@pytest.mark.parametrize(
    ("handler", "swallows"),
    [
        ("except Exception:\n  pass", True),
        ("except (ValueError, Exception) as error:\n  log(error)", True),
        ("except:\n  return", True),
        ("except BaseException:\n  close()\n  raise", False),
        ("except ValueError:\n  pass", False),
    ],
)
def test_a_broad_catch_is_found(handler: str, swallows: bool) -> None:
    assert bool(broad_catches(ast.parse(f"try:\n  f()\n{handler}"))) == swallows


def exports(module: ast.Module) -> set[str]:
    for statement in module.body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
            return set(ast.literal_eval(statement.value))
    return set()


def bound(module: ast.Module) -> Iterator[str]:
    """Every name a module has, its imports too."""
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def broad_catches(module: ast.Module) -> list[ast.ExceptHandler]:
    """Handlers of whatever comes, but for those that only tidy up and raise it again."""
    handlers = [node for node in ast.walk(module) if isinstance(node, ast.ExceptHandler)]
    return [node for node in handlers if broad(node) and ast.unparse(node.body[-1]) != "raise"]


def broad(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    caught = {node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)}
    return bool({"Exception", "BaseException"} & caught)


def shell(call: ast.Call) -> bool:
    return any(word.arg == "shell" and ast.unparse(word.value) != "False" for word in call.keywords)
