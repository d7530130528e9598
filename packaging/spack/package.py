"""Spack's recipe, in the form of its version 1. Never concretised: no registry has Spack.

Copy it into a repository of the site as packages/aiperf_hpc/package.py. No index has the source; in the
checkout, `python -m build --sdist` makes it. Then run in the directory of that file:
spack install --no-checksum aiperf-hpc
"""

import os

from spack.package import depends_on, license, variant, version
from spack_repo.builtin.build_systems.python import PythonPackage

BOTH = ("build", "run")


class AiperfHpc(PythonPackage):
    """A benchmark of AI supercomputers: neural architecture search by network morphism, scored in operations
    per second."""

    homepage = "https://doi.org/10.26599/BDMA.2021.9020004"
    manual_download = True
    url = f"file://{os.getcwd()}/aiperf_hpc-0.1.0.tar.gz"

    license("Apache-2.0 AND PSF-2.0")

    version("0.1.0")

    variant("run", default=True, description="PyTorch, and the other requirements of a run")
    variant("mpi", default=True, description="several devices and nodes")
    variant("report", default=True, description="pages, figures, results as JSON")
    variant("sign", default=False, description="signed packages")

    depends_on("python@3.10:", type=BOTH)
    depends_on("py-setuptools@77:", type="build")

    depends_on("py-numpy@1.26:", type=BOTH)
    depends_on("py-tomli-w@1.0:", type=BOTH)
    depends_on("py-tomli@2.0:", type=BOTH, when="^python@:3.10")
    depends_on("py-rich@13:", type=BOTH)
    depends_on("py-click@8.2:", type=BOTH)

    depends_on("py-torch@2.6:", type=BOTH, when="+run")
    depends_on("py-safetensors@0.4.3:", type=BOTH, when="+run")
    depends_on("py-scikit-learn@1.4:", type=BOTH, when="+run")
    depends_on("py-pillow@10.1:", type=BOTH, when="+run")
    depends_on("py-psutil@5.9:", type=BOTH, when="+run")

    depends_on("py-mpi4py@4.0:", type=BOTH, when="+mpi")

    depends_on("py-jinja2@3.1:", type=BOTH, when="+report")
    depends_on("py-markupsafe@2.1:", type=BOTH, when="+report")
    depends_on("py-matplotlib@3.8:", type=BOTH, when="+report")
    depends_on("py-jsonschema@4.20:", type=BOTH, when="+report")
    depends_on("py-prometheus-client@0.20:", type=BOTH, when="+report")

    depends_on("py-cryptography@42:", type=BOTH, when="+sign")
    depends_on("py-confusable-homoglyphs@3.3:", type=BOTH, when="+sign")
