"""What a process computes in, as the journal has it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

from aiperf.training.surroundings import LONGEST_VALUE, container, read_settings
from tests.tables import ComesTo


def put(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_outside_of_all_there_are_threads_and_the_instruction_set(tmp_path: Path) -> None:
    isa, before = torch.backends.cpu.get_cpu_capability(), torch.get_num_threads()
    try:
        for threads in (before, before + 1):  # those of the moment
            torch.set_num_threads(threads)
            assert read_settings({}, tmp_path) == {"threads": str(threads), "ISA": isa}
    finally:
        torch.set_num_threads(before)


def test_all_that_there_is_is_named(tmp_path: Path) -> None:
    for index, name in enumerate(("schedutil", "performance", "schedutil")):
        put(tmp_path / f"sys/devices/system/cpu/cpufreq/policy{index}/scaling_governor", f"{name}\n")
    found = read_settings({"SLURM_JOB_ID": "4711", "APPTAINER_NAME": "torch.sif"}, tmp_path)
    named = {"governor": "performance, schedutil", "job": "Slurm 4711", "container": "Apptainer torch.sif"}
    assert {name: found[name] for name in named} == named


def test_only_the_variables_of_the_list_are_recorded(tmp_path: Path) -> None:
    recorded = {
        "ATEN_CPU_CAPABILITY": "default",
        "GOMP_CPU_AFFINITY": "0-3",
        "KMP_BLOCKTIME": "0",
        "MKL_NUM_THREADS": "4",
        "NCCL_IB_HCA": "mlx5_0",
        "OMP_NUM_THREADS": "4",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "OPENBLAS_NUM_THREADS": "4",
    }
    secret = {"MY_OMP_TOKEN": "1", "OMPI_MCA_key": "2", "MKL_SECRET": "3", "NNI_KEY": "4", "HOME": "5"}
    secret |= {"NCCL_COMM_ID": "10.0.0.1:5", "NCCL_HOSTID": "a", "NCCL_X": "b", "NCCL_NET": "token=c"}
    found = read_settings(recorded | secret, tmp_path)
    assert {name: value for name, value in found.items() if name.isupper() and name != "ISA"} == recorded


def test_a_long_value_does_not_fill_the_journal(tmp_path: Path) -> None:
    places = ",".join(f"{{{core}}}" for core in range(512))
    assert read_settings({"OMP_PLACES": places}, tmp_path)["OMP_PLACES"] == places[:LONGEST_VALUE]


def test_a_container_is_known_by_its_marks(tmp_path: Path, comes_to_what_was_read: ComesTo) -> None:
    def known(environment: dict[str, str], marks: dict[str, str]) -> str:
        root = Path(tempfile.mkdtemp(dir=tmp_path))
        for name, text in marks.items():
            put(root / name, text)
        return container(environment, root)

    comes_to_what_was_read("containers.txt", {"known": known})
