"""Spack's recipe for a library of the variant `sign`, which Spack's own repository does not have. Never
concretised: no registry has Spack.

Into a repository of the site's: packages/py_confusable_homoglyphs/package.py.
"""

from spack.package import depends_on, license, version
from spack_repo.builtin.build_systems.python import PythonPackage


class PyConfusableHomoglyphs(PythonPackage):
    """Characters that look like others, by Unicode Technical Standard #39."""

    pypi = "confusable_homoglyphs/confusable_homoglyphs-3.3.1.tar.gz"

    license("MIT")

    version("3.3.1", sha256="b995001c9b2e1b4cea0cf5f3840a7c79188a8cbbad053d693572bd8c1c1ec460")

    depends_on("py-setuptools", type="build")
