"""What `pyproject.toml` states of the distribution agrees with the tree, the code and the tested versions;
what `make release` refuses, and what the lock of `make lock` holds."""

from __future__ import annotations

import ast
import re
import runpy
from collections.abc import Mapping
from fnmatch import fnmatch
from typing import Any

import pytest
from packaging.requirements import Requirement

import aiperf
from aiperf.host.package_clash import DISTRIBUTION, PACKAGES
from tests.house.floors import dotted
from tests.house.tree import ROOT, files, sources
from tests.packaging.recipes import pinned, required
from tests.tables import ComesTo

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


UNREADY = runpy.run_path(str(ROOT / ".ci/release.py"))["unready"]
LOCKING = runpy.run_path(str(ROOT / ".ci/lock.py"))
LOCKED: Mapping[str, frozenset[str]] = LOCKING["pins"](LOCKING["LOCK"].read_text(encoding="utf-8"))


def test_a_release_is_one_clean_commit_with_one_version(comes_to_what_was_read: ComesTo) -> None:
    def unready(changelog: str, changes: str, tags_here: list[str], tags: list[str]) -> list[str]:
        return [*UNREADY("1.2.0", f"# Changelog\n\n{changelog}", changes, tags_here, tags)]

    comes_to_what_was_read("refused_releases.txt", {"unready": unready})


@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_has_one_tested_version_of_all_that_a_run_requires(
    stated: dict[str, Any], python: str
) -> None:
    """With hashes, and without torch. What it does not name on this Python, pip would refuse there."""
    locked = pinned([*LOCKED], python)
    tested = pinned((ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines(), python)
    needed = required(stated, python, *LOCKING["EXTRAS"])
    names = {each.name.lower() for each in needed if each.name != "torch"}
    assert {name: locked.get(name) for name in names} == {name: tested[name] for name in names}
    assert "torch" not in locked
    assert all(hashes for hashes in LOCKED.values())


def test_a_lock_that_does_not_hold_is_said_line_by_line(comes_to_what_was_read: ComesTo) -> None:
    def differences(*pins: dict[str, str]) -> list[str]:
        """Between the lock and the index, with hashes that are letters."""
        locked, now = ({pin: frozenset(hashes) for pin, hashes in each.items()} for each in pins)
        return [*LOCKING["differences"](locked, now)]

    comes_to_what_was_read("refused_locks.txt", {"differences": differences})


def test_no_file_names_the_host_of_a_package_index() -> None:
    """They hold for a mirror, and a site without a network has one."""
    hosts = re.compile(rb"files\.pythonhosted|pypi\.(org|io)\b|registry\.npmjs")
    assert [path for path in files() if hosts.search((ROOT / path).read_bytes())] == []
