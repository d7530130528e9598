"""Commitments and the private file: equal values are alike, and a file that does not fit shows nothing."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from hashlib import sha256
from hmac import HMAC
from itertools import count
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
from tests.tables import ComesTo

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
