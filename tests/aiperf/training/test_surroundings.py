"""What a process computes in, as the journal has it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

from aiperf.training.surroundings import container, read_settings
from tests.tables import ComesTo


def test_outside_of_all_there_are_threads_and_the_instruction_set(tmp_path: Path) -> None:
    isa, before = torch.backends.cpu.get_cpu_capability(), torch.get_num_threads()
    try:
        for threads in (before, before + 1):  # those of the moment
            torch.set_num_threads(threads)
            assert read_settings({}, tmp_path) == {"threads": str(threads), "ISA": isa}
    finally:
        torch.set_num_threads(before)


def test_what_is_recorded_and_what_is_not(tmp_path: Path, comes_to_what_was_read: ComesTo) -> None:
    """A container is known by its marks. A long value is cut. Of variables only those of the list are there,
    without secrets."""

    def root(files: dict[str, str]) -> Path:
        found = Path(tempfile.mkdtemp(dir=tmp_path))
        for name, text in files.items():
            (found / name).parent.mkdir(parents=True, exist_ok=True)
            (found / name).write_text(text)
        return found

    def recorded(environment: dict[str, str], *governors: str) -> dict[str, str]:
        """Besides the threads and the instruction set."""
        folder = "sys/devices/system/cpu/cpufreq/policy{}/scaling_governor"
        files = {folder.format(index): f"{name}\n" for index, name in enumerate(governors)}
        found = read_settings(environment, root(files))
        return {name: value for name, value in found.items() if name not in ("threads", "ISA")}

    def known(environment: dict[str, str], marks: dict[str, str]) -> str:
        return container(environment, root(marks))

    comes_to_what_was_read("surroundings.txt", {"recorded": recorded, "known": known})
