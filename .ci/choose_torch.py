"""Which build of torch `make` installs here, and how large it is: said before anything is downloaded.

`choose_torch.py PYTHON [PIP_ARGS…]` prints a requirement for that interpreter's pip; what it found and
what will be downloaded goes to the standard error. With `--wheelhouse` before them it is for other machines,
so their accelerator is asked for. `choose_torch.py --verify PYTHON` checks, after the installation, that
torch sees the accelerator, or is built for it where it is not here. ACCELERATOR overrides what is found.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"

# The tools that list a vendor's devices, and fail or print nothing where there is none.
PROBES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "nvidia": (("nvidia-smi", "--list-gpus"),),
    "rocm": (("rocm-smi", "--showid"), ("amd-smi", "list")),
    "npu": (("npu-smi", "info", "-l"),),
    "xpu": (("xpu-smi", "discovery"),),
}
# What torch says of the device: with a CPU build, or a driver too old for the build, it is False.
SEEN_BY_TORCH: Mapping[str, str] = {
    "nvidia": "torch.cuda.is_available()",
    "rocm": "torch.cuda.is_available() and torch.version.hip",
    "xpu": "torch.xpu.is_available()",
}
# What torch says of itself: a login node, where the compute nodes' environment is made, may have no device.
BUILT_INTO_TORCH: Mapping[str, str] = {
    "nvidia": "torch.version.cuda",
    "rocm": "torch.version.hip",
    "xpu": "torch.xpu._is_compiled()",
}
# Where one of these is, the machine that installs is seldom the one that runs.
SUBMITTING = ("sbatch", "qsub", "bsub")

# What the default index sends for torch alone, by version, system and machine, as its file list says:
# torch with CUDA 13 and triton, 29 files. A machine that is not listed gets "size not known beforehand".
DEFAULT_BUILD_BYTES: Mapping[tuple[str, str, str], int] = {
    ("2.13.0", "Linux", "x86_64"): 2_740_823_045,
    ("2.13.0", "Linux", "aarch64"): 2_868_265_027,
}


def stated() -> str:
    """ACCELERATOR, which may be empty. Raises SystemExit for what it cannot be."""
    name = os.environ.get("ACCELERATOR", "")
    return _known(name) if name else ""


def asked() -> str:
    """The accelerator of the machines that a wheelhouse is for: as stated, else as a person answers.

    Nothing is guessed from this machine, which has a network, where those may have devices instead.
    """
    if name := stated():
        return name
    choices = f"{', '.join(PROBES)} or none"
    if not sys.stdin.isatty():
        raise SystemExit(
            "a wheelhouse is for other machines, and this one cannot tell their accelerator; say it: "
            f"make wheelhouse ACCELERATOR=nvidia ({choices})"
        )
    question = f"Accelerator of the machines that will install from the wheelhouse ({choices}): "
    print(question, end="", file=sys.stderr, flush=True)
    return _known(sys.stdin.readline().strip())


def found_here() -> str:
    """nvidia, rocm, npu, xpu or none: the first whose probe lists a device."""
    for name, command in ((name, command) for name, commands in PROBES.items() for command in commands):
        try:
            answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        except (OSError, subprocess.SubprocessError):
            continue  # absent, or no device: that is the answer
        if answer.stdout.strip():
            return name
    return "none"


def pinned(constraints: str) -> str:
    """The version of torch that was tested."""
    found = re.search(r"^torch==([\w.]+)", constraints, re.MULTILINE)
    if not found:
        raise SystemExit("constraints.txt: no line torch==VERSION")
    return found.group(1)


def requirement(device: str, version: str, python: str, pip_args: list[str]) -> tuple[str, str]:
    """What to ask pip for, and a line that says how much it will download."""
    if device in ("none", "npu"):  # torch_npu extends the CPU build of torch
        address = offered(python, f"torch=={version}+cpu", pip_args)
        if address:
            return f"torch=={version}+cpu", f"its CPU build, {_megabytes(size_bytes(address))}"
        return f"torch=={version}", (
            f"the configured index has no CPU build for this Python, so the default build, "
            f"{default_build(version)}; "
            "to avoid it, give an index that has one, make PIP_ARGS='--extra-index-url …'"
        )
    if device in ("rocm", "xpu") and not pip_args:
        raise SystemExit(
            f"the default index has no torch for the accelerator ({device}); give the index that pytorch.org "
            "names, make PIP_ARGS='--extra-index-url …', or ACCELERATOR=none for the CPU"
        )
    return f"torch=={version},!={version}+cpu", f"its build for this device, {default_build(version)}"


def offered(python: str, requirement: str, pip_args: list[str]) -> str | None:
    """Where that interpreter's pip would fetch it; None when the configured indexes do not have it."""
    options = ["--quiet", "--dry-run", "--no-deps", "--ignore-installed", "--report", "-"]
    command = [python, "-m", "pip", "install", *options, *pip_args, requirement]
    answer = subprocess.run(command, capture_output=True, text=True)
    if answer.returncode == 0:
        return str(json.loads(answer.stdout)["install"][0]["download_info"]["url"])
    if "No matching distribution" in answer.stderr:
        return None
    raise SystemExit(f"pip cannot look for {requirement}:\n{answer.stderr}")


def default_build(version: str) -> str:
    """What the default index's build downloads here, in words."""
    return _megabytes(DEFAULT_BUILD_BYTES.get((version, platform.system(), platform.machine())))


def size_bytes(address: str) -> int | None:
    """Size of the file at an address; None if its server does not report it."""
    if address.startswith("file:"):
        return Path(unquote(urlsplit(address).path)).stat().st_size
    try:
        question = urllib.request.Request(address, method="HEAD")
        with urllib.request.urlopen(question, timeout=15) as answer:
            return int(answer.headers["Content-Length"])
    except (OSError, TypeError, ValueError):
        return None


def verify(python: str, device: str, is_here: bool) -> None:
    """Raises SystemExit when the installed torch does not see the accelerator that is here, or is not built
    for the one that is elsewhere."""
    looks = SEEN_BY_TORCH if is_here else BUILT_INTO_TORCH
    if device not in looks:
        return
    question = f"import sys, torch; sys.exit(0 if {looks[device]} else torch.__version__)"
    answer = subprocess.run([python, "-c", question], capture_output=True, text=True)
    if answer.returncode:
        version = answer.stderr.strip()
        raise SystemExit(
            f"an accelerator ({device}) is here, but torch {version} does not see it; give an index with a "
            "build for its driver, make PIP_ARGS='--extra-index-url …', or ACCELERATOR=none"
            if is_here
            else f"torch {version} is not built for the accelerator ({device}); give an index with such a "
            "build, make PIP_ARGS='--extra-index-url …', or ACCELERATOR=none"
        )


def main(arguments: list[str]) -> None:
    if arguments[0] == "--verify":
        here = found_here()
        device = stated() or here
        verify(arguments[1], device, is_here=device == here)
        return
    for_others = arguments[0] == "--wheelhouse"
    python, *pip_args = arguments[for_others:]
    device = asked() if for_others else stated() or found_here()
    version = pinned(CONSTRAINTS.read_text(encoding="utf-8"))
    wanted, said = requirement(device, version, python, pip_args)
    print(f"accelerator: {device}; torch {version}: {said}", file=sys.stderr)
    submits = next(filter(shutil.which, SUBMITTING), None)
    if device == "none" and not for_others and not stated() and submits:
        print(
            f"{submits} is here: if the compute nodes have an accelerator that this machine lacks, name it, "
            f"make ACCELERATOR=nvidia ({', '.join(PROBES)})",
            file=sys.stderr,
        )
    print(wanted)


def _known(name: str) -> str:
    if name not in (*PROBES, "none"):
        raise SystemExit(f"ACCELERATOR is {name!r}; it is one of {', '.join(PROBES)}, none")
    return name


def _megabytes(size: int | None) -> str:
    return "size not known beforehand" if size is None else f"{size / 1e6:,.0f} MB"


if __name__ == "__main__":
    main(sys.argv[1:])
