"""What make installs, on a machine that has nothing yet and beside what is installed: with which torch, by
the scripts that it starts."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.house.tree import ROOT
from tests.packaging.recipes import cloned
from tests.tables import ComesTo


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What make answers in this folder, with no settings but these."""
    unset = ("MAKE", "MFLAGS", "ACCELERATOR")  # which a test may run under
    settled = {name: value for name, value in os.environ.items() if not name.startswith(unset)}
    return subprocess.run(
        ["make", *arguments], cwd=folder, capture_output=True, text=True, env=settled, timeout=900
    )


def test_an_old_python_is_refused_in_one_line(tmp_path: Path) -> None:
    old = tmp_path / "python3.9"
    pretend = "import sys; sys.version_info = (3, 9, 18); exec(sys.argv[2])"
    old.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{pretend}" "$@"\n')
    old.chmod(0o755)
    for target in ("run", "test", "test-pure"):
        answer = make(ROOT, target, f"PYTHON={old}", f"VENV={tmp_path / 'venv'}")
        complaint, _, rest = answer.stderr.partition("\n")
        assert complaint == f"aiperf-hpc needs Python 3.10 or newer; {old} is 3.9: make PYTHON=python3.11"
        assert rest.startswith("make: ***")
        assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize(("target", "extras"), [("run", "'.[run,report]'"), ("test", "'.[dev]'")])
def test_a_new_environment_is_given_its_extras(target: str, extras: str, tmp_path: Path) -> None:
    """As `make` would do it in a fresh clone, up to the shell's reading of it: nothing is carried out."""
    answer = make(ROOT, "--dry-run", f"VENV={tmp_path / 'new'}", target)
    assert answer.returncode == 0, answer.stderr
    assert f"-e {extras};" in answer.stdout
    parsed = subprocess.run(["bash", "-n"], input=answer.stdout, capture_output=True, text=True, timeout=60)
    assert (parsed.returncode, parsed.stderr) == (0, "")


@pytest.mark.parametrize(
    ("was", "wanted", "adds"),
    [("", "", True), ("nvidia", "", True), ("nvidia", "none", False), (None, "", False)],
)
def test_tests_replace_nothing_that_make_run_has_installed(
    tmp_path: Path, was: str | None, wanted: str, adds: bool
) -> None:
    """Another accelerator that is named is a wish; that the login node has none is not."""
    venv = tmp_path / "venv"
    venv.mkdir()
    (venv / ".made").touch()
    if was is not None:
        (venv / ".installed").touch()
        (venv / ".accelerator").write_text(f"{was}\n")
    answer = make(ROOT, "--dry-run", f"VENV={venv}", *[f"ACCELERATOR={wanted}"] * bool(wanted), "test")
    assert answer.returncode == 0, answer.stderr
    assert (".ci/add_extra.py dev" in answer.stdout, "-e '.[dev]'" in answer.stdout) == (adds, not adds)


def test_help_names_every_target_a_user_types() -> None:
    assert {"make run", "make test"} <= set(make(ROOT).stdout.replace("  ", "\n").splitlines())


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """An environment that make takes for one of its own, with everything installed."""
    environment = tmp_path / "venv"
    (environment / "bin").mkdir(parents=True)
    (environment / "bin/python").symlink_to(sys.executable)
    for name in (".made", ".installed-dev", ".installed"):
        (environment / name).touch()
    return environment


@pytest.mark.parametrize(
    ("was", "wanted", "again"), [("", "", 0), ("", "nvidia", 1), ("nvidia", "nvidia", 0)]
)
def test_another_accelerator_is_installed_for_again(made: Path, was: str, wanted: str, again: int) -> None:
    (made / ".accelerator").write_text(f"{was}\n")
    for target in (".installed", ".installed-dev"):
        answer = make(ROOT, "--question", str(made / target), f"VENV={made}", f"ACCELERATOR={wanted}")
        assert answer.returncode == again, answer.stderr


def test_what_is_installed_is_installed_again_when_something_else_is_stated(
    made: Path, tmp_path: Path
) -> None:
    clone, stamp = cloned(tmp_path / "clone"), made / ".installed"
    (made / ".accelerator").write_text("\n")
    moment = (clone / "constraints.txt").stat().st_mtime + 1  # some file systems know whole seconds only
    for path, later in ((stamp, 0), (clone / "constraints.txt", 1)):
        os.utime(path, (moment + later, moment + later))
        answer = make(clone, "--question", str(stamp), f"VENV={made}", "ACCELERATOR=")
        assert answer.returncode == later, answer.stderr


PIP = """
import os, sys
words = sys.argv[1:]
for option in ("-r", "-c"):
    print(open(words[words.index(option) + 1]).read(), end="")
    words[words.index(option) + 1] = "FILE"
print(*words)
sys.exit(int(os.environ["PIP_CODE"]))
"""
INSTALLED = {"torch": "2.12.0+cu130", "numpy": "2.2.6", "setuptools": "65.5.0", "aiperf-hpc": "0.0.1"}


def add(folder: Path, code: int) -> subprocess.CompletedProcess[str]:
    """Adds the extra `simulate` where these are installed; pip prints what it is given."""
    (folder / "pip.py").write_text(PIP)
    for name, version in INSTALLED.items():
        (folder / f"{name}.dist-info").mkdir()
        (folder / f"{name}.dist-info/METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    # Without the packages of the tests (-S).
    return subprocess.run(
        [sys.executable, "-S", str(ROOT / ".ci/add_extra.py"), "simulate", "--quiet"],
        env={**os.environ, "PYTHONPATH": str(folder), "PIP_CODE": str(code)},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_what_is_installed_is_kept_and_the_rest_is_as_tested(tmp_path: Path) -> None:
    answer = add(tmp_path, 0)
    *given, command = answer.stdout.splitlines()
    assert answer.returncode == 0, answer.stderr
    assert given[:3] == ["simpy>=4.1", "numpy==2.2.6", "torch==2.12.0+cu130"]
    assert {line.partition("==")[0] for line in given[3:]} >= {"simpy", "pillow", "safetensors"}
    assert not [line for line in given[3:] if line.startswith(("torch==", "numpy==", "aiperf"))]
    assert command == "install --quiet -r FILE -c FILE"
    assert answer.stderr == "kept, although constraints.txt has other versions: torch 2.12.0+cu130\n"


def test_what_cannot_be_added_is_one_line(tmp_path: Path) -> None:
    answer = add(tmp_path, 1)
    assert answer.returncode == 1
    assert answer.stderr.splitlines()[-1] == (
        "pip cannot add the extra simulate without replacing something that jobs may be using, or cannot "
        f"download it (see above); nothing in {sys.base_prefix} was changed. For tests in an environment of "
        "their own: make test VENV=.venv-test"
    )


SCRIPT = ROOT / ".ci/choose_torch.py"
PYTHON = "PYTHON"
"""The machine's own."""


DEVICES = {"nvidia-smi": "GPU 0: NVIDIA H100", "rocm-smi": "GPU[0] : 0x740f", "npu-smi": "Total Count : 8"}
"""What vendors' tools print of a device."""


def answering(answers: Mapping[str, str], otherwise: str) -> str:
    """What a Python runs if its words end so, or are anything else."""
    cases = "".join(f"  {words}) {command};;\n" for words, command in {**answers, "*": otherwise}.items())
    return f'case "$*" in\n{cases}esac\n'


def test_torch_is_chosen_by_accelerator_and_index_and_must_see_its_device(
    tmp_path: Path, comes_to_what_was_read: ComesTo
) -> None:
    """On a machine that is a folder of programs: vendors' tools, and a Python whose pip has an index. A tool
    without a device is no accelerator. At a terminal it is asked for."""
    wheel = tmp_path / "torch.whl"
    wheel.write_bytes(bytes(2_000_000))
    report = json.dumps({"install": [{"download_info": {"url": wheel.as_uri()}}]})

    def chosen(
        here: str,
        accelerator: str,
        *words: str,
        typed: str | None = None,
        prints: str | None = None,
        code: int = 0,
        offered: tuple[str, ...] = ("torch==2.13.0+cpu",),
    ) -> tuple[int, str, str]:
        """The exit code, output and errors, with these tools, of which all may print something else; the
        index offers a CPU build. `typed` at a terminal; None: there is no terminal."""
        machine = tmp_path / "machine"
        shutil.rmtree(machine, ignore_errors=True)
        machine.mkdir()
        programs = {
            tool: f"printf '%s' '{DEVICES.get(tool, '') if prints is None else prints}'\nexit {code}\n"
            for tool in here.split()
        }
        builds = {f"*'{build}'": f"printf '%s' '{report}'; exit 0" for build in offered}
        programs["python"] = answering(builds, "echo 'ERROR: No matching distribution found' >&2; exit 1")
        if "--verify" in words:  # its torch answers yes to this question alone
            seen = {"*'if torch.version.cuda else'*": "exit 0"}
            programs["python"] = answering(seen, "echo 2.13.0+cpu >&2; exit 1")
        for program, script in programs.items():
            (machine / program).write_text(f"#!/bin/sh\n{script}")
            (machine / program).chmod(0o755)
        person, terminal = os.openpty()
        os.write(person, f"{typed}\n".encode())
        answer = subprocess.run(
            [
                sys.executable,
                SCRIPT,
                *(machine / "python" if each == PYTHON else each for each in words or (PYTHON,)),
            ],
            stdin=subprocess.DEVNULL if typed is None else terminal,
            capture_output=True,
            text=True,
            env={"PATH": str(machine), "ACCELERATOR": accelerator},
            timeout=60,
        )
        os.close(person)
        os.close(terminal)
        told = re.sub(r"\d,\d{3} MB", "… MB", answer.stderr)  # of the default build, by the processor
        return answer.returncode, answer.stdout, told

    comes_to_what_was_read("chosen_torch.txt", {"chosen": chosen})


def test_the_size_that_is_said_is_that_of_the_pinned_version() -> None:
    pin = next(
        line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch==")
    )
    for processor in ("x86_64", "aarch64"):
        stated = f'("{pin.removeprefix("torch==")}", "Linux", "{processor}")'
        assert stated in SCRIPT.read_text(encoding="utf-8")
