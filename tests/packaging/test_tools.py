"""Recipes by their real tools: what ReFrame and JUBE make of a run, what EasyBuild would build."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.mpi.jobs import QUICK, TINY
from tests.packaging.recipes import BUNDLES, EASYCONFIG, FOLDER, TOOLS, needs, said, tool

pytestmark = [pytest.mark.recipes, pytest.mark.torch, pytest.mark.timeout(600)]

REFRAME = ("-C", FOLDER / "reframe/settings.py", "-c", FOLDER / "reframe/aiperf_hpc.py", "-r", "--nocolor")
OF_2025B = ("gfbf-2025b", "GCCcore-14.3.0")
"""Toolchains below foss-2025b."""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Its PATH has the program of these tests; tools write into a home of their own."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    home = tmp_path / "home"
    home.mkdir()
    return os.environ | {"PATH": path, "HOME": str(home), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(QUICK)}


def reframe(
    folder: Path, environment: dict[str, str], *options: str
) -> tuple[int, str, dict[str, tuple[float, str]]]:
    """The exit code, the reason of a failure, and the figures that ReFrame kept, with their units."""
    command = [tool("reframe"), *REFRAME, "--system=site:local", "--prefix", folder / "reframe"]
    command += [f"--report-file={folder / 'report.json'}", f"-Spreset={TINY}", "-Sminutes=0.05"]
    answer = subprocess.run(
        [*command, f"-Soptions={','.join(options)}"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    (run,) = json.loads((folder / "report.json").read_text(encoding="utf-8"))["runs"]
    (case,) = run["testcases"]
    figures = {name.split(":")[-1]: (each[0], each[-2]) for name, each in case["perfvalues"].items()}
    known = {name: figure for name, figure in figures.items() if figure[0] is not None}
    failed = case.get("fail_info") or {"exc_value": ""}
    return answer.returncode, str(failed["exc_value"]), known


def test_reframe_has_the_figures_of_a_valid_run(tmp_path: Path, environment: dict[str, str]) -> None:
    code, reason, figures = reframe(tmp_path, environment, "--device", "cpu")
    assert (code, reason) == (0, "")
    written = next((tmp_path / "reframe/output").rglob("result.json"))
    score = json.loads(written.read_text(encoding="utf-8"))["score"]
    # A processor without sensors and without a listed peak tells neither MFU nor energy.
    assert figures == {
        "sustained_ops": (score["ops_per_second"], "OPS"),
        "regulated_score": (score["regulated_score"], "OPS"),
        "tensor_ops": (score["tensor_ops_per_second"], "OPS"),
        "control": (score["control"]["examples_per_second"], "examples/s"),
    }


@pytest.mark.parametrize(
    ("options", "reason"),
    [(("--pretend", "laptop"), "SIMULATED: the run is pretended"), (("--step", "none"), "no result")],
)
def test_reframe_fails_what_is_not_valid(
    tmp_path: Path, environment: dict[str, str], options: tuple[str, ...], reason: str
) -> None:
    code, told, figures = reframe(tmp_path, environment, *options)
    assert code
    assert reason in told
    assert figures == {}


def test_jube_makes_a_table_of_the_figures(tmp_path: Path, environment: dict[str, str]) -> None:
    quick = (FOLDER / "jube/aiperf-hpc.xml", "-t", "quick", "-r", "--outpath", "runs")
    said(tool("jube"), "run", *quick, cwd=tmp_path, environment=environment)
    lines = (tmp_path / "runs/000000/result/result.dat").read_text(encoding="utf-8").splitlines()
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")]
    jube = [dict(zip(table[0], row)) for row in table[2:]]
    written = next((tmp_path / "runs").rglob("result.json"))
    score = json.loads(written.read_text(encoding="utf-8"))["score"]
    assert jube == [
        {
            "preset": "digits",
            "minutes": "0.1",
            "random_seed": "1",
            "sustained_ops[OPS]": f"{score['ops_per_second']:.4g}",
            "regulated_score[OPS]": f"{score['regulated_score']:.4g}",
            "mfu": "",
            "control[examples/s]": f"{score['control']['examples_per_second']:.4g}",
            "energy[J]": "",
            "class": "smoke",
        }
    ]


@pytest.fixture
def easybuild(environment: dict[str, str], tmp_path: Path) -> Callable[..., str]:
    """What `eb` answers, with the environment modules of Debian, which no shell has set up."""
    found = [*Path("/usr/lib").glob("*/modulecmd.tcl")]
    needed = {"EB_PYTHON": tool("python")}
    if "MODULES_CMD" not in environment and found:
        needed["MODULES_CMD"] = str(found[0])
    options = ["--modules-tool=EnvironmentModules", "--module-syntax=Tcl", f"--prefix={tmp_path / 'site'}"]
    if os.getuid() == 0:
        options.append("--allow-use-as-root-and-accept-consequences")
    return partial(said, tool("eb"), *options, EASYCONFIG, cwd=tmp_path, environment=environment | needed)


def test_easybuild_finds_all_that_it_would_build(easybuild: Callable[..., str]) -> None:
    assert "All style checks PASSed!" in easybuild("--check-style")
    plan = "".join(easybuild("--dry-run", "--robot").split())
    recipe = runpy.run_path(str(EASYCONFIG))
    for name, version in recipe["dependencies"]:
        assert f"(module:{name}/{version}" in plan
    assert f"(module:aiperf-hpc/{EASYCONFIG.stem.removeprefix('aiperf-hpc-')})" in plan


def test_bundles_of_easybuild_have_versions_that_are_new_enough(stated: dict[str, Any]) -> None:
    modules = dict(runpy.run_path(str(EASYCONFIG))["dependencies"])
    wanted = needs(stated, modules["Python"])
    robot = TOOLS.parent / "easybuild/easyconfigs"
    for bundle, names in BUNDLES.items():
        kept = robot / bundle[0].lower() / bundle
        (path,) = [
            each for name in OF_2025B if (each := kept / f"{bundle}-{modules[bundle]}-{name}.eb").exists()
        ]
        listed = re.findall(r"^    \('([\w.-]+)', '([\w.]+)'", path.read_text(encoding="utf-8"), re.MULTILINE)
        held = {name.lower(): version for name, version in listed}
        assert [name for name in names if not wanted[name].contains(held[name])] == []
