"""Commitments and the private file: equal values are alike, and a file that does not fit shows nothing."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from hashlib import sha256
from hmac import HMAC
from pathlib import Path

import pytest

from aiperf.errors import JournalError
from aiperf.journal.names import (
    Names,
    PrivateFile,
    commitment,
    differ,
    fingerprint,
    hidden,
    is_hidden,
    new_salt,
)

SALT = "5a" * 32
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
    digest = HMAC(SALT.encode(), b"host\0node1", sha256).hexdigest()
    assert (NODE, commitment(SALT, "process", 31)) == (
        f"host-{digest[:12]}",
        int(HMAC(SALT.encode(), b"process\x0031", sha256).hexdigest()[:12], 16),
    )
    assert len({NODE, LOGIN, commitment(SALT, "user", "node1"), commitment("5b" * 32, "host", "node1")}) == 4
    assert (hidden(SALT, "host", "node1"), hidden(SALT, "host", NODE), hidden("", "host", "a")) == (
        NODE,
        NODE,
        "a",
    )
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
        with pytest.raises(
            JournalError, match=r"private.jsonl is missing, cannot be read or belongs to another run"
        ):
            PrivateFile.resume(path, fingerprint(SALT))


def replaced(old: str, new: str) -> Callable[[bytes], bytes]:
    return lambda raw: raw.replace(old.encode(), new.encode())


@pytest.mark.parametrize(
    ("change", "shown", "said"),
    [
        (lambda raw: raw, "node1 login1", ""),
        (lambda raw: b"", "NODE LOGIN", ""),
        (replaced(SALT, "5b" * 32), "NODE LOGIN", "it is not of this journal"),
        (lambda raw: b"\xff\n" + raw, "NODE LOGIN", "it is not of this journal"),
        (lambda raw: b"[" * 10000 + b"\n", "NODE LOGIN", "it is not of this journal"),
        (replaced("node1", "login1"), "NODE login1", ""),  # no commitment has that value twice
        (replaced("node1", "mars"), "NODE login1", ""),
        (replaced('"node1"', "[1]"), "NODE login1", "1 of its lines cannot be read"),
        (replaced("node1", LOGIN), "NODE login1", "1 of its lines cannot be read"),
        (lambda raw: raw[:100], "NODE LOGIN", ""),
    ],
)
def test_a_file_that_does_not_fit_shows_the_commitments(
    change: Callable[[bytes], bytes],
    shown: str,
    said: str,
    path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path.write_bytes(change(path.read_bytes()))
    names = Names.at(path, fingerprint(SALT))
    assert names.text(f"{NODE} {LOGIN}") == shown.replace("NODE", NODE).replace("LOGIN", LOGIN)
    what = f"{path.parent.name}/private.jsonl: {said}; such names are shown as the journal has them"
    assert capsys.readouterr().err == (f"aiperf-hpc: {what}\n" if said else "")


@pytest.mark.parametrize(
    ("first", "second", "answer"),
    [
        ("a", "a", False),
        ("a", "b", True),
        (1, 2, True),
        (None, NODE, True),
        (NODE, "node1", False),
        ("node1", NODE, False),
        (NODE, LOGIN, False),
        (f"Slurm {NODE}", "Slurm 4711", False),
        (f"Slurm {NODE}", "PBS 4711", True),
        (f"path={NODE}\n", "path=a.b\n", False),
        (f"{NODE} or {LOGIN}", "a or b or c", False),
        (f"{NODE} or {LOGIN}", "a or ", True),
        (f"{NODE} " * 40 + "x", " " * 1000, True),
    ],
)
def test_a_hidden_name_of_another_run_may_be_the_same(first: object, second: object, answer: bool) -> None:
    assert differ(first, second) is answer
    assert is_hidden(NODE)
