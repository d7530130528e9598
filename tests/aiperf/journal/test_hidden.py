"""Every text of a journal is hidden, or is known to identify nobody."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from aiperf.errors import JournalError
from aiperf.journal.events import Event, GroupLost, LegBegan, LegEnded, Opened, RankReady
from aiperf.journal.file import read_journal
from aiperf.journal.hidden import FIELDS, LINES
from aiperf.journal.names import fingerprint
from aiperf.journal.run_files import RunFiles
from aiperf.journal.writer import JournalWriter
from tests.aiperf.rules.forged import one
from tests.journals import READY, Scene, told

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
