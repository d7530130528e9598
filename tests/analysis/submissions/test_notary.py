"""The notary in folders that may be anybody's: what it reads, what it writes, and what it signs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import rmtree

import pytest

from aiperf.errors import AiperfError
from aiperf.journal.notary import JournalHead, NotaryAnswer, NotaryRequest, answers
from aiperf.journal.run_files import RunFiles
from tests.analysis.submissions.notarising import Office
from tests.tables import ComesTo

ASKED = JournalHead(2, 4000, "ab" * 32)
Attack = Callable[[RunFiles, Path], object]


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path / "office", now=1_777_896_000.0)


@pytest.fixture
def files(tmp_path: Path) -> RunFiles:
    """A run that asks for its nonce."""
    run = RunFiles(tmp_path / "runs" / "run")
    run.notary_directory.mkdir(parents=True)
    ask(run, ASKED)
    return run


def ask(files: RunFiles, head: JournalHead, asked: JournalHead = ASKED) -> None:
    files.notary_request(0).write_text(NotaryRequest(asked, head).text())


def later(lines: int) -> JournalHead:
    return JournalHead(lines, 1000 * lines, f"{lines:064x}")


def signed(files: RunFiles) -> list[NotaryAnswer]:
    return list(answers(files.notary_answers(0)))


def test_what_is_new_is_signed_once_in_order_and_with_the_notarys_own_time(
    office: Office, files: RunFiles
) -> None:
    for lines, seconds in ((2, 0), (2, 1), (10, 30), (10, 31), (9, 40), (20, 60)):
        office.now = 1_777_896_000.0 + seconds
        if lines != 2:
            ask(files, later(lines))
        office.look(files.directory.parent)
    found = signed(files)
    assert [(a.head.lines, a.milliseconds % 1_777_896_000_000, a.count) for a in found] == [
        (2, 0, 0),
        (10, 30_000, 1),
        (20, 60_000, 2),
    ]
    assert [a.previous for a in found] == ["", *(a.signature for a in found[:-1])]
    assert len({(a.nonce, a.nonces, a.key) for a in found}) == 1


def test_a_notary_goes_on_where_it_was_killed(office: Office, files: RunFiles) -> None:
    """Killed after an answer was in its record and before it was published; and while it wrote the next."""
    office.look(files.directory.parent)
    ask(files, later(10))
    office.look(files.directory.parent)
    whole = files.notary_answers(0).read_text()
    files.notary_answers(0).write_text(whole.splitlines(keepends=True)[0])
    (record,) = (office.folder / "record").glob("*.jsonl")
    record.write_text(whole + whole[:200])
    office.look(files.directory.parent)
    assert files.notary_answers(0).read_text() == record.read_text() == whole
    ask(files, later(20))
    office.look(files.directory.parent)
    assert [answer.count for answer in signed(files)] == [0, 1, 2]


def test_a_run_cannot_make_it_forget_or_sign_another_beginning(office: Office, files: RunFiles) -> None:
    office.look(files.directory.parent)
    (first,) = signed(files)
    rmtree(files.notary_directory)
    files.notary_directory.mkdir()
    ask(files, later(10))
    office.look(files.directory.parent)
    assert signed(files)[0] == first
    office.now += 10
    other = JournalHead(2, 4000, "cd" * 32)
    ask(files, other, other)
    assert office.look(files.directory.parent) == [f"{files.directory}: nonce 2 was given"]
    second = signed(files)[0]
    assert second.nonce != first.nonce
    assert (office.folder / "record" / "nonces.txt").read_text().splitlines() == [
        f"1 2026-05-04 12:00:00 UTC {first.nonce} {files.directory}",
        f"2 2026-05-04 12:00:10 UTC {second.nonce} {files.directory}",
    ]


def test_one_run_cannot_fill_the_record(office: Office, files: RunFiles) -> None:
    """A leg that begins again and again gets a nonce every five seconds, and each of them in its turn."""
    notary, begins = office.open(), 1_777_896_000.0
    for second in range(11):
        office.now, asked = begins + second, JournalHead(2, 4000, f"{second:064x}")
        ask(files, asked, asked)
        list(notary.look(files.directory.parent))
    notary.close()
    assert len(list((office.folder / "record").glob("*.jsonl"))) == 3
    assert signed(files)[0].nonces == 3


def test_a_clock_that_went_back_signs_nothing_until_it_has_caught_up(office: Office, files: RunFiles) -> None:
    office.look(files.directory.parent)
    ask(files, later(10))
    office.now -= 100
    told = office.look(files.directory.parent)
    why = "the clock of this host went back; nothing is signed until it has caught up"
    assert told == [f"{files.directory}: 0.request.json: {why}"]
    office.now += 101
    assert office.look(files.directory.parent) == []
    assert [answer.count for answer in signed(files)] == [0, 1]


def test_one_record_has_one_notary(office: Office) -> None:
    first = office.open()
    with pytest.raises(AiperfError, match="in use by another notary"):
        office.open()
    first.close()
    office.open().close()


def pipe(files: RunFiles, victim: Path) -> None:
    files.notary_request(0).unlink()
    os.mkfifo(files.notary_request(0))


def linked(name: str) -> Callable[[RunFiles, Path], None]:
    def link(files: RunFiles, victim: Path) -> None:
        path = files.notary_directory / name
        path.unlink(missing_ok=True)
        path.symlink_to(victim)

    return link


def linked_folder(files: RunFiles, victim: Path) -> None:
    files.notary_directory.rename(files.directory / "elsewhere")
    files.notary_directory.symlink_to(files.directory / "elsewhere")


def linked_run(files: RunFiles, victim: Path) -> None:
    moved = victim.parent / "moved"
    files.directory.rename(moved)
    files.directory.symlink_to(moved)


def folder_of_answers(files: RunFiles, victim: Path) -> None:
    files.notary_answers(0).mkdir()


@pytest.fixture
def told(folders: Iterator[Path]) -> Callable[[Attack], list[str]]:
    """What the notary says of a folder in which its owner has put something. Whatever it is, another run is
    served, and no other file is touched."""

    def served(attack: Attack) -> list[str]:
        office = Office((runs := next(folders)) / "office", now=1_777_896_000.0)
        honest, files = (RunFiles(runs / "runs" / name) for name in ("a-run", "run"))
        for each in (honest, files):
            each.notary_directory.mkdir(parents=True)
            ask(each, ASKED)
        (victim := runs / "victim").write_text("precious")
        attack(files, victim)
        found = [text.removeprefix(f"{runs}/runs/") for text in office.look(runs / "runs")]
        found = [text for text in found if not text.startswith("a-run")]
        assert victim.read_text() == "precious"
        assert len(signed(honest)) == 1
        return [re.sub("Not a directory|Too many [a-z ]+", "…", text) for text in found]  # by system

    return served


def test_nothing_in_a_folder_is_followed_or_written_into(
    told: Callable[[Attack], list[str]], comes_to_what_was_read: ComesTo
) -> None:
    comes_to_what_was_read("hostile_folders.txt", {**globals(), "told": told})


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_a_file_of_another_user_is_not_read(told: Callable[[Attack], list[str]]) -> None:
    (text,) = told(lambda files, victim: os.chown(files.notary_request(0), 12345, 12345))
    assert "0.request.json is not a file of the run's owner" in text
