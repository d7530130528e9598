"""Names of processors, from /proc/cpuinfo as these machines write it, cut to the lines of one core.

A64FX (Ookami) and X60: tests of archspec-json. POWER9P: linuxppc-dev, 2019. POWER7, RISC-V, S/390 and
Loongson: dumps of util-linux' tests of lscpu. What `arm` makes has the numbers of the table in their form.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from aiperf.hardware.cpu_names import GRACE, is_processor, processor_name, read_processor_name


def arm(*cores: tuple[int, str], features: str = "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics") -> str:
    """As arch/arm64/kernel/cpuinfo.c writes it; its lines are the same on every machine."""
    return "\n".join(
        f"processor\t: {number}\nBogoMIPS\t: 2000.00\nFeatures\t: {features}\n"
        f"CPU implementer\t: {implementer:#04x}\nCPU architecture: 8\nCPU variant\t: 0x0\n"
        f"CPU part\t: {part}\nCPU revision\t: 0\n"
        for number, (implementer, part) in enumerate(cores)
    )


GRACE_72, GRAVITON3, GRAVITON2 = (arm((0x41, part)) for part in ("0xd4f", "0xd40", "0xd0c"))
A64FX = """\
processor       : 0
BogoMIPS        : 200.00
Features        : fp asimd evtstrm sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm fcma dcpop \
sve
CPU implementer : 0x46
CPU architecture: 8
CPU variant     : 0x1
CPU part        : 0x001
CPU revision    : 0
"""
POWER7 = """\
processor\t: 0
cpu\t\t: POWER7 (architected), altivec supported
clock\t\t: 3000.000000MHz
revision\t: 2.1 (pvr 003f 0201)
"""
POWER9P = "processor\t: 0\ncpu\t\t: POWER9P, altivec supported\nclock\t\t: 2950.000000MHz\n"
VISION_FIVE = "processor\t: 0\nhart\t\t: 3\nisa\t\t: rv64imafdc_zba\nuarch\t\t: sifive,u74-mc\n"
PIONEER = "processor\t: 0\nhart\t\t: 1\nisa\t\t: rv64imafdcv\nmmu\t\t: sv39\nmvendorid\t: 0x5b7\n"
X60 = "processor\t: 0\nhart\t\t: 0\nmodel name\t: Spacemit(R) X60\nisa\t\t: rv64imafdcv_zicbom\n"
Z196 = """\
vendor_id       : IBM/S390
# processors    : 17
bogomips per cpu: 14367.00
features\t: esan3 zarch stfle msa ldisp eimm dfp etf3eh highgprs
processor 1: version = 00,  identification = 279F25,  machine = 2817
"""
LOONGSON = """\
system type\t\t: generic-loongson-machine

processor\t\t: 0
CPU Family\t\t: Loongson-64bit
Model Name\t\t: Loongson-3A5000-HV
ISA\t\t\t: loongarch32 loongarch64
"""
EPYC = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n"
XEON = "vendor_id\t: GenuineIntel\nmodel name\t: Intel(R) Xeon(R) Platinum 8480+\n"
COMPATIBLE = arm((0x41, "0xd08")).replace("BogoMIPS", "model name\t: ARMv8 Processor rev 3 (v8l)\nBogoMIPS")
PHYTIUM = arm((0x70, "0x663")).replace("BogoMIPS", "model name\t: Phytium,S2500/64 C00\nBogoMIPS")

NAMES = [
    (GRACE_72, "Neoverse-V2"),
    (GRAVITON3, "Neoverse-V1"),
    (GRAVITON2, "Neoverse-N1"),
    (A64FX, "Fujitsu A64FX"),
    (arm((0xC0, "0xac4")), "Ampere-1a"),
    (arm((0xC0, "0xac3")), "Ampere-1"),
    (arm((0x41, "0xd0b"), (0x41, "0xd0b")), "Cortex-A76"),
    (arm((0x43, "0x0af")), "Cavium ThunderX2-99xx"),
    (arm((0x48, "0xd01")), "HiSilicon Kunpeng-920"),
    (arm((0x61, "0x022"), (0x61, "0x023")), "Apple M1"),
    (arm((0x61, "0x000")), "Apple part 0x000"),
    (arm((0x41, "0xfff")), "Arm part 0xfff"),
    (arm((0x99, "0x001")), "Arm of implementer 0x99 part 0x001"),
    (
        arm((0x41, "0xd46"), (0x41, "0xd47"), (0x41, "0xd4d"), (0x41, "0xd4d"), (0x41, "0xd4e")),
        "Cortex-A510 + Cortex-A710 + Cortex-A715 + Cortex-X3",
    ),
    (COMPATIBLE, "Cortex-A72"),
    (PHYTIUM, "Phytium,S2500/64 C00"),
    (POWER7, "POWER7"),
    (POWER9P, "POWER9P"),
    (VISION_FIVE, "sifive,u74-mc"),
    (PIONEER, "RISC-V rv64imafdcv"),
    (X60, "Spacemit(R) X60"),
    (Z196, "IBM/S390 2817"),
    (LOONGSON, "Loongson-3A5000-HV"),
    (EPYC, "AMD EPYC"),
    (XEON, "Intel(R) Xeon(R) Platinum 8480+"),
    ("", ""),
    ("processor\t: 0\nCPU implementer\t: \nCPU part\t: none of yours\n", ""),
    ("processor\t: 0\nCPU implementer\t: 0x41\n", ""),
]


@pytest.mark.parametrize(("cpuinfo", "name"), NAMES, ids=[name or "nothing" for _, name in NAMES])
def test_a_processor_has_the_name_that_people_know(cpuinfo: str, name: str) -> None:
    assert processor_name(cpuinfo) == name


@pytest.mark.parametrize(
    ("cpuinfo", "soc_id", "vendor", "name"),
    [
        (GRACE_72, GRACE, "Quanta", "NVIDIA Grace (Neoverse-V2)"),
        (GRACE_72, "", "Amazon EC2", "AWS Graviton4 (Neoverse-V2)"),
        (GRACE_72, "", "Google", "Neoverse-V2"),
        (GRAVITON3, "", "Amazon EC2", "AWS Graviton3 (Neoverse-V1)"),
        (GRAVITON2, "", "Amazon EC2", "AWS Graviton2 (Neoverse-N1)"),
        (arm((0x41, "0xd84")), "", "Amazon EC2", "Neoverse-V3"),
        (EPYC, "", "Amazon EC2", "AMD EPYC"),
        ("CPU implementer\t: 0x41\n", GRACE, "", ""),  # without a core it has no name
    ],
)
def test_a_chip_is_told_from_others_of_its_core(cpuinfo: str, soc_id: str, vendor: str, name: str) -> None:
    assert processor_name(cpuinfo, soc_id, vendor) == name


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


def test_no_accelerator_is_taken_for_a_processor() -> None:
    processors = ["NVIDIA Grace (Neoverse-V2)", "Cortex-X925 + Cortex-A725", "Fujitsu A64FX", "Ampere-1a"]
    processors += ["Apple M1", "Arm part 0xfff", "POWER9P", "RISC-V rv64imafdcv", "AMD EPYC"]
    processors += ["Intel(R) Xeon(R) Platinum 8480+"]
    assert [name for name in processors if not is_processor(name)] == []
    accelerators = ["NVIDIA H200", "NVIDIA GH200 480GB", "AMD Instinct MI300A", "Ascend910B4", "NVIDIA GB10"]
    accelerators += ["Intel(R) Data Center GPU Max 1550", "NVIDIA A100-SXM4-80GB", "Tesla M10", "Tesla V100"]
    assert [name for name in accelerators if is_processor(name)] == []
