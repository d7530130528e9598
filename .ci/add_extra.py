"""Adds an extra to an environment that jobs may be using: `PYTHON .ci/add_extra.py EXTRA [PIP_ARGS…]`.

What is installed stays as it is, torch and the program too; what is missing is added, in the version of
constraints.txt. If pip cannot do that, nothing is changed, and the last line says what to do.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]
# No run imports these, and an extra may need newer ones than Python brings along.
REPLACED = ("pip", "setuptools", "wheel")
PROGRAM = "aiperf-hpc"


def normal(name: str) -> str:
    """The name of a distribution as pip compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed() -> Mapping[str, str]:
    """The versions of the distributions of this environment, but for those that may be replaced."""
    found: dict[str, str] = {}
    for each in metadata.distributions():  # the first one on the path is imported
        found.setdefault(normal(each.metadata["Name"]), each.version)
    return {name: version for name, version in sorted(found.items()) if name not in (*REPLACED, PROGRAM)}


def requirements(extra: str) -> list[str]:
    """The requirements of an extra, and of those that it includes, as pyproject.toml states them now: others
    may have been installed. Python 3.10 reads no TOML, but its lists of strings are Python's."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    section = text.partition("[project.optional-dependencies]\n")[2].partition("\n[tool.")[0]
    stated = dict(re.findall(r"^(\w+) = (\[\n.*?^\]|\[[^\n]*\]$)", section, re.MULTILINE | re.DOTALL))
    found = list[str]()
    for each in ast.literal_eval(stated[extra]):
        if included := re.match(rf"{PROGRAM}\[([\w,]+)\](.*)", each):
            names, marker = included[1].split(","), included[2]
            found += [f"{one}{marker}" for name in names for one in requirements(name)]
        else:
            found.append(each)
    return found


def main(extra: str, *pip_args: str) -> None:
    kept, tested = installed(), dict[str, list[str]]()
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if stated := re.match(r"([\w.-]+)==", line):  # several of a name, with markers
            tested.setdefault(normal(stated[1]), []).append(line)
    others = [
        f"{name} {version}"
        for name, version in kept.items()
        if name in tested
        and not any(re.search(rf"=={re.escape(version.split('+')[0])}\b", line) for line in tested[name])
    ]
    if others:
        print(f"kept, although constraints.txt has other versions: {', '.join(others)}", file=sys.stderr)
    new = [line for name, lines in tested.items() if name not in kept for line in lines]
    with tempfile.TemporaryDirectory() as folder:
        wanted, constraints = Path(folder, "requirements.txt"), Path(folder, "constraints.txt")
        wanted.write_text("".join(f"{each}\n" for each in requirements(extra)), encoding="utf-8")
        old = [f"{name}=={version}" for name, version in kept.items()]
        constraints.write_text("".join(f"{line}\n" for line in (*old, *new)), encoding="utf-8")
        command = [sys.executable, "-m", "pip", "install", *pip_args]
        if subprocess.run([*command, "-r", str(wanted), "-c", str(constraints)]).returncode:
            raise SystemExit(
                f"pip cannot add the extra {extra} without replacing something that jobs may be using, or "
                f"cannot download it (see above); nothing in {sys.prefix} was changed. For tests in an "
                "environment of their own: make test VENV=.venv-test"
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
