"""Names of processors, from /proc/cpuinfo as these machines write it, cut to the lines of one core: cpuinfo/.

A64FX (Ookami) and X60: tests of archspec-json. POWER9P: linuxppc-dev, 2019. POWER7, RISC-V, S/390 and
Loongson: dumps of util-linux' tests of lscpu. What `arm` makes has the numbers of the table in their form.
"""

from __future__ import annotations

from pathlib import Path

from aiperf.hardware import cpu_names
from aiperf.hardware.cpu_names import GRACE, read_processor_name
from tests.tables import ComesTo

DUMPS = Path(__file__).with_name("cpuinfo")


def arm(*cores: tuple[int, str], features: str = "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics") -> str:
    """As arch/arm64/kernel/cpuinfo.c writes it; its lines are the same on every machine."""
    return "\n".join(
        f"processor\t: {number}\nBogoMIPS\t: 2000.00\nFeatures\t: {features}\n"
        f"CPU implementer\t: {implementer:#04x}\nCPU architecture: 8\nCPU variant\t: 0x0\n"
        f"CPU part\t: {part}\nCPU revision\t: 0\n"
        for number, (implementer, part) in enumerate(cores)
    )


GRACE_72, GRAVITON3, GRAVITON2 = (arm((0x41, part)) for part in ("0xd4f", "0xd40", "0xd0c"))
COMPATIBLE = arm((0x41, "0xd08")).replace("BogoMIPS", "model name\t: ARMv8 Processor rev 3 (v8l)\nBogoMIPS")
PHYTIUM = arm((0x70, "0x663")).replace("BogoMIPS", "model name\t: Phytium,S2500/64 C00\nBogoMIPS")


def test_a_processor_has_the_name_that_people_know(comes_to_what_was_read: ComesTo) -> None:
    """A chip is told from others of its core by what else the machine says of itself. No accelerator is
    taken for a processor."""
    dumps = {path.stem: path.read_text(encoding="utf-8") for path in DUMPS.iterdir()}
    comes_to_what_was_read("cpu_names.txt", {**vars(cpu_names), **globals(), **dumps})


def test_it_is_read_where_linux_has_it(tmp_path: Path) -> None:
    assert read_processor_name(tmp_path) == ""
    for path, text in {
        "proc/cpuinfo": GRACE_72,
        "sys/devices/soc0/soc_id": f"{GRACE}\n",
        "sys/class/dmi/id/sys_vendor": "Quanta\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(text)
    assert read_processor_name(tmp_path) == "NVIDIA Grace (Neoverse-V2)"
