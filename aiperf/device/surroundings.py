"""Settings of this process's environment: threads, instruction set, governor, batch job, container,
variables.

They are recorded in the journal by name, as far as they exist. Only the variables named here are recorded,
because any other may hold a secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import torch

from aiperf import variables
from launch.current_job import job_name
from nas.bounded import system_text

# Variables of OpenMP and its libraries (OpenMP 5.2, 21; libgomp; libomp), NCCL, oneMKL, OpenBLAS, oneDNN and
# ATen: those that change how fast or in which format a CPU or a collective computes.
VARIABLES = re.compile(
    r"OMP_\w+|GOMP_\w+|KMP_\w+|NCCL_\w+"
    r"|MKL_(?:NUM_THREADS|DOMAIN_NUM_THREADS|DYNAMIC|THREADING_LAYER|ENABLE_INSTRUCTIONS)"
    r"|OPENBLAS_(?:NUM_THREADS|CORETYPE)"
    r"|ONEDNN_(?:MAX_CPU_ISA|DEFAULT_FPMATH_MODE)|DNNL_MAX_CPU_ISA|ATEN_CPU_CAPABILITY"
)
LONGEST_VALUE = 200  # characters, because the journal records the value once per rank


def read_settings(environment: Mapping[str, str], root: Path = Path("/")) -> dict[str, str]:
    """Settings by name, as they are now; torch's number of threads may be changed later."""
    found = {
        "threads": str(torch.get_num_threads()),
        "ISA": torch.backends.cpu.get_cpu_capability(),
        "governor": governor(root),
        "job": job_name(environment),
        "container": container(environment, root),
    }
    found |= {
        name: variables.word(environment, name) for name in sorted(environment) if VARIABLES.fullmatch(name)
    }
    return {name: value[:LONGEST_VALUE] for name, value in found.items() if value}


def governor(root: Path) -> str:
    """Scaling governors of the CPU's clock, as text, if cores differ all of them; empty if unknown (Linux,
    Documentation/admin-guide/pm/cpufreq.rst)."""
    policies = (root / "sys/devices/system/cpu/cpufreq").glob("policy*/scaling_governor")
    return ", ".join(sorted({text for path in policies if (text := system_text(path).strip())}))


def container(environment: Mapping[str, str], root: Path) -> str:
    """The software that runs the container around this process, with the name of the image if it is known;
    empty outside a container.

    It is recognised by APPTAINER_NAME and SINGULARITY_NAME (Apptainer's user guide, "Environment and
    Metadata"); by /run/.containerenv, which holds the image's name if the container is privileged
    (podman-run(1)); and by /.dockerenv, which Docker creates.
    """
    for variable, kind in (("APPTAINER_NAME", "Apptainer"), ("SINGULARITY_NAME", "Singularity")):
        if variables.raw(environment, variable) is not None:
            return f"{kind} {variables.word(environment, variable)}".strip()
    podman = root / "run/.containerenv"
    if podman.exists():
        image = re.search(r'^image="(.*)"$', system_text(podman), re.MULTILINE)
        return f"Podman {image[1]}" if image else "Podman"
    return "Docker" if (root / ".dockerenv").exists() else ""
