"""What every source file keeps to: its length, its names, how it catches, what it never calls."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache

from tests.house.floors import dotted
from tests.house.tree import PACKAGES, ROOT, expect_none, files, pairs, sources
from tests.tables import ComesTo

LONG = 400  # lines; the docstring of a longer file says why it is one file, or why "the file is long"
REASON = re.compile(r"\bone\s+file\b|\bfile\s+is\s+long\b", re.IGNORECASE)

# Where an exception of any kind may be caught: the boundary to foreign code. It is recorded there.
BOUNDARIES = pairs("boundaries.txt")

NAMES_THAT_SAY_NOTHING = {"utils", "util", "common", "helpers", "helper", "base", "misc", "tools"}


def test_a_file_says_what_it_holds_and_why_it_is_long() -> None:
    python = {path: ROOT / path for path in files() if path.endswith(".py")}
    expect_none(path for path, file in python.items() if file.stem.strip("_") in NAMES_THAT_SAY_NOTHING)
    texts = {path: file.read_text(encoding="utf-8") for path, file in python.items()}
    expect_none(f"{path}: {fault}" for path, text in texts.items() for fault in untold(text))


def untold(text: str) -> Iterator[str]:
    code = text.partition("\n")[2] if text.startswith("#!") else text
    docstring = code.split('"""', 2)[1] if code.startswith('"""') else ""
    if text and not docstring:
        yield "no docstring"
    if (length := len(text.splitlines())) > LONG and not REASON.search(docstring):
        yield f"{length} lines, and the docstring does not say why it is one file"


def test_no_module_breaks_a_rule() -> None:
    expect_none(f"{path}:{rule}" for path, found in nodes().items() for rule in broken(found))


def test_what_is_planted_is_found(comes_to_what_was_read: ComesTo) -> None:
    names = {"untold": untold, "broken": broken, "walk": ast.walk, "parse": ast.parse}
    comes_to_what_was_read("planted_in_files.txt", names)


def test_everything_is_caught_only_at_the_boundary() -> None:
    catching = {path for path, found in nodes().items() if any(catches_all(node) for node in found)}
    expect_none(f"{path}: catches everything; name what can come" for path in catching - set(BOUNDARIES))
    expect_none(f"{path}: listed as a boundary, and is not" for path in set(BOUNDARIES) - catching)


def test_a_folder_whose_name_others_can_guess_is_made_by_make_private() -> None:
    """In TMPDIR or with the number of the user. The doctor only writes files with random names there,
    and a text hider asks for the name of the user."""
    called = {
        path: {dotted(node.func) for node in found if isinstance(node, ast.Call)}
        for path, found in nodes().items()
    }
    naming = {path for path, names in called.items() if names & {"tempfile.gettempdir", "os.getuid"}}
    making = {path for path, names in called.items() if "make_private" in names}
    assert naming - making == {"aiperf/doctor/host_report.py", "aiperf/journal/hidden_text.py"}
    assert len(naming) > 3


def test_no_two_classes_have_one_name() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path, found in nodes().items():
        for node in found:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(path)
    expect_none(f"{name}: {', '.join(where)}" for name, where in places.items() if len(where) > 1)


def test_only_the_face_of_a_package_names_what_it_has() -> None:
    """The __init__ of a package that others use by its own name has an __all__; ruff looks for its names."""
    naming = [path for path in sources(*PACKAGES) if "__all__" in path.read_text(encoding="utf-8")]
    assert {path.name for path in naming} == {"__init__.py"}


@cache
def nodes() -> dict[str, list[ast.AST]]:
    """The nodes of each module that the rules look at, kept because to walk through all trees takes a
    second."""
    kinds = (ast.ClassDef, ast.ImportFrom, ast.Call, ast.ExceptHandler)
    found = {}
    for path in sources(*PACKAGES):
        walked = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        found[path.relative_to(ROOT).as_posix()] = [node for node in walked if isinstance(node, kinds)]
    return found


def broken(found: list[ast.AST]) -> Iterator[str]:
    """A private name stays in its module; no pickle is read; what is caught is recorded."""
    for node in found:
        if isinstance(node, ast.ImportFrom):
            names = [alias.name for alias in node.names if alias.name.startswith("_")]
            yield from (f"{node.lineno}: imports {name}" for name in names if not name.startswith("__"))
        elif isinstance(node, ast.Call):
            if dotted(node.func) == "torch.load":  # which runs what it reads; ruff knows the others
                yield f"{node.lineno}: torch.load"
        elif isinstance(node, ast.ExceptHandler) and catches_all(node) and node.name not in named(node):
            yield f"{node.lineno}: swallowed"


def catches_all(node: ast.AST) -> bool:
    """Whether it handles whatever comes, and does more than tidy up and raise it again."""
    if not isinstance(node, ast.ExceptHandler) or ast.unparse(node.body[-1]) == "raise":
        return False
    return node.type is None or bool({"Exception", "BaseException"} & named(node.type))


def named(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
