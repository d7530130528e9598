"""`aiperf-hpc launch`: what it writes, what it hands to a scheduler, what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from aiperf.commands.launching import launch
from aiperf.errors import AiperfError
from tests.launch.golden import ACTIVATE, SHIPPED

SITE = f"""
setup = ['{ACTIVATE}']
queue = {{ account = "ACCOUNT", partition = "PARTITION" }}
devices = {{ per_node = 8 }}
"""
Launch = Callable[..., Result]

# Takes its script from standard input, and gives the number of the line that it wrote as the job's id.
SBATCH = """#!/bin/sh
echo "$*" >>"$LOG"
cat >>"$LOG.scripts"
wc -l <"$LOG"
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Launch:
    """The command, in a folder with a site file and an sbatch that writes down what it is given."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "site.toml").write_text(SITE, encoding="utf-8")
    (tmp_path / "bin").mkdir()
    for name, text in (("sbatch", SBATCH), ("squeue", "#!/bin/sh\necho '1 RUNNING'\n")):
        (tmp_path / "bin" / name).write_text(text, encoding="utf-8")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")

    def run(*words: object) -> Result:
        return CliRunner().invoke(launch, [str(word) for word in words], standalone_mode=False)

    return run


def told(result: Result) -> str:
    assert result.exception is None, result.exception
    return result.output


def test_a_site_and_an_hour_make_the_shipped_script(run: Launch) -> None:
    output = told(run("slurm", "--nodes", 4, "--hours", 1, "--", "--preset", "synthetic"))
    assert output == "aiperf-hpc-4.sbatch; submit it by: sbatch --parsable < aiperf-hpc-4.sbatch\n"
    assert Path("aiperf-hpc-4.sbatch").read_text() == (SHIPPED / "multi_node.sbatch").read_text()
    assert not Path("log").exists(), "nothing is submitted unless told to"


@pytest.mark.parametrize("scheduler", ["pbs", "lsf"])
def test_other_schedulers_are_written_too(run: Launch, scheduler: str) -> None:
    told(run(scheduler, "--nodes", 2))
    assert f"#{'PBS' if scheduler == 'pbs' else 'BSUB'} " in Path(f"aiperf-hpc-2.{scheduler}").read_text()


def test_it_is_submitted_when_told_to(run: Launch) -> None:
    assert told(run("slurm", "--nodes", 2, "--submit", "-o", "x.sbatch")) == "x.sbatch: job 1\n"
    assert Path("log").read_text() == "--parsable\n"
    assert Path("log.scripts").read_text() == Path("x.sbatch").read_text()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("slurm", "--site", "none.toml"), "aiperf-hpc launch init-site"),
        (("slurm", "--", "--presett", "digits"), "--presett"),
        (("slurm", "--hours", "0"), "0"),
        (("slurm", "--name", "a b"), "use letters"),
        (("scaling", "--nodes", "4,x"), "give whole numbers with commas between"),
        (("scaling", "--nodes", "8,4"), "from the smallest to the largest"),
        (("status", "nowhere"), "give the directory of a study"),
        (("init-site",), "site.toml is there already"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(
    run: Launch, words: tuple[str, ...], reason: str
) -> None:
    before = sorted(Path().rglob("*"))
    assert reason in str(run(*words).exception)
    assert sorted(Path().rglob("*")) == before


def test_a_script_that_somebody_edited_is_kept(run: Launch) -> None:
    Path("aiperf-hpc-1.sbatch").write_text("mine\n")
    assert isinstance(run("slurm").exception, AiperfError)
    assert Path("aiperf-hpc-1.sbatch").read_text() == "mine\n"


def test_a_study_is_submitted_once_and_repeats_what_is_missing(run: Launch) -> None:
    told(
        run(
            "scaling",
            "--nodes",
            "1,2,4",
            "--hours",
            0.5,
            "--submit",
            "--",
            "--batch-size",
            80,
            "--device",
            "cpu",
        )
    )
    assert Path("log").read_text().splitlines() == [
        *["--parsable"] * 3,
        "--parsable --dependency=afterany:1:2:3",
    ]
    study = json.loads(Path("scaling-study/study.json").read_text())
    assert study["options"] == ["--device", "cpu"]
    assert "batch_size = 80" in Path("scaling-study/config.toml").read_text()
    scripts = [Path(f"scaling-study/nodes-{nodes:04d}/job.sbatch").read_text() for nodes in (1, 2, 4)]
    seeds = [script.split("--random-seed ")[1].split()[0] for script in scripts]
    assert seeds == ["1", "2", "3"]

    answer = run("status", "scaling-study", "--submit")
    assert answer.return_value == 1
    assert [line.split()[2] for line in answer.output.splitlines()[:3]] == ["running", "failed", "failed"]
    assert Path("log").read_text().splitlines()[4:] == [
        *["--parsable"] * 2,
        "--parsable --dependency=afterany:1:5:6",
    ]


def test_a_study_whose_configuration_was_changed_is_refused(run: Launch) -> None:
    told(run("scaling", "--nodes", "1,2"))
    with Path("scaling-study/config.toml").open("a") as config:
        config.write("# mine\n")
    assert "was changed since the study began" in str(run("status", "scaling-study").exception)


def test_all_sizes_in_one_job(run: Launch) -> None:
    told(run("scaling", "--nodes", "1,2,4", "--one-job", "--", "--preset", "synthetic"))
    text = Path("scaling-study/weak_scaling.sbatch").read_text()
    assert "for nodes in 1 2 4; do" in text
    assert "--nodes=4" in text


def test_the_hash_of_a_study_is_of_its_configuration(run: Launch) -> None:
    hashes = set()
    for number, seed in enumerate(("residual-4-8-16", "residual-4-8-16", "residual")):
        words = ("--directory", f"study{number}", "--", "--seed", seed)
        if run("scaling", "--nodes", "1,2", *words).exception is None:
            hashes.add(json.loads(Path(f"study{number}/study.json").read_text())["config_hash"])
    assert len(hashes) == 2
