"""How long reports and verdicts of large runs take, how large the pages are, how fast they open.

    python benchmarks/large_runs.py [--trials 100000] [--directory DIR]

Two journals of runs that never were, both on 512 groups: 2,000 trials and 100,000. For each the
command is run as a user would, and its seconds and its greatest memory are printed beside the limits.
The page of the first is opened in Chromium, which must be on PATH. Ends with 1 when a limit is missed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from aiperf.config import LimitsConfig
from tests.journals import CIFAR, Machine, write_run

LIMITS = {
    "page": (60.0, 2048.0),
    "large page": (60.0, 2048.0),
    "large validate": (300.0, None),
}
PAGE_MEGABYTES, OPEN_SECONDS = 5.0, 2.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--directory", type=Path, help="keep the runs there, and use those that are there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        kept = options.directory or Path(scratch)
        wide = made(kept / "wide", groups=512, trials=2_000)
        large = made(kept / "large", groups=512, trials=options.trials)
        good = [
            command("page", "report", wide),
            page(wide / "report.html"),
            command("large page", "report", large),
            command("large validate", "validate", large),
            command("large page", "report", large),
        ]
    sys.exit(0 if all(good) else 1)


def made(directory: Path, groups: int, trials: int) -> Path:
    if not directory.exists():
        began = time.perf_counter()
        config = replace(CIFAR, limits=LimitsConfig(max_trials=trials))
        files = write_run(directory, config, Machine(groups=groups, devices_per_group=1))
        megabytes = files.journal.stat().st_size / 1e6
        seconds = time.perf_counter() - began
        print(
            f"{directory.name}: {trials:,} trials, {megabytes:,.0f} MB, made in {seconds:.0f} s",
            flush=True,
        )
    return directory


def command(name: str, word: str, run: Path) -> bool:
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "aiperf", word, str(run)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    said = process.stdout.read().decode().strip().splitlines()
    _, status, used = os.wait4(process.pid, 0)
    seconds, megabytes = time.perf_counter() - began, used.ru_maxrss / 1024
    cpu = used.ru_utime + used.ru_stime
    print(
        f"{name:<16}{seconds:7.1f} s, {cpu:.1f} s CPU, {megabytes:.0f} MiB; {said[-1] if said else ''}",
        flush=True,
    )
    most_seconds, most_megabytes = LIMITS[name]
    ended = os.waitstatus_to_exitcode(status)
    return ended == 0 and seconds <= most_seconds and (most_megabytes is None or megabytes <= most_megabytes)


def page(path: Path) -> bool:
    """Opens it as a reader would: its size, and the seconds until it is drawn, less an empty page's."""
    megabytes = path.stat().st_size / 1e6
    empty = path.with_name("empty.html")
    empty.write_text("<!doctype html><title>empty</title>", encoding="utf-8")
    seconds = opened(path) - opened(empty)
    print(f"{'open':<16}{seconds:7.2f} s {megabytes:8.2f} MB", flush=True)
    return seconds <= OPEN_SECONDS and megabytes <= PAGE_MEGABYTES


def opened(path: Path) -> float:
    chromium = shutil.which("chromium") or sys.exit("no chromium on PATH: apt-get install chromium")
    with tempfile.TemporaryDirectory() as profile:
        words = [chromium, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]
        began = time.perf_counter()
        subprocess.run(
            [*words, "--screenshot=" + str(Path(profile) / "page.png"), f"file://{path.resolve()}"],
            check=True,
            capture_output=True,
            timeout=120,
        )
        return time.perf_counter() - began


if __name__ == "__main__":
    main()
