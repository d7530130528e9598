"""The name of a CPU, from what Linux reports of it: two numbers on Arm, various keys elsewhere.

Numbers and names of cores are from util-linux, lscpu-arm.c, 2026, and Linux,
arch/arm64/include/asm/cputype.h. Several vendors build the same core into their chips; those of NVIDIA and
Amazon are identified by further files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from nas.bounded import system_text

ARM, BROADCOM, CAVIUM, FUJITSU, HISILICON, NVIDIA = 0x41, 0x42, 0x43, 0x46, 0x48, 0x4E
QUALCOMM, APPLE, MICROSOFT, PHYTIUM, AMPERE = 0x51, 0x61, 0x6D, 0x70, 0xC0

VENDORS: Mapping[int, str] = {
    ARM: "Arm",
    BROADCOM: "Broadcom",
    CAVIUM: "Cavium",
    FUJITSU: "Fujitsu",
    HISILICON: "HiSilicon",
    NVIDIA: "NVIDIA",
    QUALCOMM: "Qualcomm",
    APPLE: "Apple",
    MICROSOFT: "Microsoft",
    PHYTIUM: "Phytium",
    AMPERE: "Ampere",
}
CORES: Mapping[tuple[int, int], str] = {
    (ARM, 0xD03): "Cortex-A53",
    (ARM, 0xD04): "Cortex-A35",
    (ARM, 0xD05): "Cortex-A55",
    (ARM, 0xD06): "Cortex-A65",
    (ARM, 0xD07): "Cortex-A57",
    (ARM, 0xD08): "Cortex-A72",
    (ARM, 0xD09): "Cortex-A73",
    (ARM, 0xD0A): "Cortex-A75",
    (ARM, 0xD0B): "Cortex-A76",
    (ARM, 0xD0C): "Neoverse-N1",
    (ARM, 0xD0D): "Cortex-A77",
    (ARM, 0xD0E): "Cortex-A76AE",
    (ARM, 0xD40): "Neoverse-V1",
    (ARM, 0xD41): "Cortex-A78",
    (ARM, 0xD42): "Cortex-A78AE",
    (ARM, 0xD44): "Cortex-X1",
    (ARM, 0xD46): "Cortex-A510",
    (ARM, 0xD47): "Cortex-A710",
    (ARM, 0xD48): "Cortex-X2",
    (ARM, 0xD49): "Neoverse-N2",
    (ARM, 0xD4A): "Neoverse-E1",
    (ARM, 0xD4B): "Cortex-A78C",
    (ARM, 0xD4C): "Cortex-X1C",
    (ARM, 0xD4D): "Cortex-A715",
    (ARM, 0xD4E): "Cortex-X3",
    (ARM, 0xD4F): "Neoverse-V2",
    (ARM, 0xD80): "Cortex-A520",
    (ARM, 0xD81): "Cortex-A720",
    (ARM, 0xD82): "Cortex-X4",
    (ARM, 0xD83): "Neoverse-V3AE",
    (ARM, 0xD84): "Neoverse-V3",
    (ARM, 0xD85): "Cortex-X925",
    (ARM, 0xD87): "Cortex-A725",
    (ARM, 0xD8E): "Neoverse-N3",
    (BROADCOM, 0x516): "ThunderX2",
    (CAVIUM, 0x0A0): "ThunderX",
    (CAVIUM, 0x0A1): "ThunderX-88XX",
    (CAVIUM, 0x0AF): "ThunderX2-99xx",
    (CAVIUM, 0x0B8): "ThunderX3-T110",
    (FUJITSU, 0x001): "A64FX",
    (FUJITSU, 0x003): "MONAKA",
    (HISILICON, 0xD01): "Kunpeng-920",
    (HISILICON, 0xD02): "Kunpeng-920",
    (HISILICON, 0xD03): "Kunpeng-920",
    (HISILICON, 0xD06): "Kunpeng-950",
    (HISILICON, 0xD22): "Kunpeng-920",
    (NVIDIA, 0x004): "Carmel",
    (NVIDIA, 0x010): "Olympus",
    (QUALCOMM, 0x001): "Oryon",
    (QUALCOMM, 0xC00): "Falkor",
    (APPLE, 0x022): "M1",
    (APPLE, 0x023): "M1",
    (APPLE, 0x024): "M1 Pro",
    (APPLE, 0x025): "M1 Pro",
    (APPLE, 0x028): "M1 Max",
    (APPLE, 0x029): "M1 Max",
    (APPLE, 0x032): "M2",
    (APPLE, 0x033): "M2",
    (APPLE, 0x034): "M2 Pro",
    (APPLE, 0x035): "M2 Pro",
    (APPLE, 0x038): "M2 Max",
    (APPLE, 0x039): "M2 Max",
    (MICROSOFT, 0xD49): "Azure Cobalt 100",
    (PHYTIUM, 0x660): "FTC660",
    (PHYTIUM, 0x661): "FTC661",
    (PHYTIUM, 0x662): "FTC662",
    (PHYTIUM, 0x663): "FTC663",
    (PHYTIUM, 0x664): "FTC664",
    (PHYTIUM, 0x862): "FTC862",
    (AMPERE, 0xAC3): "Ampere-1",
    (AMPERE, 0xAC4): "Ampere-1a",
}

GRACE = "jep106:036b:0241"
"""Identifier that the firmware of NVIDIA's Grace (T241) reports: Linux, drivers/irqchip/irq-gic-v3.c; NVIDIA
DCGM, CpuHelpers.cpp."""
AMAZON = "Amazon EC2"
GRAVITONS: Mapping[str, str] = {
    "Cortex-A72": "AWS Graviton",
    "Neoverse-N1": "AWS Graviton2",
    "Neoverse-V1": "AWS Graviton3",
    "Neoverse-V2": "AWS Graviton4",
}
"""Names of Amazon's CPUs by their core, for machines of AMAZON: AWS Graviton Technical Guide, 2026."""

NAMING = ("model name", "cpu model", "uarch", "cpu")
"""Keys of /proc/cpuinfo whose value is a name: x86 and LoongArch, MIPS, RISC-V, POWER and SPARC."""


def processor_name(cpuinfo: str, soc_id: str = "", system_vendor: str = "") -> str:
    """The name of the CPU by the text of /proc/cpuinfo; if cores differ, all their names; empty if unknown.

    `soc_id` is /sys/devices/soc0/soc_id, `system_vendor` is /sys/class/dmi/id/sys_vendor.
    """
    values: dict[str, list[str]] = {}
    for line in cpuinfo.splitlines():
        key, colon, value = line.partition(":")
        if colon and value.strip():
            values.setdefault(key.strip().lower(), []).append(value.strip())
    given = next((values[key][0] for key in NAMING if key in values), "")
    if "cpu implementer" in values and (not given or given.startswith("ARMv")):
        return _arm_name(cpuinfo, soc_id.strip(), system_vendor.strip())
    if "isa" in values and not given:
        return f"RISC-V {values['isa'][0].partition('_')[0]}"
    machine = re.search(r"machine = (\w+)", cpuinfo)
    if machine is not None and "vendor_id" in values:
        return f"{values['vendor_id'][0]} {machine[1]}"
    # "POWER9 (architected), altivec supported" is a POWER9; on x86 the parenthesis is part of the name.
    return re.split(r"\s*[(,]", given)[0] if given in values.get("cpu", ()) else given


def read_processor_name(root: Path = Path("/")) -> str:
    """The name of the CPU of the machine whose file system is at `root`; empty if unknown, as on systems
    other than Linux."""
    return processor_name(
        system_text(root / "proc/cpuinfo"),
        system_text(root / "sys/devices/soc0/soc_id"),
        system_text(root / "sys/class/dmi/id/sys_vendor"),
    )


def is_processor(device: str) -> bool:
    """Whether the name of a device is that of a CPU, as a vendor or this module writes it."""
    cores = "|".join(map(re.escape, CORES.values()))
    words = rf"\bCPU\b|Xeon|EPYC|Processor|^POWER|^RISC-V|\bpart 0x|(?<![\w-])({cores})(?![\w-])"
    return re.search(words, device) is not None


def _arm_name(cpuinfo: str, soc_id: str, system_vendor: str) -> str:
    """The names of all kinds of core, in the order in which they are listed, and of the chip around them if a
    further file identifies it."""
    numbers = [
        [int(number, 16) for number in re.findall(rf"^CPU {key}\s*:\s*(0x[0-9a-f]+)\s*$", cpuinfo, re.M)]
        for key in ("implementer", "part")
    ]
    name = " + ".join(dict.fromkeys(map(_core, *numbers)))
    if not name:
        return ""
    chip = "NVIDIA Grace" if soc_id == GRACE else GRAVITONS.get(name) if system_vendor == AMAZON else None
    return f"{chip} ({name})" if chip else name


def _core(implementer: int, part: int) -> str:
    """The name of a core by its two numbers, with the vendor's unless the name alone says whose it is."""
    vendor = VENDORS.get(implementer, f"Arm of implementer {implementer:#04x}")
    core = CORES.get((implementer, part))
    if core is None:
        return f"{vendor} part {part:#05x}"
    return core if implementer in (ARM, AMPERE) else f"{vendor} {core}"
