"""The distribution as a site gets it: built in isolation, checked, installed alone on each Python."""

from __future__ import annotations

import os
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

import aiperf
from aiperf.host.package_clash import DISTRIBUTION, PACKAGES
from tests.house.tree import ROOT, files
from tests.packaging.cloned import cloned
from tests.packaging.recipes import interpreter, said, tool
from tests.packaging.test_metadata import PYTHONS

pytestmark = [pytest.mark.recipes, pytest.mark.timeout(900)]

NAME = f"{DISTRIBUTION.replace('-', '_')}-{aiperf.__version__}"
LICENSES = {"LICENSE", "aiperf/data/texts/LICENSE.txt"}
PACKED = {path for path in files() if path.split("/")[0] in PACKAGES}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist of a clone, and the wheel that was built from the sdist alone."""
    folder = tmp_path_factory.mktemp("distribution")
    said(tool("python"), "-m", "build", "--outdir", folder / "dist", cloned(folder / "clone"))
    sdist, wheel = folder / f"dist/{NAME}.tar.gz", folder / f"dist/{NAME}-py3-none-any.whl"
    assert set((folder / "dist").iterdir()) == {sdist, wheel}
    return sdist, wheel


def test_an_index_would_take_both(built: tuple[Path, Path]) -> None:
    assert said(tool("twine"), "check", "--strict", *built).count("PASSED") == 2


def test_the_wheel_is_all_of_the_packages_and_their_licences(built: tuple[Path, Path]) -> None:
    sdist, wheel = built
    with tarfile.open(sdist) as archive:
        inside = {name.removeprefix(f"{NAME}/") for name in archive.getnames()}
    assert inside >= PACKED | LICENSES | {"setup.py", "pyproject.toml", "README.md"}
    assert not {name for name in inside if name.startswith(("tests/", "packaging/", "benchmarks/"))}
    with zipfile.ZipFile(wheel) as archive:
        assert {name for name in archive.namelist() if not name.startswith(NAME)} == PACKED
        for path in PACKED:
            assert archive.read(path) == (ROOT / path).read_bytes(), path
        for path in LICENSES:
            held = archive.read(f"{NAME}.dist-info/licenses/{path}")
            assert held == (ROOT / path).read_bytes(), path


@pytest.fixture(scope="module")
def installed(
    built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, Future[Path]]]:
    """The Python of an environment that holds the wheel alone, by version; all are made side by side."""

    def install(python: str) -> Path:
        folder = tmp_path_factory.mktemp(f"python{python}")
        said(interpreter(python), "-m", "venv", "--without-pip", folder)
        pip = (sys.executable, "-m", "pip", "--python", folder / "bin/python")
        said(*pip, "install", "-q", "--no-compile", "-c", ROOT / "constraints.txt", built[1])
        said(*pip, "check")
        return folder / "bin/python"

    with ThreadPoolExecutor(len(PYTHONS)) as pool:
        yield {python: pool.submit(install, python) for python in PYTHONS}


@pytest.fixture(scope="module")
def answers() -> Mapping[tuple[str, ...], str]:
    """What this checkout says to commands that need no torch, and read files of the distribution."""
    typed = (("preset",), ("preset", "ranked-text"), ("count", "--seed", "resnet18"))
    return {words: said(sys.executable, "-m", "aiperf", *words, cwd=ROOT) for words in typed}


@pytest.mark.parametrize("python", PYTHONS)
def test_the_wheel_works_alone_on_each_python(
    installed: Mapping[str, Future[Path]], answers: Mapping[tuple[str, ...], str], python: str, tmp_path: Path
) -> None:
    new = installed[python].result()
    script = new.with_name(DISTRIBUTION)
    assert said(script, "--version", cwd=tmp_path) == f"{DISTRIBUTION}, version {aiperf.__version__}\n"
    assert {words: said(script, *words, cwd=tmp_path) for words in answers} == answers
    kept = new.parents[1] / f"lib/python{python}/site-packages"
    assert {path.relative_to(kept).as_posix() for path in kept.glob("aiperf/data/texts/*.*")} == {
        path for path in PACKED if path.startswith("aiperf/data/texts/")
    }


def test_pipx_installs_the_wheel(
    built: tuple[Path, Path], answers: Mapping[tuple[str, ...], str], tmp_path: Path
) -> None:
    home = {"PIPX_HOME": str(tmp_path / "home"), "PIPX_BIN_DIR": str(tmp_path / "bin")}
    home |= {"PIP_CONSTRAINT": str(ROOT / "constraints.txt"), "PIPX_DEFAULT_PYTHON": sys.executable}
    said(tool("pipx"), "install", built[1], environment=os.environ | home)
    assert [path.name for path in (tmp_path / "bin").iterdir()] == [DISTRIBUTION]
    assert said(tmp_path / "bin" / DISTRIBUTION, "preset", cwd=tmp_path) == answers[("preset",)]
