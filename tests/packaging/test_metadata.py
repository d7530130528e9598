"""What `pyproject.toml` states of the distribution agrees with the tree, the code and the tested versions."""

from __future__ import annotations

import ast
import re
from fnmatch import fnmatch
from typing import Any

import pytest
from packaging.requirements import Requirement

import aiperf
from aiperf.host.package_clash import DISTRIBUTION, PACKAGES
from tests.house.floors import dotted
from tests.house.tree import ROOT, files, sources
from tests.packaging.recipes import pinned, required

PYTHONS = ("3.10", "3.11", "3.12", "3.13")


def test_the_distribution_and_the_command_have_one_name(stated: dict[str, Any]) -> None:
    assert stated["name"] == DISTRIBUTION
    assert stated["entry_points"] == {"console_scripts": [f"{DISTRIBUTION} = aiperf.start:main"]}


def test_the_version_is_stated_once(stated: dict[str, Any]) -> None:
    assert stated["version"] == aiperf.__version__
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {aiperf.__version__}\n" in citation
    latest = re.search(r"^## \[(\S+)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert latest
    assert latest.group(1) in ("Unreleased", aiperf.__version__)


def test_every_package_is_installed_and_no_other(stated: dict[str, Any]) -> None:
    there = {path.parent.relative_to(ROOT).as_posix() for path in sources(*PACKAGES)}
    assert set(stated["packages"]) == {folder.replace("/", ".") for folder in there}


def test_every_file_of_a_package_is_installed(stated: dict[str, Any]) -> None:
    patterns = [pattern for each in stated["package_data"].values() for pattern in each]
    data = [path for path in files() if path.startswith(PACKAGES) and not path.endswith(".py")]
    names = [pattern.removeprefix("**/") for pattern in patterns]
    assert [path for path in data if not any(fnmatch(path.split("/")[-1], name) for name in names)] == []


def test_every_package_is_typed_and_type_checked() -> None:
    packages = sorted(name for name in PACKAGES if (ROOT / name).is_dir())
    assert [name for name in packages if f"{name}/py.typed" not in files()] == []
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (checked,) = re.findall(r"^packages = (\[.*\])", text, re.MULTILINE)
    assert sorted(ast.literal_eval(checked)) == packages


def test_an_error_names_an_extra_that_exists(stated: dict[str, Any]) -> None:
    texts = [path.read_text(encoding="utf-8") for path in sources(*PACKAGES)]
    calls = [
        node
        for text in texts
        if re.search(r"\b(?:MissingExtra|extra)\(", text)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and dotted(node.func) in ("MissingExtra", "extra")
    ]
    assert len(calls) > 5
    named = {node.args[-1].value for node in calls if isinstance(node.args[-1], ast.Constant)}
    assert named <= set(stated["extras_require"])


def test_what_looks_at_results_installs_light(stated: dict[str, Any]) -> None:
    """Torch brings gigabytes; neither it nor what only a run imports is installed unless asked for."""
    light = {Requirement(line).name for line in stated["install_requires"]}
    assert light == {"numpy", "tomli", "tomli-w", "click", "rich"}
    needed = {Requirement(line).name for line in stated["extras_require"]["run"]}
    source = (ROOT / "aiperf/commands/optional_libraries.py").read_text(encoding="utf-8")
    looked_for = re.search(r"^RUN = (\(.*\))$", source, re.MULTILINE)
    assert looked_for
    assert needed == {DISTRIBUTIONS.get(module, module) for module in ast.literal_eval(looked_for.group(1))}


DISTRIBUTIONS = {"sklearn": "scikit-learn", "PIL": "pillow"}
"""That are called otherwise than the module they bring."""


def test_every_documented_installation_works_from_a_clone(stated: dict[str, Any]) -> None:
    """No index knows the distribution; a wheelhouse does."""
    code = {path.relative_to(ROOT).as_posix() for path in sources(*PACKAGES)}
    endings = (".md", ".def", "Makefile", "Containerfile")
    pages = [path for path in files() if path.endswith(endings) or path in code]
    lines = [line for path in pages for line in (ROOT / path).read_text(encoding="utf-8").splitlines()]
    named = [
        (line, found["what"], found["extras"].split(","))
        for line in lines
        for found in re.finditer(r"install .*?(?P<what>aiperf-hpc|\.)\[(?P<extras>[\w,]+)\]", line)
    ]
    assert len(named) > 5
    assert [line for line, what, _ in named if what != "." and "--find-links wheelhouse" not in line] == []
    assert [line for line, _, extras in named if not set(extras) <= set(stated["extras_require"])] == []


@pytest.mark.parametrize("python", PYTHONS)
def test_every_requirement_has_one_tested_version(stated: dict[str, Any], python: str) -> None:
    versions = pinned((ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines(), python)
    unfit = [
        one
        for one in required(stated, python, *stated["extras_require"])
        if one.name.lower() not in versions or not one.specifier.contains(versions[one.name.lower()])
    ]
    assert [str(one) for one in unfit if one.name not in NOT_PINNED] == []


# Their extras pin them by themselves, or any version does.
NOT_PINNED = ("setuptools", "cloudpickle", "packaging", "pyyaml")
