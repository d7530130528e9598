"""Which build of torch `make` installs here, and how large it is: said before anything is downloaded.

`choose_torch.py PYTHON [PIP_ARGS…]` prints a requirement for that interpreter's pip; what it found and
what will be downloaded goes to the standard error. `choose_torch.py --verify PYTHON` checks, after the
installation, that torch sees the accelerator that was found. ACCELERATOR=none overrides what is found.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"

# The tool that lists a vendor's devices, and fails or prints nothing where there is none.
PROBES: Mapping[str, tuple[str, ...]] = {
    "nvidia": ("nvidia-smi", "--list-gpus"),
    "rocm": ("rocm-smi", "--showid"),
    "npu": ("npu-smi", "info", "-l"),
    "xpu": ("xpu-smi", "discovery"),
}
# What torch says of the device: with a CPU build, or a driver too old for the build, it is False.
SEEN_BY_TORCH: Mapping[str, str] = {
    "nvidia": "torch.cuda.is_available()",
    "rocm": "torch.cuda.is_available() and torch.version.hip",
    "xpu": "torch.xpu.is_available()",
}


# What the default index sends for torch alone, by version, system and machine, as its file list says:
# torch with CUDA 13 and triton, 29 files. A machine that is not listed gets "size not known beforehand".
DEFAULT_BUILD_BYTES: Mapping[tuple[str, str, str], int] = {("2.13.0", "Linux", "x86_64"): 2_740_823_045}


def accelerator() -> str:
    """nvidia, rocm, npu, xpu or none: ACCELERATOR when it is set, else the first whose probe lists one."""
    stated = os.environ.get("ACCELERATOR", "")
    if stated:
        if stated not in (*PROBES, "none"):
            raise SystemExit(f"ACCELERATOR is {stated!r}; it is one of {', '.join(PROBES)}, none")
        return stated
    for name, command in PROBES.items():
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
    if device in ("none", "npu"):  # torch_npu stands beside the CPU build of torch
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
            f"an accelerator ({device}) is here, and the default index has no torch for it; give the index "
            "that pytorch.org names, make PIP_ARGS='--extra-index-url …', or ACCELERATOR=none for the CPU"
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
    """Of the file at an address; None when its server does not say."""
    if address.startswith("file:"):
        return Path(unquote(urlsplit(address).path)).stat().st_size
    try:
        question = urllib.request.Request(address, method="HEAD")
        with urllib.request.urlopen(question, timeout=15) as answer:
            return int(answer.headers["Content-Length"])
    except (OSError, TypeError, ValueError):
        return None


def verify(python: str, device: str) -> None:
    """Raises SystemExit when an accelerator is here that the installed torch does not see."""
    if device not in SEEN_BY_TORCH:
        return
    question = f"import sys, torch; sys.exit(0 if {SEEN_BY_TORCH[device]} else torch.__version__)"
    answer = subprocess.run([python, "-c", question], capture_output=True, text=True)
    if answer.returncode:
        raise SystemExit(
            f"an accelerator ({device}) is here, but torch {answer.stderr.strip()} does not see it; give an "
            "index with a build for its driver, make PIP_ARGS='--extra-index-url …', or ACCELERATOR=none"
        )


def main(arguments: list[str]) -> None:
    device = accelerator()
    if arguments[0] == "--verify":
        verify(arguments[1], device)
        return
    python, *pip_args = arguments
    version = pinned(CONSTRAINTS.read_text(encoding="utf-8"))
    asked, said = requirement(device, version, python, pip_args)
    print(f"accelerator: {device}; torch {version}: {said}", file=sys.stderr)
    print(asked)


def _megabytes(size: int | None) -> str:
    return "size not known beforehand" if size is None else f"{size / 1e6:,.0f} MB"


if __name__ == "__main__":
    main(sys.argv[1:])
