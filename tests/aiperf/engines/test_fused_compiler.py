"""Compiling the kernels: where, for what, by many processes at once, and what is said when it cannot be."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from aiperf.engines.fused import kernels
from aiperf.engines.fused.kernels import NotBuilt, built
from tests.tables import ComesTo

COPIES = """#!/bin/sh
if [ "$1" = --version ]; then echo compiler 1; exit; fi
while [ "$1" != -o ]; do shift; done
cp {library} "$2"
echo compiled >> {log}
"""
"""A compiler that takes no time: what another one made of the same sources is its answer."""


def environment(cache: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "XDG_CACHE_HOME": str(cache), **more}


@pytest.fixture(scope="module")
def compiled() -> Path:
    """By the compiler of this machine, once for all tests that load the kernels."""
    return built(os.environ)


@pytest.fixture
def copies(compiled: Path, tmp_path: Path) -> dict[str, str]:
    """An environment with that compiler and a cache of its own. It writes a line for each file it makes."""
    compiler = tmp_path / "copies"
    compiler.write_text(COPIES.format(library=compiled, log=tmp_path / "log"))
    compiler.chmod(0o755)
    return environment(tmp_path / "cache", CC=str(compiler))


def times_compiled(tmp_path: Path) -> int:
    return len((tmp_path / "log").read_text().splitlines())


FAILS = "does not compile the kernels: "


@pytest.mark.parametrize(
    ("compiler", "said"),
    [
        ("none-of-this-name", "^no C compiler: none-of-this-name is not in PATH; install one, or set CC$"),
        ("false", rf"^\S*false {FAILS}exit code 1 of \S*false .*kernels\.c -lm$"),
        ("garbage", f"garbage {FAILS}"),
        ("interpreter", f"interpreter {FAILS}"),
    ],
)
def test_a_compiler_that_fails_is_one_line_and_leaves_nothing(
    compiler: str, said: str, tmp_path: Path
) -> None:
    contents = {"garbage": b"garbage", "interpreter": b"#!/no/such/interpreter\n"}
    if compiler in contents:
        (tmp_path / compiler).write_bytes(contents[compiler])
        (tmp_path / compiler).chmod(0o755)
        compiler = str(tmp_path / compiler)
    with pytest.raises(NotBuilt, match=said):
        built(environment(tmp_path / "cache", CC=compiler))
    assert [file for file in (tmp_path / "cache").rglob("*") if file.is_file()] == []


def test_ranks_may_compile_at_once(copies: dict[str, str], tmp_path: Path) -> None:
    """Each compiles into a file of its own, so none loads what another one has half written."""
    with ThreadPoolExecutor(4) as ranks:
        (file,) = set(ranks.map(built, [copies] * 4))
    assert re.fullmatch(r"kernels(-[0-9a-f]{16}){3}\.so", file.name)
    assert list(file.parent.iterdir()) == [file]


def test_a_file_is_compiled_once(copies: dict[str, str], compiled: Path, tmp_path: Path) -> None:
    file = built(copies)
    assert built(copies) == file
    assert times_compiled(tmp_path) == 1
    assert file.read_bytes() == compiled.read_bytes()
    assert built({**copies, "CC": f"{copies['CC']} -g"}) != file  # the user has another one made
    assert times_compiled(tmp_path) == 2


def test_a_cache_that_is_a_file_or_was_planted_is_replaced_by_a_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And if that is none either, or was planted too, it is one line."""
    monkeypatch.setattr(kernels.tempfile, "gettempdir", lambda: str(tmp_path))
    (tmp_path / "file").write_text("")
    (tmp_path / "cache/aiperf-hpc").mkdir(parents=True)
    (tmp_path / "cache/aiperf-hpc").chmod(0o777)
    for cache in ("file", "cache"):
        folder = kernels._folder(environment(tmp_path / cache))
        assert folder == tmp_path / f"aiperf-hpc-{os.getuid()}"
        assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    how = r"can be changed by other users \(mode 777; `chmod go-w` corrects it\)"
    with pytest.raises(NotBuilt, match=rf"^{folder} {how}; set XDG_CACHE_HOME to a folder of your own$"):
        kernels._folder(environment(tmp_path / "cache"))
    monkeypatch.setattr(kernels.tempfile, "gettempdir", lambda: str(tmp_path / "file"))
    with pytest.raises(NotBuilt, match="Not a directory; set XDG_CACHE_HOME to a folder that can be written"):
        kernels._folder(environment(tmp_path / "file"))


def test_the_name_says_processor_flags_and_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {kernels._kind(("-mavx",)), kernels._kind(("-mavx2",))}
    monkeypatch.setattr(kernels, "_instructions", lambda: "another processor")
    names.add(kernels._kind(("-mavx",)))
    changed = tmp_path / "kernels.c"
    changed.write_text("int other;")
    monkeypatch.setattr(kernels, "SOURCES", (changed,))
    names.add(kernels._kind(("-mavx",)))
    assert len(names) == 4


@pytest.mark.skipif(kernels.platform.machine() != "x86_64", reason="x86 names")
def test_what_a_user_forbids_torch_is_not_used(comes_to_what_was_read: ComesTo) -> None:
    """The lower of two limits counts."""
    comes_to_what_was_read("forbidden.txt", {"flags": kernels._processor_flags})


def test_a_compiler_of_blanks_is_the_usual_one(copies: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "copies").rename(tmp_path / "cc")
    usual = {**copies, "CC": "  ", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert built(usual).is_file()
    assert times_compiled(tmp_path) == 1


def test_a_file_that_was_cut_off_or_that_others_can_write_is_compiled_again(
    copies: dict[str, str], tmp_path: Path
) -> None:
    """To load one that was cut off would end the process by SIGBUS."""
    file = built(copies)
    whole, planted = file.read_bytes(), tmp_path / "planted"
    for times, spoil in enumerate(
        (
            lambda: file.write_bytes(whole[:20000]),
            lambda: file.chmod(0o666),
            lambda: file.rename(planted) and file.symlink_to(planted),
        ),
        2,
    ):
        spoil()
        assert built(copies) == file
        assert (file.read_bytes(), times_compiled(tmp_path), file.is_symlink()) == (whole, times, False)
        assert file.stat().st_mode & 0o777 == 0o700


def test_a_node_without_a_compiler_takes_what_another_node_made(copies: dict[str, str]) -> None:
    file = built(copies)
    assert built({**copies, "CC": "none-of-this-name"}) == file
    with pytest.raises(NotBuilt, match="none-of-this-name is not in PATH"):
        built({**copies, "CC": "none-of-this-name", "ATEN_CPU_CAPABILITY": "default"})


RUNTIMES = r"""
import os, re, sys, torch
from pathlib import Path
from aiperf.engines.fused import unavailable
from aiperf.engines.fused.kernels import library

def runtimes():
    return len(set(re.findall(r"\S*/lib(?:gomp|iomp5|omp)\S*", Path("/proc/self/maps").read_text())))

print(unavailable())
del os.environ["CC"]
os.environ["XDG_CACHE_HOME"] = sys.argv[1]
before = runtimes()
library()
print(before, runtimes())
"""


def test_a_process_says_why_it_has_no_kernels_and_loads_no_further_runtime(
    compiled: Path, tmp_path: Path
) -> None:
    """In a process of its own: other libraries, as scikit-learn, bring OpenMP runtimes of theirs."""
    command = [sys.executable, "-c", RUNTIMES, str(compiled.parent.parent)]
    without = environment(tmp_path, CC="none-of-this-name")
    answer = subprocess.run(command, env=without, capture_output=True, text=True, check=True)
    said, counted = answer.stdout.splitlines()
    assert said == "no C compiler: none-of-this-name is not in PATH; install one, or set CC"
    before, after = counted.split()
    assert before == after != "0"
