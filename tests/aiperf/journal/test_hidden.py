"""Names and texts that identify: each of a journal is hidden, or is known to identify nobody."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from hashlib import sha256
from hmac import HMAC
from itertools import count
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from aiperf.errors import JournalError
from aiperf.journal.events import Event, GroupLost, LegBegan, LegEnded, Opened, RankReady
from aiperf.journal.file import read_journal
from aiperf.journal.hidden import FIELDS, LINES
from aiperf.journal.hidden_text import TextHider, learn_this_process
from aiperf.journal.names import (
    TOKEN,
    Names,
    PrivateFile,
    commitment,
    differ,
    fingerprint,
    hidden,
    is_hidden,
    new_salt,
)
from aiperf.journal.run_files import RunFiles
from aiperf.journal.writer import JournalWriter
from tests.aiperf.rules.forged import one
from tests.journals import READY, Scene, told
from tests.tables import ComesTo

SALT = "5a" * 32
OPENED = replace(one(Opened, told(Scene(minutes=0, max_trials=1))), salt_sha256=fingerprint(SALT))

PUBLIC = {
    "names of data, formats, engines, searches and the like": (
        *("name", "format", "engine", "network", "backend", "augmentation", "schedule", "optimizer", "decay"),
        *("batch_norm", "compression", "step", "omit"),
    ),
    "versions": ("program", "software", "libraries"),
    "names of devices, and what they can do": ("device", "machine", "flags", "multiplies", "formats"),
    "hashes": ("code_hash", "salt_sha256", "initial_weights", "graph_key", "logs", "weights", "digests"),
    "random numbers, and what a notary signed": ("nonce", "signature"),
    "times of day": ("started",),
    "keys that are numbers or names of formats": ("thread_seconds", "thread_products", "steps", "seed_steps"),
    "keys that are transports and names of network interfaces": ("transports",),
    "of any shape: graphs and morphisms, counts of the data": ("seed_graph", "data", "morphisms"),
    "what differs of a rank, hidden by the names of its fields": ("differs", "within"),
}


def texts(kind: Any, seen: set[Any]) -> Iterator[tuple[Any, str]]:
    """The fields of an event that hold texts, at any depth."""
    if kind in seen or not is_dataclass(kind):
        return
    seen.add(kind)
    hints = get_type_hints(kind)
    for field in fields(kind):
        inner = list(parts(hints[field.name]))
        if any(part is str or part is Any for part in inner):
            yield kind, field.name
        for part in inner:
            for member in (part, *all_subclasses(part)):
                yield from texts(member, seen)


def parts(hint: Any) -> Iterator[Any]:
    yield hint
    for argument in get_args(hint):
        yield from parts(argument)


def all_subclasses(kind: Any) -> Iterator[Any]:
    for each in kind.__subclasses__() if isinstance(kind, type) and is_dataclass(kind) else ():
        if each.__module__.startswith("aiperf."):
            yield each
            yield from all_subclasses(each)


def test_a_new_field_is_hidden_or_said_to_be_public() -> None:
    public = {name for names in PUBLIC.values() for name in names}
    for event in Event.__subclasses__():
        found = set(texts(event, set()))
        unknown = {f"{kind.__name__}.{name}" for kind, name in found if name not in FIELDS.keys() | public}
        assert not unknown, "add them to FIELDS of aiperf/journal/hidden.py, or to PUBLIC here"
        hidden = {name for _, name in found} & FIELDS.keys()
        assert not hidden or event.__name__ in LINES, f"add {event.__name__} to LINES: it has {hidden}"


def lines(directory: Path, *events: Event) -> list[dict[str, Any]]:
    """What stands in a journal that hides names."""
    with JournalWriter.begin(RunFiles(directory), SALT) as journal:
        for event in (OPENED, *events):
            journal.write(0.0, event)
    return [json.loads(line) for line in RunFiles(directory).journal.read_text().splitlines()[1:]]


READ: Mapping[str, str] = {
    "job": "Slurm 4711081",
    "container": "Apptainer site/a.sif",
    "NCCL_TOPO_FILE": "/etc/x.xml",
}


def test_what_identifies_is_a_commitment_and_comes_back_with_the_private_file(tmp_path: Path) -> None:
    command = ("/home/alice/bin/aiperf-hpc", "run", "--hf-token", "s3cr", "--directory", "/scratch/alice/run")
    events = (
        LegBegan(0, "2026-05-04T08:00:00+00:00", command, ((1,),), host="node1"),
        RankReady(0, replace(READY, rank=1, host="node2", pid=31, device_id="GPU-1", settings=READ), 0.0),
        GroupLost(0, "rank 1 on node2: job 4711081, /home/alice/x with token=s3cr"),
        LegEnded("error: node1: no space in '/scratch/alice/a b'", 1.0),
        LegEnded("deadline", 1.0),
    )
    found = lines(tmp_path / "run", *events)
    assert not re.search(r"alice|node1|node2|GPU-1|4711081|a\.sif|x\.xml|s3cr", json.dumps(found))
    began, ready, lost, ended, deadline = found
    assert began["command"][1:5] == ["run", "--hf-token", "[secret]", "--directory"]
    assert ready["ready"]["settings"]["job"].startswith("Slurm job-")
    assert ready["ready"]["host"] in lost["reason"]
    assert ended["reason"].startswith(f"error: {began['host']}: no space in 'path-")
    assert deadline["reason"] == "deadline"
    back = [line.event for line in read_journal(RunFiles(tmp_path / "run").journal)][1:]
    secret = [replace(events[0], command=(*command[:3], "[secret]", *command[4:])), events[1]]
    secret += [replace(events[2], reason=events[2].reason.replace("=s3cr", "=[secret]")), *events[3:]]
    assert back == secret


def test_a_run_goes_on_with_its_salt_and_not_without(tmp_path: Path) -> None:
    """The same host has the same commitment in each leg."""
    files = RunFiles(tmp_path / "run")
    lines(files.directory, LegBegan(0, "", ("a",), ((1,),), host="node1"))
    with JournalWriter.resume(files, lambda line: None) as journal:
        journal.write(0.0, LegBegan(1, "", ("a",), ((1,),), host="node1"))
    first, second = (json.loads(line)["host"] for line in files.journal.read_text().splitlines()[1:])
    assert first == second != "node1"
    files.private.unlink()
    with pytest.raises(JournalError, match=r"private\.jsonl is missing"):
        JournalWriter.resume(files, lambda line: None)


def test_files_are_named_as_the_journal_names_their_host(tmp_path: Path) -> None:
    """Also on a host that has no private file, and where the one next to the journal is another's."""
    files = RunFiles(tmp_path / "run")
    (began,) = lines(files.directory, LegBegan(0, "", ("a",), ((1,),), host="node1"))
    name = f"{began['host']}.rank1.steps.jsonl"
    for each in (files, RunFiles(tmp_path / "elsewhere", salt=SALT)):
        assert (each.witness("node1", 1).name, each.witness(began["host"], 1).name) == (name, name)
    files.private.write_text('{"salt":"another"}\n')
    shown = [files.witness(host, 1).name for host in ("node1", began["host"])]
    assert shown == ["node1.rank1.steps.jsonl", name]


# Commitments and the private file: equal values are alike, and a file that does not fit shows nothing


NODE, LOGIN = (str(commitment(SALT, "host", host)) for host in ("node1", "login1"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The private file of a run on two hosts, with the process of one."""
    path = tmp_path / "private.jsonl"
    file = PrivateFile.begin(path, SALT)
    for kind, value in (("host", "node1"), ("host", "login1"), ("host", "node1"), ("process", 31)):
        file.commit(kind, value)
    file.close()
    return path


def test_a_commitment_is_an_hmac_of_kind_and_value_with_the_salt() -> None:
    host, process = (
        HMAC(SALT.encode(), text, sha256).hexdigest()[:12] for text in (b"host\0node1", b"process\x0031")
    )
    assert (NODE, commitment(SALT, "process", 31)) == (f"host-{host}", int(process, 16))
    assert len({NODE, LOGIN, commitment(SALT, "user", "node1"), commitment("5b" * 32, "host", "node1")}) == 4
    assert [hidden(SALT, "host", host) for host in ("node1", NODE)] == [NODE, NODE]
    assert hidden("", "host", "a") == "a"
    assert len(new_salt()) == 64
    assert new_salt() != new_salt()


def test_the_private_file_is_for_its_owner_and_has_each_value_once(path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    values = [("host", "node1"), ("host", "login1"), ("process", 31)]
    assert lines == [{"salt": SALT}, *({"kind": kind, "value": value} for kind, value in values)]


def test_a_run_that_goes_on_adds_to_it_after_a_torn_line(path: Path) -> None:
    with path.open("a") as file:
        file.write('{"kind": "ho')
    going_on = PrivateFile.resume(path, fingerprint(SALT))
    assert list(going_on.known()) == [("host", "node1"), ("host", "login1")]
    assert going_on.commit("host", "node1") == NODE
    reader = Names.at(path, fingerprint(SALT))
    late = str(going_on.commit("host", "node2"))
    assert reader.text(f"{NODE} and {late}, {LOGIN}!") == "node1 and node2, login1!"  # it reads on
    going_on.close()


def test_without_its_private_file_a_run_is_not_continued(path: Path) -> None:
    for change in (lambda: path.write_text('{"salt": "other"}\n'), path.unlink):
        change()
        with pytest.raises(JournalError, match=r"l is missing, cannot be read or belongs to another run"):
            PrivateFile.resume(path, fingerprint(SALT))


def replaced(old: str, new: str) -> Callable[[bytes], bytes]:
    return lambda raw: raw.replace(old.encode(), new.encode())


def test_a_file_that_does_not_fit_shows_the_commitments(
    path: Path, capsys: pytest.CaptureFixture[str], comes_to_what_was_read: ComesTo
) -> None:
    folders = (path.parent / f"run-{number}" for number in count())

    def shown(change: Callable[[bytes], bytes]) -> tuple[str, str]:
        """The names of the hosts, and what is said of the file."""
        (run := next(folders)).mkdir()
        changed = run / path.name
        changed.write_bytes(change(path.read_bytes()))
        names = Names.at(changed, fingerprint(SALT)).text(f"{NODE} {LOGIN}")
        said = capsys.readouterr().err.replace(run.name, "run")
        return names.replace(NODE, "NODE").replace(LOGIN, "LOGIN"), said

    comes_to_what_was_read("private_files.txt", {**globals(), "shown": shown})


def test_a_hidden_name_of_another_run_may_be_the_same(comes_to_what_was_read: ComesTo) -> None:
    assert is_hidden(NODE)
    comes_to_what_was_read("differ.txt", {"differ": differ, "NODE": NODE, "LOGIN": LOGIN})


# In texts and command lines


LEARNT = {
    "node017.site.org": "host",
    "jupiter": "host",
    "alice": "user",
    "/scratch/my data": "path",
    "4711": "job",
    "out": "path",
    "root": "user",
}


class Hidden:
    """A hider whose commitments can be read: they are shown as "{kind:value}"."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.hider = TextHider(self._commit)
        for name, kind in LEARNT.items():
            self.hider.learn(kind, name)

    def _commit(self, kind: str, value: str) -> str:
        token = f"{kind}-{len(self.values):012x}"
        self.values[token] = f"{{{kind}:{value}}}"
        return token

    def shown(self, hidden: str) -> str:
        return TOKEN.sub(lambda found: self.values[found[0]], hidden)

    def text(self, text: str) -> str:
        return self.shown(self.hider.text(text))


@pytest.fixture
def hider() -> Hidden:
    return Hidden()


def test_what_identifies_is_hidden_and_other_text_stays(
    hider: Hidden, comes_to_what_was_read: ComesTo
) -> None:
    """A folder's name has names between other words; of a command the options, numbers and names stay."""

    def command(line: str) -> str:
        return " ".join(map(hider.shown, hider.hider.command(tuple(line.split()))))

    def folder(name: str) -> str:
        return hider.shown(hider.hider.folder(name))

    names = {"hidden": hider.text, "stays": lambda text: hider.text(text) == text}
    comes_to_what_was_read("hidden_texts.txt", {**names, "command": command, "folder": folder})


def test_who_runs_a_process_and_where_is_known(hider: Hidden, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.uname", lambda: type("Uname", (), {"nodename": "login3"}))
    learn_this_process(hider.hider, {"USER": "carol", "HOME": "/home/carol"})
    assert hider.text("carol at login12") == "{user:carol} at {host:login12}"
