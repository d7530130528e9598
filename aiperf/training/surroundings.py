"""Settings of this process's environment: threads, instruction set, governor, batch job, container,
variables.

They are recorded in the journal by name, as far as they exist. Only the variables named here are recorded,
because any other may hold a secret, and none whose value looks like one (`aiperf.host.secret_shapes`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import torch

from aiperf.host import variables
from aiperf.host.secret_shapes import without_secrets
from launch.current_job import job_name
from nas.bounded import system_text

# Variables of OpenMP and its libraries (OpenMP 5.2, 21; libgomp; libomp), NCCL (its user guide, "Environment
# Variables"), oneMKL, OpenBLAS, oneDNN and ATen: those that change how fast or in which format a CPU or a
# collective computes. No others are recorded, not even their names: NCCL_COMM_ID is an address, NCCL_HOSTID a
# name.
VARIABLES = frozenset(
    f"{family}_{name}"
    for family, names in {
        "ATEN": "CPU_CAPABILITY",
        "DNNL": "MAX_CPU_ISA",
        "GOMP": "CPU_AFFINITY RTEMS_THREAD_POOLS SPINCOUNT STACKSIZE",
        "KMP": "AFFINITY ALL_THREADS BLOCKTIME DETERMINISTIC_REDUCTION DYNAMIC_MODE FORCE_REDUCTION "
        "HW_SUBSET LIBRARY NUM_THREADS PLACE_THREADS STACKSIZE TEAMS_THREAD_LIMIT TOPOLOGY_METHOD",
        "MKL": "CBWR DOMAIN_NUM_THREADS DYNAMIC ENABLE_INSTRUCTIONS NUM_THREADS THREADING_LAYER",
        "NCCL": "ALGO ALGORITHM ALLOC_P2P_NET_LL_BUFFERS BUFFSIZE CGA_CLUSTER_SIZE CHECKS_DISABLE "
        "COLLNET_ENABLE CROSS_NIC CUMEM_ENABLE CUMEM_HOST_ENABLE DMABUF_ENABLE GDR_FLUSH_DISABLE "
        "IB_ADAPTIVE_ROUTING IB_AR_THRESHOLD IB_CUDA_SUPPORT IB_DISABLE IB_FIFO_TC IB_GID_INDEX "
        "IB_HCA IB_MERGE_NICS IB_MERGE_VFS IB_PCI_RELAXED_ORDERING IB_QPS_PER_CONNECTION "
        "IB_RETRY_CNT IB_RETURN_ASYNC_EVENTS IB_ROCE_VERSION_NUM IB_SL IB_SPLIT_DATA_ON_QPS IB_TC "
        "IB_TIMEOUT IGNORE_CPU_AFFINITY LAUNCH_MODE LL128_BUFFSIZE LL_BUFFSIZE MAX_CTAS "
        "MAX_NCHANNELS MAX_NRINGS MIN_CTAS MIN_NCHANNELS MIN_NRINGS MNNVL_ENABLE "
        "NCHANNELS_PER_NET_PEER NET NET_GDR_C2C NET_GDR_LEVEL NET_GDR_READ NET_PLUGIN "
        "NET_SHARED_BUFFERS NET_SHARED_COMMS NSOCKS_PERTHREAD NTHREADS NVB_DISABLE NVLS_ENABLE "
        "P2P_DIRECT_DISABLE P2P_DISABLE P2P_LEVEL P2P_NET_CHUNKSIZE PROTO PXN_DISABLE "
        "RUNTIME_CONNECT SHM_DISABLE SHM_USE_CUDA_MEMCPY SOCKET_FAMILY SOCKET_IFNAME "
        "SOCKET_NTHREADS SPLIT_AFFINITY TOPO_FILE TUNER_PLUGIN WORK_FIFO_DEPTH",
        "OMP": "CANCELLATION DYNAMIC MAX_ACTIVE_LEVELS MAX_TASK_PRIORITY NESTED NUM_TEAMS NUM_THREADS "
        "PLACES PROC_BIND SCHEDULE STACKSIZE TARGET_OFFLOAD TEAMS_THREAD_LIMIT THREAD_LIMIT "
        "WAIT_POLICY",
        "ONEDNN": "DEFAULT_FPMATH_MODE MAX_CPU_ISA",
        "OPENBLAS": "CORETYPE NUM_THREADS",
        "PYTORCH": "MIOPEN_SUGGEST_NHWC MIOPEN_SUGGEST_NHWC_BATCHNORM",
        "TORCH": "NCCL_ASYNC_ERROR_HANDLING",
    }.items()
    for name in names.split()
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
    found |= {name: variables.word(environment, name) for name in sorted(VARIABLES & environment.keys())}
    safe = {name: value for name, value in found.items() if value and without_secrets(value) == value}
    return {name: value[:LONGEST_VALUE] for name, value in safe.items()}


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
