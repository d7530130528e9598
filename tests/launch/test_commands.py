"""`aiperf-hpc launch`: what it writes, what it hands to a scheduler, what it refuses."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from aiperf.commands.launch import launch
from aiperf.errors import AiperfError
from launch.site import load_site
from tests.journals import told, write_run
from tests.launch.golden import ACTIVATE, SHIPPED
from tests.launch.stand_ins import install
from tests.tables import ComesTo

SITE = f"""
setup = ['{ACTIVATE}']
queue = {{ account = "ACCOUNT", partition = "PARTITION" }}
devices = {{ per_node = 8 }}
"""
DIGITS = ("--", "--preset", "digits")
RANKED = ("--", "--preset", "ranked", "--data", "images")
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
    (tmp_path / "mpirn.toml").write_text("mpi.launcher = 'mpirn'", encoding="utf-8")
    install(tmp_path / "bin", {"sbatch": SBATCH, "squeue": "#!/bin/sh\necho '1 RUNNING'\n"})
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")

    def run(*words: object) -> Result:
        return CliRunner().invoke(launch, [str(word) for word in words], standalone_mode=False)

    return run


def printed(result: Result) -> str:
    assert result.exception is None, result.exception
    return result.stdout


def refused(run: Launch, words: str) -> None:
    error = run(*shlex.split(words)).exception
    assert error
    raise error


def test_a_site_and_an_hour_make_the_shipped_script(run: Launch) -> None:
    output = printed(run("slurm", "--nodes", 4, "--hours", 1, "--", "--preset", "synthetic"))
    assert output == "aiperf-hpc-4.sbatch; submit it with: sbatch --parsable < aiperf-hpc-4.sbatch\n"
    assert Path("aiperf-hpc-4.sbatch").read_text() == (SHIPPED / "multi_node.sbatch").read_text()
    assert not Path("log").exists(), "nothing is submitted unless told to"


def test_a_script_that_the_user_may_have_edited_stays_and_the_next_one_has_a_number(run: Launch) -> None:
    edited = Path("aiperf-hpc-4.sbatch")
    edited.write_text("mine")
    for words, script in (
        (("--hours", 2), "aiperf-hpc-4-2.sbatch"),
        (("--hours", 1), "aiperf-hpc-4-3.sbatch"),
        (("--hours", 2), "aiperf-hpc-4-2.sbatch"),  # the same again
    ):
        assert printed(run("slurm", "--nodes", 4, *words, *DIGITS)).startswith(f"{script}; submit it with: ")
    assert "already exists" in str(run("slurm", "-o", edited, *DIGITS).exception)
    assert edited.read_text() == "mine"


def test_it_is_submitted_when_told_to(run: Launch) -> None:
    words = ("slurm", "--nodes", 2, "--submit", "-o", "x.sbatch", *DIGITS, "--random-seed", 5)
    answer = run(*words)
    assert printed(answer) == "x.sbatch: job 1\n"
    assert answer.stderr.endswith("\nNext: aiperf-hpc list\n")
    assert Path("log").read_text() == "--parsable\n"
    assert Path("log.scripts").read_text() == Path("x.sbatch").read_text()
    assert "--random-seed 5" in Path("x.sbatch").read_text()


def test_what_a_scheduler_refuses_is_shown_with_where_it_is_requested(run: Launch) -> None:
    Path("bin/sbatch").write_text("#!/bin/sh\necho 'sbatch: error: invalid partition' >&2\nexit 1\n")
    error = run("slurm", "--nodes", 2, "--submit", *DIGITS).exception
    assert str(error) == (
        "sbatch refused: sbatch: error: invalid partition; what it requests is in aiperf-hpc-2.sbatch, below "
        "the lines marked EDIT"
    )


KUBECTL = """#!/bin/sh
cat >"$LOG.scripts"
printf '%s created\\n' secret/a service/a job.batch/a
"""


def test_a_manifest_without_mpi_has_a_secret_of_its_own_that_nobody_else_can_read(run: Launch) -> None:
    install(Path("bin"), {"kubectl": KUBECTL})
    Path("site.toml").write_text("[kubernetes]\nimage = 'x'\nclaim = 'y'\n")
    secrets = set[str]()
    for path in (Path("aiperf-hpc-2.yaml"), Path("aiperf-hpc-2-2.yaml")):
        assert printed(run("kubernetes", "--no-mpi", "--nodes", 2, "--submit", *DIGITS)) == f"{path}: job a\n"
        assert path.stat().st_mode & 0o777 == 0o600
        text = path.read_text()
        assert Path("log.scripts").read_text() == text
        secrets.add(*re.findall(r'\{secret: "(.{43})"\}', text))
    assert len(secrets) == 2
    assert "No such option" in str(run("slurm", "--no-mpi", *DIGITS).exception)


def test_a_trainjob_by_choice(run: Launch) -> None:
    Path("site.toml").write_text("mpi.launcher = 'mpiexec'\n[kubernetes]\nimage = 'x'\nclaim = 'y'\n")
    for path, words, kind in (("a.yaml", (), "MPIJob"), ("b.yaml", ("--trainjob",), "TrainJob")):
        answer = printed(run("kubernetes", *words, "-o", path, *DIGITS))
        assert answer == f"{path}; submit it with: kubectl create -f - < {path}\n"
        assert re.findall(r"^kind: (.*)$", Path(path).read_text(), re.MULTILINE)[-1] == kind


def test_what_cannot_be_is_refused_and_nothing_is_written(
    run: Launch, comes_to_what_was_read: ComesTo
) -> None:
    """Also a script that bash cannot read, and a study whose files were changed."""
    printed(run("scaling", "--nodes", "1,2", "--directory", "study", *DIGITS))

    def launched(words: str) -> None:
        try:
            refused(run, words)
        except AiperfError as error:
            text = str(error).replace(f"{Path.cwd()}/", "")
            raise type(error)(re.sub(r"\(bash: .*", "(bash: …", text)) from None

    def setup(line: str, scheduler: str) -> None:
        Path("line.toml").write_text(f"setup = [{json.dumps(line)}]\nmpi.launcher = 'mpiexec'\n")
        launched(f"{scheduler} --site line.toml -- --preset digits")

    def changed(name: str, change: Callable[[Path], object]) -> None:
        text = (path := Path("study", name)).read_text()
        change(path)
        try:
            launched("status study")
        finally:
            path.write_text(text)

    Path("line.toml").touch()
    before = sorted(Path().rglob("*"))
    names = {"launch": launched, "Path": Path, "setup": setup, "changed": changed}
    comes_to_what_was_read("refused_commands.txt", names)
    assert sorted(Path().rglob("*")) == before


def test_a_study_is_submitted_once_and_repeats_what_is_missing(run: Launch) -> None:
    options = ("--preset", "digits", "--batch-size", 80, "--device", "cpu")
    printed(run("scaling", "--nodes", "1,2,4", "--hours", 0.5, "--submit", "--", *options))
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


@pytest.mark.parametrize(
    ("words", "seeds"),
    [
        (("slurm", "--repeats", 3, "-o", "job.sbatch"), ['"$SLURM_ARRAY_TASK_ID"']),
        (("scaling", "--nodes", "1,4", "--directory", "."), ["1", "2"]),
        (("scaling", "--nodes", "1,4", "--one-job", "--directory", "."), ['"$nodes"']),
    ],
)
@pytest.mark.parametrize("what", [RANKED, DIGITS], ids=["ranked", "digits"])
def test_several_runs_have_random_seeds_of_their_own_unless_they_are_ranked(
    run: Launch, words: tuple[object, ...], seeds: list[str], what: tuple[str, ...]
) -> None:
    printed(run(*words, *what))
    scripts = [path.read_text() for path in sorted(Path().rglob("*.sbatch"))]
    assert re.findall(r"--random-seed (\S+)", "".join(scripts)) == (seeds if what is DIGITS else [])


def test_the_hash_of_a_study_is_of_its_configuration(run: Launch) -> None:
    hashes = set()
    for number, seed in enumerate(("residual-4-8-16", "residual-4-8-16", "residual")):
        words = ("--directory", f"my study's {number}", *DIGITS, "--seed", seed)
        printed(run("scaling", "--nodes", "1,2", *words))
        hashes.add(json.loads(Path(f"my study's {number}/study.json").read_text())["config_hash"])
    assert len(hashes) == 2
    assert "--job-name=my-study-s-0-2" in Path("my study's 0/nodes-0002/job.sbatch").read_text()
    printed(run("scaling", "--nodes", "1,2,4", "--one-job", *DIGITS))
    assert "for nodes in 1 2 4; do" in Path("scaling-study/weak_scaling.sbatch").read_text()


def test_a_study_goes_on_and_what_is_done_or_damaged_is_told_without_a_scheduler(run: Launch) -> None:
    """The same study again submits nothing that goes on. A damaged journal is told beside the other sizes. A
    scheduler is not asked for what is done."""
    words = ("scaling", "--nodes", "1,2", "--submit", *DIGITS)
    printed(run(*words))
    squeue = Path("bin/squeue").read_text()
    Path("bin/squeue").write_text("#!/bin/sh\nprintf '1 RUNNING\\n2 PENDING\\n'\n")
    output = printed(run(*words))
    assert len(Path("log").read_text().splitlines()) == 3, "two sizes and a table, once"
    assert "nothing is missing; the last job writes the table" in output
    Path("bin/squeue").write_text(squeue)
    journal = Path("scaling-study/nodes-0002/2-nodes/journal.jsonl")
    journal.parent.mkdir()
    journal.write_text("no journal\n")
    lines = run("status", "scaling-study").output.splitlines()
    assert [line.split()[2] for line in lines[:2]] == ["running", "failed"]
    assert "line 1 is damaged" in lines[1]
    shutil.rmtree(journal.parent)
    for nodes in (1, 2):
        write_run(Path(f"scaling-study/nodes-000{nodes}/{nodes}-nodes"), told())
    Path("bin/squeue").write_text("#!/bin/sh\necho 'Invalid job id specified' >&2; exit 1\n")
    assert run("status", "scaling-study").return_value == 0


SCALING = ("scaling", "--nodes", "4,8", "--submit")
PLAN = """\
aiperf-hpc: the run: preset digits, data digits, seed residual-8-16-32, format auto, search evolution
aiperf-hpc: its length: 1 h on each of 4, 8 nodes: 4 + 8 = 12 node-hours; requested: 18 node-hours
"""


def test_what_is_run_for_how_long_and_what_is_missing_is_said_before_any_job_waits(
    run: Launch, comes_to_what_was_read: ComesTo
) -> None:
    """Assumptions that are not there, and what a script did not choose."""

    def length(words: str) -> str:
        return run(*words.split(), *DIGITS).stderr.splitlines()[-1]

    names = {"length": length, "missing": partial(refused, run), "SCALING": " ".join(SCALING)}
    comes_to_what_was_read("lengths.txt", names)
    assert not Path("log").exists()


@pytest.mark.parametrize(("typed", "jobs"), [("y", 3), ("", 0)])
def test_a_person_is_asked_where_no_option_chose(
    run: Launch, typed: str, jobs: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At a real terminal: Return is no."""
    terminal, end = os.openpty()
    os.write(terminal, f"{typed}\n".encode())
    with os.fdopen(end) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        with nullcontext() if jobs else pytest.raises(AiperfError, match="nothing was written"):
            launch.main(SCALING, standalone_mode=False)
    os.close(terminal)
    question = "Neither --preset nor --data was given. Run digits? [y/N]: "
    assert capsys.readouterr().err.startswith(PLAN + question)
    log = Path("log")
    assert len(log.read_text().splitlines() if log.exists() else []) == jobs
    assert Path("scaling-study").exists() == (typed == "y")


@pytest.mark.parametrize("has_script", [True, False])
def test_a_first_site_finds_this_installation(
    run: Launch, has_script: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment of conda has no script to source; that another one is active means nothing."""
    prefix = tmp_path / "an env"
    (prefix / "bin").mkdir(parents=True)
    if has_script:
        (prefix / "bin" / "activate").touch()
    (prefix / "bin" / "aiperf-hpc").touch(mode=0o755)
    monkeypatch.setattr("sys.prefix", str(prefix))
    monkeypatch.setenv("VIRTUAL_ENV", "/another")
    monkeypatch.setenv("PATH", f"{prefix / 'bin'}:/usr/bin:/bin")
    silent = "#!/bin/sh\necho 'Unable to contact slurm' >&2\nexit 1\n"
    install(prefix / "bin", dict.fromkeys(("sinfo", "srun", "sacctmgr"), silent))
    answer = run("init-site", "-o", "first.toml")
    assert printed(answer).startswith("wrote first.toml; no scheduler answered; ")
    failed = "fails (exit code 1: Unable to contact slurm); its answer is guessed"
    for name in ("sinfo", "srun", "sacctmgr"):
        assert f"aiperf-hpc: {name} {failed}\n" in answer.stderr
    assert answer.stderr.endswith("\nNext: aiperf-hpc launch --help\n")
    (line,) = load_site(Path("first.toml")).setup
    assert line == (
        f"source '{prefix}/bin/activate'" if has_script else f"export PATH='{prefix}/bin':\"$PATH\""
    )
