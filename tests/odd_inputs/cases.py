"""What comes from outside: for every process that is started, every variable and every file that is read, the
call that reads it. A place without a row fails `test_odd_inputs.py`.

For a new place, add it, as the test names it, to the row that reads it, or write a row: `variables.txt` has
the places, the variables, what else is set, the function, and its arguments; `files.txt` the places, the
file, and the words of a command, or a function and its arguments; `processes.txt` the places, the programs, a
function and its arguments. A function without a module is one of this file. Arguments are Python, by the
names of `environment`, `folder`, `path` of the file, and `run`, and those of this file. In
`without_a_case.txt` is what only this program or the kernel writes, with the reason, and what another test
feeds with odd things, with its file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from aiperf.errors import AiperfError
from aiperf.journal.run_files import RunFiles
from aiperf.tasks.images.known_sets import IMAGENET_1K
from launch import SCHEDULERS

Environment = Mapping[str, str]

CONTENTS: Mapping[str, bytes] = {
    "nothing": b"",
    "a word": b"Unknown\n",
    "a heading": b"CLUSTER: big\n",
    "odd bytes": b"\xff\xfeM\xfcller\x00\n",
    "a control": b"\x1b[2J\r\n",
    "a negative number": b"-1\n",
    "a huge number": b"9" * 100_000,
    "deep brackets": b"[" * 50_000,
    "deep braces": b'{"a":' * 50_000,
    "an object": b'{"a": [1e999, null, "\\ud800"]}\n',
}
"""What a file may hold, or a program print."""
VALUES: Mapping[str, str] = {
    "nothing": "",
    "a space": " ",
    "a word": "Unknown",
    "a negative number": "-1",
    "a fraction": "1.5",
    "an exponent": "1e9",
    "a number of another script": "\u00b2",
    "odd bytes": "M\udcfcller\udcff",
    "a control": "\x1b[2J\n",
    "a path": "../../../nowhere",
    "a huge number": "9" * 100_000,
    "many": "0-99999999999,7",
}
"""What a variable may hold."""
SIZES = 1 << 40
"""Size of a file with a hole, in bytes: it takes no room, and may not be read whole."""


def called(function: str, *arguments: object) -> object:
    """Calls a function by its name, `module:name`: no pure test may import what needs torch."""
    module, _, name = function.partition(":")
    found: Any = import_module(module or __name__)
    for part in name.split("."):
        found = getattr(found, part)
    result: object = found(*arguments)
    return list(result) if isinstance(result, Iterator) else result


def places(cell: str) -> tuple[str, ...]:
    """Each place of `path name name; path name`."""
    words = [each.split() for each in cell.split("; ")]
    return tuple(f"{path} {name}" for path, *names in words for name in names)


def rows(table: str) -> list[list[str]]:
    """The cells of a table beside this file."""
    lines = (Path(__file__).parent / table).read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in line.split("|")] for line in lines]


WITH_TORCH = tuple(
    f"aiperf/{name}/"
    for name in ("data", "device", "engines", "inference", "measuring", "parallel", "training")
)
"""Folders whose modules import torch, so that a pure run of the tests leaves their cases out."""


@dataclass(frozen=True)
class Case:
    """A row of the tables."""

    places: tuple[str, ...]
    """The places that the call reads, as `places.py` names them."""
    subjects: tuple[str, ...]
    """Variables, programs that each print all CONTENTS, with exit codes 0 and 18, or the path of a file in a
    folder with a run, `run`, a study and a site file."""
    function: str
    """Or the words of a command, which is typed in the folder."""
    arguments: str = ""
    given: Environment = field(default_factory=dict)
    """What else is set. The whole environment is that of the process, too."""

    def call(self, **given: object) -> object:
        return called(self.function, *eval(f"[{self.arguments}]", {**globals(), **given}))

    @property
    def needs_torch(self) -> bool:
        return self.places[0].startswith(WITH_TORCH)


def job(environment: Environment) -> object:
    left = called("launch.current_job:job_seconds_left", environment, 1.8e9)
    return called("launch.current_job:job_name", environment), left


def link(environment: Environment) -> object:
    """The socket of a rank that torchrun started."""
    launched = called("aiperf.ranks.launcher:launched_rank", environment)
    if launched is None:
        return None
    return called("aiperf.ranks.connect:disconnect", called("aiperf.ranks.connect:connect", launched))


def hidden(environment: Environment) -> object:
    """A text that hides who runs a process."""
    hider: Any = called("aiperf.journal.hidden_text:TextHider", lambda kind, value: value)
    called("aiperf.journal.hidden_text:learn_this_process", hider, environment)
    return hider.text("ada has run it in /home/ada")


def reproduced() -> object:
    """The file of a validation that was interrupted, written and read again."""
    replay = SimpleNamespace(last_chain="x", lines=1)
    saved: Any = called("aiperf.rules.reproduction:SavedProgress.of", replay)
    if refusal := saved.keep(3):
        raise AiperfError(refusal)
    return saved.read()


def compiler() -> object:
    called("aiperf.device.dynamo:load_dynamo")
    return called("aiperf.engines.compiled:Compiled.why_not", SimpleNamespace(kind="cpu"))


VARIABLE_CASES = (
    *(
        Case(
            places(where), tuple(names.split()), *call, given=dict(each.split("=") for each in given.split())
        )
        for where, names, given, *call in rows("variables.txt")
    ),
    *(
        Case(
            (
                "launch/scheduler.py self.job_id",
                # A pod does not ask for its time.
                *[f"launch/{name}.py self.job_id"] * (name != "kubernetes"),
                *[f"launch/{name}.py self.element"] * (name in ("lsf", "sge")),
                *["launch/slurm.py END"] * (name == "slurm"),
            ),
            tuple(filter(None, (each.job_id, each.element, "SLURM_JOB_END_TIME"))),
            ":job",
            "environment",
            {"PATH": ""} | {word: "7" for word in (each.job_id, each.element) if word},
        )
        for name, each in SCHEDULERS.items()
    ),
)


def submitted(folder: Path) -> object:
    (folder / "script").write_text("true\n")
    return [
        called(f"aiperf.commands.batch_jobs:{name}", scheduler, word)
        for scheduler in SCHEDULERS.values()
        for name, word in (("hand_in", folder / "script"), ("job_states", ["7"]))
        if not _is_refused(f"aiperf.commands.batch_jobs:{name}", scheduler, word)
    ]


def _is_refused(function: str, *arguments: object) -> bool:
    """Whether it is one line; the calls after it are made nevertheless."""
    try:
        called(function, *arguments)
    except AiperfError as error:
        return "\n" not in str(error)
    return False


def first_site() -> object:
    """What the machine reports becomes a site file that can be read."""
    answers = {
        name: called("aiperf.commands.launch:_answer", *words)
        for name, words in import_module("launch.site_draft").QUESTIONS.items()
    }
    text = called("launch.site_draft:site_text", answers, "ada", "true")
    return called("launch.site:site_from_toml", text, "s"), called("launch.site_draft:skipped", answers)


def drivers() -> object:
    """The checks of doctor that read what drivers' tools print."""
    tools = {name: called("aiperf.doctor.host_report:_ask", name, ("-L",), 50.0) for name in DRIVERS}
    host = SimpleNamespace(host="node1", tools=tools, visible={}, load=None, cores=1)
    examination = SimpleNamespace(device_reports=[], host_reports=[host])
    return [called(f"aiperf.doctor.judge:{check}", examination) for check in ("_drivers", "_slices")]


def time_left() -> object:
    jobs = [each.job_id for each in SCHEDULERS.values()]
    return [called("launch.current_job:job_seconds_left", {job: "7"}, 0.0) for job in jobs]


def compiled(folder: Path) -> object:
    environment = {"PATH": os.environ["PATH"], "XDG_CACHE_HOME": str(folder)}
    return called("aiperf.engines.fused.kernels:built", environment)


DRIVERS = ("nvidia-smi", "rocm-smi", "npu-smi", "xpu-smi")
QUEUES = tuple(each.ask(["7"])[0] for each in SCHEDULERS.values())
SUBMITTERS = tuple(each.submit()[0] for each in SCHEDULERS.values())
PROGRAMS = {"queues": QUEUES, "submitters": SUBMITTERS, "drivers": DRIVERS}
PROCESS_CASES = tuple(
    Case(
        places(where),
        tuple(program for word in programs.split() for program in PROGRAMS.get(word, (word,))),
        *call,
    )
    for where, programs, *call in rows("processes.txt")
)


def names_of_run(run: RunFiles) -> object:
    """Names and salt of a run that hides names."""
    names = called("aiperf.journal.names:Names.at", run.private, "0" * 64)
    return names, called("aiperf.journal.names:salt_of", run.private, run.journal)


def other_answers(path: Path) -> object:
    log = SimpleNamespace(entries={}, values=lambda key: [], refuse_repeated=lambda: None)
    function = "analysis.submissions.loadgen_logs:refuse_other_answers"
    return called(function, log, path, None, IMAGENET_1K, SimpleNamespace(name="offline"))


def job_id(folder: Path) -> object:
    study = import_module("launch.study").StudyFiles(folder / "study")
    return called("aiperf.commands.scaling_study:_job_id", study, 1)


FILE_CASES = tuple(Case(places(where), (name,), *call) for where, name, *call in rows("files.txt"))
WITHOUT_CASE = {place: reason for where, reason in rows("without_a_case.txt") for place in places(where)}
