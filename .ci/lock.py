"""Writes packaging/lock.txt: `PYTHON .ci/lock.py`, with the uv of that PYTHON. With `--check` it compares.

The file has the exact version of every library of a run and the hashes of its files, for each Python that is
promised. Torch and what it alone needs are left out: its build depends on the accelerator, and the default
index has not all of them. The file names no index, so it holds for a mirror, too. A check resolves again, and
asks the index for all hashes; files that were added to a version since are no difference.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "packaging/lock.txt"
EXTRAS = ("run", "mpi", "nvidia", "report", "sign")
OLDEST = "3.10"
HEAD = f"""\
# Written by `make lock`: versions and hashes for Python {OLDEST} or newer on Linux, by markers. The extras
# {", ".join(EXTRAS)}, without torch: docs/packaging.md says how to install it.
"""


def resolved() -> str:
    """The lines of the lock, as the configured index answers now. What is locked stays if it still fits."""
    with tempfile.TemporaryDirectory() as folder:
        overrides, output = Path(folder, "overrides.txt"), Path(folder, "lock.txt")
        overrides.write_text("torch ; python_version < '3'\n", encoding="utf-8")
        if LOCK.exists():  # without its hashes, which uv would take over
            versions = pins(LOCK.read_text(encoding="utf-8"))
            output.write_text("".join(f"{each}\n" for each in versions), encoding="utf-8")
        command = [Path(sys.executable).with_name("uv"), "pip", "compile", "--quiet", "pyproject.toml"]
        command += [f"--extra={extra}" for extra in EXTRAS]
        command += ["--universal", f"--python-version={OLDEST}", "--generate-hashes", "--no-header"]
        command += ["--no-annotate", "--no-emit-index-url", "--no-emit-find-links"]
        command += ["--constraints=constraints.txt", f"--overrides={overrides}", f"--output-file={output}"]
        if subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL).returncode:
            raise SystemExit("uv cannot resolve the extras of the lock under constraints.txt (see above)")
        return output.read_text(encoding="utf-8")


def pins(text: str) -> Mapping[str, frozenset[str]]:
    """The hashes of each pinned version, by its line: `numpy==2.4.6 ; python_full_version >= '3.11'`."""
    lines = re.sub(r"\\\n\s+", "", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)).splitlines()
    split = [line.split("--hash=") for line in lines]
    return {pin.strip(): frozenset(each.strip() for each in hashes) for pin, *hashes in split}


def differences(locked: Mapping[str, frozenset[str]], now: Mapping[str, frozenset[str]]) -> list[str]:
    """What is wrong with a lock, one line for each version."""
    found = [f"{pin}: is no longer needed, or not under these markers" for pin in locked if pin not in now]
    found += [f"{pin}: is not in the lock" for pin in now if pin not in locked]
    found += [
        f"{pin}: the index has no file with {', '.join(sorted(hashes - now[pin])) or 'a hash'}"
        for pin, hashes in locked.items()
        if pin in now and (not hashes or not hashes <= now[pin])
    ]
    return found


def main(*words: str) -> None:
    now = resolved()
    if words != ("--check",):
        LOCK.write_text(HEAD + now, encoding="utf-8")
        return
    found = differences(pins(LOCK.read_text(encoding="utf-8")), pins(now))
    if found:
        raise SystemExit("\n".join([f"{LOCK.relative_to(ROOT)} does not hold; make lock writes it:", *found]))


if __name__ == "__main__":
    main(*sys.argv[1:])
