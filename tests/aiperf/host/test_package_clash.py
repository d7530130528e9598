"""A foreign `aiperf` is refused with one sentence, whichever of the two was installed last."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from aiperf.host import package_clash
from tests.house.tree import ROOT

COMMAND = "from aiperf.start import main; raise SystemExit(main())"


def write_info(folder: Path, name: str, files: Mapping[str, str]) -> None:
    """The metadata that an installer leaves of a distribution."""
    info = folder / f"{name.lower().replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    info.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    for file, text in files.items():
        info.joinpath(file).write_text(text)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site directory with a real distribution of NVIDIA's name and layout, installed by pip."""
    folder = tmp_path_factory.mktemp("foreign")
    wheel = folder / "aiperf-0.13.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ("__init__", "__main__", "cli"):
            archive.writestr(f"aiperf/{name}.py", f"print('the foreign {name} ran')\n")
        info = "aiperf-0.13.0.dist-info"
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: aiperf\nVersion: 0.13.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    options = ["--quiet", "--no-index", "--no-deps", "--disable-pip-version-check", "--no-compile"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(folder / "site"), str(wheel)]
    subprocess.run(command, check=True)
    return folder / "site"


def run(*path: Path, option: str = "-I") -> subprocess.CompletedProcess[str]:
    """The command, reading packages from these folders first."""
    code = f"import sys; sys.path[:0] = {[str(folder) for folder in path]!r}; {COMMAND}"
    return subprocess.run(
        [sys.executable, "-I", option, "-c", code], capture_output=True, text=True, timeout=60
    )


def test_the_other_one_in_a_folder_of_its_own_is_no_clash(site: Path) -> None:
    answer = run(ROOT, site)
    assert answer.stdout.startswith("Usage: aiperf-hpc")
    assert (answer.returncode, answer.stderr) == (0, "")


@pytest.mark.parametrize("where", ["PYTHONPATH", "working directory"])
def test_packages_of_our_names_elsewhere_do_not_stand_before_ours(where: str, tmp_path: Path) -> None:
    """Here and in the processes that it starts: the master's worker, which imports `nas`."""
    for name in ("nas", "launch", "analysis"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('a foreign package was imported')")
    worker = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', 'import nas.graph']))"
    program = (
        f"from aiperf.host.package_clash import refuse_clash; refuse_clash(); import nas.graph; {worker}"
    )
    environment = {"PATH": "", "PYTHONPATH": f"{tmp_path}:{ROOT}" if where == "PYTHONPATH" else str(ROOT)}
    here = tmp_path if where == "working directory" else ROOT
    is_safe = sys.version_info >= (3, 11)  # -P: without the working directory, as the command is started
    command = [sys.executable, *(["-P"] if is_safe else []), "-c", program]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, cwd=here)
    if is_safe or where == "PYTHONPATH":
        assert (answer.returncode, answer.stderr) == (0, "")
    else:
        assert "start it from another directory" in answer.stderr


def mixed(folder: Path, origins: list[Path]) -> Path:
    """A site directory with the `aiperf` of each in turn, and all else of this program."""
    for origin in origins:
        shutil.copytree(origin / "aiperf", folder / "aiperf", dirs_exist_ok=True)
    for package in ("nas", "launch", "analysis"):
        shutil.copytree(ROOT / package, folder / package)
    return folder


@pytest.mark.parametrize("last", ["theirs", "ours"])
def test_where_one_was_installed_over_the_other_the_command_names_the_clash_and_then_the_remedy(
    last: str, site: Path, tmp_path: Path
) -> None:
    """pip removes what the other one installed, whoever has written the file last."""
    folder = mixed(tmp_path / "site", [ROOT, site] if last == "theirs" else [site, ROOT])
    (info,) = site.glob("*.dist-info")
    shutil.copytree(info, folder / info.name)
    answer = run(folder)
    assert answer.stderr.startswith(f"aiperf-hpc: aiperf 0.13.0 in {folder} also installs aiperf; remedy:")
    assert (answer.returncode, answer.stderr.count("\n")) == (1, 1)
    shutil.rmtree(folder / info.name)
    for file in (site / "aiperf").glob("*.py"):
        (folder / "aiperf" / file.name).unlink()
    answer = run(folder, option="-S")  # this folder alone: a whole package would stand before half of one
    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr == (
        "aiperf-hpc: aiperf/__init__.py and aiperf/__main__.py of aiperf-hpc are missing; another package "
        "named aiperf may have been removed; "
        "remedy: pip install --force-reinstall --no-deps . in a checkout of aiperf-hpc\n"
    )


def test_the_remedy_installs_from_where_the_program_came(tmp_path: Path) -> None:
    folder = mixed(tmp_path / "site", [ROOT])
    (folder / "aiperf" / "__main__.py").unlink()
    url = '{"dir_info": {}, "url": "file:///src/my%20copy"}'
    write_info(folder, "aiperf-hpc", {"RECORD": "aiperf/start.py,,\n", "direct_url.json": url})
    answer = run(folder, option="-S")
    assert answer.stderr.endswith("remedy: pip install --force-reinstall --no-deps '/src/my copy'\n")


def test_a_module_run_by_its_name_is_checked_too(site: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "aiperf", tmp_path / "aiperf")
    for info in site.glob("*.dist-info"):
        shutil.copytree(info, tmp_path / info.name)
    environment = {"PYTHONPATH": f"{tmp_path}:{ROOT}", "PATH": ""}
    command = [sys.executable, "-m", "aiperf", "--help"]
    answer = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env=environment, cwd=tmp_path
    )
    assert "also installs aiperf; remedy:" in answer.stderr
    assert answer.returncode == 1


def test_top_level_names_are_read_where_a_builder_states_them(tmp_path: Path) -> None:
    write_info(tmp_path, "AIPerf_HPC", {"top_level.txt": "\n".join(package_clash.PACKAGES)})
    assert package_clash.foreign_owner([str(tmp_path)]) is None, "its own is no clash"
    write_info(tmp_path, "Other", {"top_level.txt": "nas\nanalysis\n"})
    owner = package_clash.foreign_owner([str(tmp_path)])
    assert owner == f"Other 1.0 in {tmp_path} also installs analysis, nas"


def test_a_package_of_that_name_in_the_way_is_found(tmp_path: Path) -> None:
    (tmp_path / "nas").mkdir()
    assert package_clash.hidden_package([str(tmp_path), str(ROOT)]) is None, "a mere folder hides nothing"
    assert package_clash.hidden_package([str(tmp_path)]) is None, "nor where this program is not on the path"
    (tmp_path / "nas/__init__.py").touch()
    hidden = package_clash.hidden_package([str(tmp_path), str(ROOT)])
    assert hidden == f"{tmp_path}/nas/__init__.py hides the package nas of aiperf-hpc in {ROOT}"
