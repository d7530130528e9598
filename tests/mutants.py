"""Faults planted in the core, one at a time, and the tests that must find them: `python -m tests.mutants`.

A fixed seed picks ten places of each kind: a comparison, an operator, a whole number or a condition becomes
another one. A line is printed for each, and at the end how many the tests found. It works on a copy of the
checkout and takes some ten minutes; a fault that changes no behaviour survives, and a person says so.
"""

from __future__ import annotations

import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.house.tree import PACKAGES, ROOT

SEED, PLACES = 31, 10

# By kind: where faults are planted, and the tests that must find them.
KINDS: Mapping[str, tuple[str, str]] = {
    "counter": ("nas/layers nas/ops.py nas/graph.py", "tests/nas"),
    "credit": (
        (
            "aiperf/score/credit.py aiperf/score/score.py aiperf/score/lineage.py "
            "aiperf/score/example_counts.py aiperf/journal/attempts.py"
        ),
        "tests/aiperf/score tests/aiperf/journal tests/aiperf/rules tests/recorded",
    ),
    "carrying": ("nas/morphisms nas/weights.py", "tests/nas"),
    "chain": (
        "aiperf/journal/file.py aiperf/journal/strict.py aiperf/journal/replay.py aiperf/rules/rank_logs.py",
        "tests/aiperf/journal tests/aiperf/rules tests/recorded",
    ),
    "rules": ("aiperf/rules", "tests/aiperf/rules tests/recorded"),
    "kernels": ("aiperf/engines/fused", "tests/aiperf/engines"),
}

SWAPS: Mapping[type[ast.AST], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
    ast.Add: "-", ast.Sub: "+", ast.Mult: "//", ast.FloorDiv: "*", ast.Div: "*", ast.And: "or", ast.Or: "and",
}  # fmt: skip
IN_C = re.compile(r"(?<= )(<=|>=|==|<|>|\+|-|\*)(?= )")
SWAPPED_IN_C = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "+": "-", "-": "+", "*": "+"}


@dataclass(frozen=True)
class Mutant:
    path: Path
    start: int
    end: int
    new: str
    """What stands between these two offsets of the file."""

    def text(self) -> str:
        old = (ROOT / self.path).read_text(encoding="utf-8")
        return old[: self.start] + self.new + old[self.end :]

    def __str__(self) -> str:
        old = (ROOT / self.path).read_text(encoding="utf-8")
        line = old.count("\n", 0, self.start)
        changed = self.text().splitlines()[line].strip()
        return f"{self.path}:{line + 1}: {old[self.start : self.end]} -> {self.new}: {changed}"


def mutants(kind: str) -> list[Mutant]:
    """The chosen ones of a kind, in the order of their places."""
    files = [file for name in KINDS[kind][0].split() for file in _sources(ROOT / name)]
    found = [mutant for file in sorted(files) for mutant in _places(file)]
    chosen = random.Random(SEED).sample(range(len(found)), PLACES)
    return [found[index] for index in sorted(chosen)]


def _sources(path: Path) -> list[Path]:
    found = [path] if path.is_file() else path.rglob("*")
    return [file for file in found if file.suffix in (".py", ".c", ".h")]


def _places(file: Path) -> Iterator[Mutant]:
    text, path = file.read_text(encoding="utf-8"), file.relative_to(ROOT)
    if file.suffix != ".py":
        code = re.sub(r"//.*|/\*.*?\*/|#.*", lambda comment: " " * len(comment[0]), text)
        yield from (Mutant(path, m.start(), m.end(), SWAPPED_IN_C[m[0]]) for m in IN_C.finditer(code))
        return
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def offset(line: int, column: int) -> int:
        before = text[starts[line - 1] : starts[line]].encode()[:column].decode()
        return starts[line - 1] + len(before)

    for function in ast.walk(ast.parse(text)):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                for left, right, new in _changes(node):
                    begin = offset(left.end_lineno or 0, left.end_col_offset or 0)
                    end = offset(right.lineno, right.col_offset)
                    old = text[begin:end]
                    if old.strip(" ") and "\n" not in old and "(" not in old and ")" not in old:
                        yield Mutant(path, begin, end, f" {new} ")
                if isinstance(node, ast.Constant) and type(node.value) is int:
                    begin, end = (offset(node.lineno, c or 0) for c in (node.col_offset, node.end_col_offset))
                    yield Mutant(path, begin, end, f"{node.value + 1}")


def _changes(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr, str]]:
    """What stands between two expressions, and what comes in its place."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        yield node.left, node.comparators[0], SWAPS[type(node.ops[0])]
    elif isinstance(node, ast.BinOp) and type(node.op) in SWAPS:
        yield node.left, node.right, SWAPS[type(node.op)]
    elif isinstance(node, ast.BoolOp):
        yield node.values[0], node.values[1], SWAPS[type(node.op)]


def is_found(mutant: Mutant, tests: str, copy: Path) -> bool:
    """Whether a test of these fails with the fault in a copy of the checkout, which is put right again."""
    file = copy / mutant.path
    file.write_text(mutant.text(), encoding="utf-8")
    try:
        words = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests.split()]
        environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
        ended = subprocess.run(words, cwd=copy, env=environment, capture_output=True, text=True)
        if ended.returncode not in (0, 1, 2, 3):
            raise SystemExit(f"{mutant}\n{ended.stdout}{ended.stderr}")
        return ended.returncode != 0
    finally:
        shutil.copyfile(ROOT / mutant.path, file)


def main(kinds: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        copy.mkdir()
        for name in (*PACKAGES, "tests", "docs", "benchmarks"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        for file in ROOT.glob("*.*"):
            if file.is_file():
                shutil.copyfile(file, copy / file.name)
        for kind in kinds or KINDS:
            found = 0
            for mutant in mutants(kind):
                is_dead = is_found(mutant, KINDS[kind][1], copy)
                found += is_dead
                print(f"{kind:8} {'found' if is_dead else 'SURVIVED'} {mutant}", flush=True)
            print(f"{kind:8} {found} of {PLACES} found", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
