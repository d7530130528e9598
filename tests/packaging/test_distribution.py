"""What `make release` makes: the distribution, alone on each Python, and the site."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
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
from tests.packaging.recipes import cloned, interpreter, said, tool
from tests.packaging.test_metadata import PYTHONS

pytestmark = [pytest.mark.recipes, pytest.mark.timeout(900)]

NAME = f"{DISTRIBUTION.replace('-', '_')}-{aiperf.__version__}"
LICENSES = {"LICENSE", "aiperf/data/texts/LICENSE.txt"}
PACKED = {path for path in files() if path.split("/")[0] in PACKAGES}


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone of which a release was made: its commit is this checkout, but for the date of the release."""
    clone = cloned(tmp_path_factory.mktemp("release"))
    changelog = (clone / "CHANGELOG.md").read_text(encoding="utf-8")
    dated = changelog.replace(
        f"## [{aiperf.__version__}] - Unreleased", f"## [{aiperf.__version__}] - 2027-01-31"
    )
    (clone / "CHANGELOG.md").write_text(dated, encoding="utf-8")
    (clone / ".venv-release").symlink_to(ROOT / ".venv-release")
    git = ("git", "-c", "user.name=A", "-c", "user.email=a@example.org", "-C", clone)
    said(*git, "init", "--quiet")
    (clone / ".git/info/exclude").write_text(".venv-release\n")
    said(*git, "add", ".")
    said(*git, "commit", "--quiet", "--message", "A release")
    lines = said(clone / ".venv-release/bin/python", ".ci/release.py", cwd=clone).splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["ok"] * 4
    assert lines[4].startswith(f"ready: {DISTRIBUTION} {aiperf.__version__}; nothing was published.")
    return clone


@pytest.fixture(scope="module")
def built(released: Path) -> tuple[Path, Path]:
    """The sdist, and the wheel that was built from the sdist alone."""
    sdist, wheel = released / f"dist/{NAME}.tar.gz", released / f"dist/{NAME}-py3-none-any.whl"
    assert set((released / "dist").iterdir()) == {sdist, wheel}
    return sdist, wheel


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


def test_the_site_loads_nothing_from_elsewhere(released: Path) -> None:
    """Neither a font nor a script: clusters have no network, and readers are nobody's business."""
    site = released / "build/site"
    loads = r"<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)=[\"']?(?:https?:)?//[^\"'>]*"
    texts = {
        path: path.read_text(encoding="utf-8") for path in site.rglob("*") if path.suffix in (".html", ".css")
    }
    assert len(texts) > 200
    foreign = re.compile(rf"{loads}|(?:url\(|@import )[\"']?(?:https?:)?//[^\"')]*")
    assert {path: found for path, text in texts.items() if (found := foreign.findall(text))} == {}


def test_the_site_finds_every_document_and_shows_what_they_link_to(released: Path) -> None:
    index = json.loads((released / "build/site/search/search_index.json").read_text(encoding="utf-8"))
    found = {each["location"].partition("#")[0] for each in index["docs"]}
    pages = [
        path.removesuffix(".md") for path in files() if path.endswith(".md") and path.startswith("docs/")
    ]
    assert found >= {f"{page}/".replace("README/", "") for page in pages} | {"", "slurm/", "SECURITY/"}
    page = (released / "build/site/docs/data/index.html").read_text(encoding="utf-8")
    assert 'href="../../aiperf/presets/own.toml/"' in page
    shown = (released / "build/site/aiperf/config.py/index.html").read_text(encoding="utf-8")
    assert "class Config" in html.unescape(re.sub("<[^>]*>", "", shown))


def test_the_site_is_refused_for_what_leads_nowhere(released: Path) -> None:
    (released / "docs" / "new.md").touch()
    with (released / "docs/README.md").open("a", encoding="utf-8") as page:
        page.write("\n[not in the menu](new.md), [no file](gone.md), [no module](../nas/gone.py)\n")
        page.write("[no heading](running.md#gone)\n")
    make = ["make", "--old-file=.venv-release/.installed", "site"]
    answer = subprocess.run(make, cwd=released, capture_output=True, text=True)
    assert answer.returncode
    assert "Aborted with 4 warnings in strict mode!" in answer.stdout + answer.stderr
