"""The journal on disk: whole lines or none, one writer, and nothing damaged is believed."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from aiperf.errors import JournalError
from aiperf.journal.events import Beat, Opened
from aiperf.journal.file import VERSION, JournalReader, chained, read_journal
from aiperf.journal.names import fingerprint
from aiperf.journal.run_files import RunFiles
from aiperf.journal.strict import LARGEST, parsed
from aiperf.journal.writer import JournalWriter, never_begun
from tests.aiperf.rules.forged import one
from tests.journals import Scene, told
from tests.tables import ComesTo

OPENED = one(Opened, told(Scene(minutes=0, max_trials=1)))


@pytest.fixture
def files(tmp_path: Path) -> RunFiles:
    return RunFiles(tmp_path / "runs" / "one")


def resumed(files: RunFiles) -> JournalWriter:
    return JournalWriter.resume(files, lambda line: None)


def begun(files: RunFiles, beats: int = 2) -> None:
    with JournalWriter.begin(files) as journal:
        journal.write(0.0, OPENED)
        for beat in range(beats):
            journal.write(float(beat), Beat())


@pytest.mark.parametrize("salt", ["", "5a" * 32])
def test_every_event_of_a_run_comes_back_as_it_was_written(salt: str, files: RunFiles) -> None:
    scene = Scene(minutes=0.1, out_of_memory=frozenset({1}), lost=((0, 14.0),), killed_at=15.0)
    (t, opened), *rest = told(scene)
    timed = [(t, replace(opened, salt_sha256=fingerprint(salt) if salt else "")), *rest]
    with JournalWriter.begin(files, salt) as journal:
        for t, event in timed:
            journal.write(t, event)
    lines = read_journal(files.journal)
    expected = [(number, t, event, True) for number, (t, event) in enumerate(timed, 1)]
    assert [(line.number, line.t, line.event, line.intact) for line in lines] == expected
    assert len({type(line.event) for line in lines}) == 14  # all kinds but Beat


def test_a_line_is_an_object_whose_chain_is_the_hash_of_the_chain_before_and_of_the_rest() -> None:
    (line,) = chained([(1.5, Beat())], chain="abc")
    found = sha256(b'abc{"t":1.5,"type":"Beat"}').hexdigest()
    assert line == '{"t":1.5,"type":"Beat","chain":"' + found + '"}'


def test_a_reader_follows_a_journal_as_it_grows(files: RunFiles) -> None:
    reader = JournalReader(files.journal)
    with JournalWriter.begin(files) as journal:
        assert list(reader.new_lines()) == []
        journal.write(0.0, OPENED)
        assert [line.event for line in reader.new_lines()] == [OPENED]
        journal.write(1.0, Beat())
        with files.journal.open("ab") as torn:
            torn.write(b'{"t":2.0,"ty')
        (line,) = reader.new_lines()
        assert (line.number, line.t, line.event, line.intact) == (2, 1.0, Beat(), True)
        assert list(reader.new_lines()) == []


@pytest.mark.parametrize("torn", [b"{", b'{"t":2.0,"type":"Beat","chain":"00"}', b"\0" * 40])
def test_only_a_torn_last_line_is_tolerated(files: RunFiles, torn: bytes) -> None:
    begun(files)
    whole = files.journal.read_bytes()
    files.journal.write_bytes(whole + torn)
    assert len(read_journal(files.journal)) == 3
    with resumed(files) as journal:
        journal.write(9.0, Beat())
    assert files.journal.read_bytes().startswith(whole)
    lines = [(line.t, line.intact) for line in read_journal(files.journal)]
    assert lines == [(0.0, True), (0.0, True), (1.0, True), (9.0, True)]


def test_any_other_damage_is_refused_with_its_line_and_what_is_no_journal_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
) -> None:
    """One of another version, which may have any keys, names the program to install."""
    monkeypatch.chdir(tmp_path)
    files = RunFiles(Path("one"))
    begun(files)
    first, _, *rest = files.journal.read_bytes().splitlines()

    def read(damaged: bytes) -> object:
        return held(b"\n".join([first, damaged, *rest]) + b"\n")

    def version(number: int) -> object:
        other = {"version": number, "program": "9.0", "config": {"unheard": "of"}, "more": 1}
        return held(json.dumps(json.loads(first) | other).encode() + b"\n")

    def read_whole(files: RunFiles) -> object:
        return read_journal(files.journal)

    def held(content: bytes | None, use: Callable[[RunFiles], object] = read_whole) -> object:
        """What comes of a run directory whose journal holds that; None: it has none."""
        files.journal.unlink(missing_ok=True)
        if content is not None:
            files.journal.write_bytes(content)
        return use(files)

    comes_to_what_was_read("damaged_lines.txt", {"resume": resumed, "VERSION": VERSION, **locals()})
    for damage, words in (
        (b"[" * 100_000, "recursion"),
        (b'{"t":1.0,"type":"Nothing","chain":""}', "is not a known"),
    ):
        with pytest.raises(JournalError, match=rf"line 2 is damaged: .*{words}"):
            read(damage)
    files.journal.unlink()
    files.journal.mkdir()
    with pytest.raises(JournalError, match="it is a directory, not a file; give a run directory"):
        read_journal(files.journal)


def test_a_broken_chain_is_told_by_the_line_below_it_and_ends_a_resume(files: RunFiles) -> None:
    begun(files, beats=4)
    lines = files.journal.read_bytes().splitlines(keepends=True)
    del lines[2]
    files.journal.write_bytes(b"".join(lines))
    assert [line.number for line in read_journal(files.journal) if not line.intact] == [3]
    with pytest.raises(JournalError, match=r"line 3: the chain is broken, .* cannot be continued"):
        resumed(files)


def test_a_journal_that_shrinks_under_its_reader_is_refused(files: RunFiles) -> None:
    begun(files)
    reader = JournalReader(files.journal)
    list(reader.new_lines())
    os.truncate(files.journal, 10)
    with pytest.raises(JournalError, match="became shorter"):
        list(reader.new_lines())


def test_a_second_process_in_the_same_directory_is_refused_by_name(files: RunFiles) -> None:
    with JournalWriter.begin(files) as journal:
        journal.write(0.0, OPENED)
        os.utime(files.journal, (1e9, 1e9))  # however long ago it wrote
        refused = _elsewhere("resume", files).stdout
    assert refused.startswith(f"{files.directory} belongs to a run in progress: process {os.getpid()} on ")
    assert refused.count("\n") == 1


def test_a_second_writer_in_the_same_process_is_refused(files: RunFiles) -> None:
    with JournalWriter.begin(files) as journal:
        journal.write(0.0, OPENED)
        with pytest.raises(JournalError, match="belongs to a run in progress"):
            resumed(files)


def test_a_killed_process_leaves_no_lock_behind(files: RunFiles) -> None:
    assert _elsewhere("begin", files).returncode == -9
    assert json.loads(files.lock.read_text())["pid"] != os.getpid()
    files.journal.write_bytes("".join(f"{line}\n" for line in chained([(0.0, OPENED)])).encode())
    with resumed(files) as journal:
        journal.write(1.0, Beat())


def test_the_lock_of_another_host_holds_while_its_journal_grows(files: RunFiles) -> None:
    """On file systems whose locks do not reach the other host."""
    begun(files)
    files.lock.write_text('{"pid": 7, "host": "elsewhere"}')
    with pytest.raises(JournalError, match="process 7 on elsewhere"):
        resumed(files)
    os.utime(files.journal, (1e9, 1e9))
    resumed(files).close()


def test_a_full_disk_ends_the_journal_before_the_line(
    files: RunFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(files)
    whole = files.journal.read_bytes()
    write = os.write

    def half(file: int, data: bytes) -> int:
        if len(data) < 40:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data[: len(data) // 2])

    journal = resumed(files)
    monkeypatch.setattr(os, "write", half)
    full = r"cannot be written: No space left on device; free some space .*, then: aiperf-hpc resume /"
    with pytest.raises(JournalError, match=full):
        journal.write(5.0, Beat())
    monkeypatch.undo()
    assert files.journal.read_bytes() == whole
    journal.write(6.0, Beat())
    journal.close()
    assert [line.t for line in read_journal(files.journal)] == [0.0, 0.0, 1.0, 6.0]


def test_where_nothing_can_be_written_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="cannot be written: Not a directory; choose another directory"):
        JournalWriter.begin(RunFiles(tmp_path / "file" / "run"))


def test_a_lock_that_cannot_be_taken_ends_a_resume_in_one_line(files: RunFiles) -> None:
    """As on a read-only file system."""
    begun(files)
    files.lock.unlink()
    files.lock.mkdir()
    with pytest.raises(JournalError, match="lock cannot be written: Is a directory; choose a writable"):
        resumed(files)


HARMS = [
    (shutil.rmtree, "the run directory .*run is gone: nothing of the result was kept"),
    (lambda run: run.rename(run.with_name("else")), "is gone: it is .*else/journal.jsonl now; put it back"),
    (lambda run: RunFiles(run).journal.unlink(), "the journal .*jsonl is gone: nothing of the result was"),
    (lambda run: (run / "lock").replace(RunFiles(run).journal), "jsonl was replaced by another file: not"),
]


@pytest.mark.parametrize(("harm", "words"), HARMS)
def test_what_became_of_it_is_said(harm: Callable[[Path], object], words: str, tmp_path: Path) -> None:
    with JournalWriter.begin(RunFiles(tmp_path / "run")) as journal:
        journal.refuse_if_gone()
        harm(tmp_path / "run")
        with pytest.raises(JournalError, match=words):
            journal.refuse_if_gone()


def test_a_run_that_was_killed_as_it_began_is_begun_again(tmp_path: Path) -> None:
    """Before its first line; a scheduler gives the same command again."""
    files = RunFiles(tmp_path / "run")
    files.directory.mkdir()
    assert not never_begun(files.journal)
    files.journal.write_text("notes of somebody")
    assert not never_begun(files.journal)
    for torn in ("", '{"t":0.0,"type":"Opened","version"'):  # the disk was full, then it was killed
        files.journal.write_text(torn)
        assert never_begun(files.journal)
    with JournalWriter.begin(files) as journal:
        journal.write(0.0, Beat())
    assert not never_begun(files.journal)
    with pytest.raises(JournalError, match="already exists"):
        JournalWriter.begin(files)


# Prints the line of a refusal, or writes nothing and says so.
ELSEWHERE = """
import os, sys
from pathlib import Path
from aiperf.errors import JournalError
from aiperf.journal.run_files import RunFiles
from aiperf.journal.writer import JournalWriter
files = RunFiles(Path(sys.argv[2]))
try:
    journal = JournalWriter.begin(files) if sys.argv[1] == "begin" else JournalWriter.resume(files, id)
except JournalError as error:
    print(error)
if sys.argv[1] == "begin":
    os.kill(os.getpid(), 9)
"""


def _elsewhere(how: str, files: RunFiles) -> subprocess.CompletedProcess[str]:
    """A second process that resumes the run, or begins it and is killed."""
    command = [sys.executable, "-c", ELSEWHERE, how, str(files.directory)]
    return subprocess.run(command, check=False, capture_output=True, text=True)


# Numbers that no column holds, and keys that stand twice


PLACES = (
    "{}",
    "[{}]",
    "[1,{}]",
    '{{"a":{}}}',
    '{{"a": {}}}',
    '{{"a":\n{}}}',
    '{{"a":[0.5,{}]}}',
    '{{"a":\t{}}}',
)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "number",
    [
        *("1e400", "-1e400", "1E+309", "1.5e999", "9" * 400 + ".0", "1" + "0" * 320 + "e0", "1.1e150"),
        *(str(LARGEST + 1), str(-LARGEST - 1), "9" * 30, "NaN", "Infinity", "-Infinity"),
    ],
)
def test_what_is_too_large_or_no_number_is_refused(number: str, place: str) -> None:
    with pytest.raises(ValueError, match=r"too large|not a number"):
        parsed(place.format(number).encode())


@pytest.mark.parametrize("text", ['{"a":1,"a":1}', '{"b":[{"a":1,"c":2,"a":3}]}'])
def test_a_key_stands_once(text: str) -> None:
    with pytest.raises(ValueError, match="a appears twice"):
        parsed(text.encode())


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("number", ["0", "-1", "1e3", "1.25e-300", "1e-400", "1e150", "0.6018240000000001"])
def test_all_other_numbers_are_what_they_say(number: str, place: str) -> None:
    assert parsed(place.format(number).encode()) == json.loads(place.format(number))
