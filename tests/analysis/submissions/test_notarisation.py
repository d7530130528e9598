"""The notary in folders that may be anybody's, and how far a journal is notarised: honest runs, and what a
forger can do.

One file, because honest and forged rows are made from one signed journal."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import copyfile, copytree, rmtree
from typing import Any

import pytest

from aiperf.errors import AiperfError
from aiperf.journal.events import LegBegan, NonceGiven, Opened, Stepped
from aiperf.journal.file import read_journal
from aiperf.journal.notary import JournalHead, NotaryAnswer, NotaryRequest, answers
from aiperf.journal.run_files import RunFiles
from aiperf.tasks.images.tally import Classified
from analysis.readings.judgement import read_run
from analysis.submissions.keys import Register
from analysis.submissions.notarisation import notarised
from analysis.submissions.ranking import Notaries
from analysis.submissions.signature import signer
from tests.aiperf.rules.forged import changed as changed_line
from tests.aiperf.rules.forged import each, places, with_leg_for_the_test
from tests.analysis.packages import contents, make, ranked
from tests.analysis.submissions.notarising import NOON, Office, notarise, rewritten
from tests.journals import Scene, Timed, told, within, write_run
from tests.tables import ComesTo

RUN = told(Scene(minutes=2.0, groups=1, epochs=60))
OTHER = told(Scene(minutes=1.0, groups=1, epochs=60))[:10]
KILLED_SOON = told(Scene(minutes=1.0, groups=1, epochs=60, killed_at=30.0))
TWO_LEGS = told(Scene(minutes=2.0, groups=1, epochs=60, killed_at=70.0))


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path / "office")


def seen(files: RunFiles, office: Office) -> str:
    """Without the spot checks, which the signatures choose."""
    register: Register = {office.public: "HPC list"}
    return notarised(files, read_run(files), register).text.partition("; spot checks")[0]


def better(lines: list[Timed]) -> list[Timed]:
    """The loss of a block after 80 seconds is another."""
    index = next(place for place in places(lines, Stepped) if lines[place][0] > 80)
    return changed_line(lines, index, within(lines[index][1], loss=0.001))


def edited(change: Callable[[list[str]], list[str]]) -> Callable[[RunFiles, Path], object]:
    def edit(files: RunFiles, other: Path) -> None:
        path = files.notary_answers(0)
        path.write_text("".join(change(path.read_text().splitlines(keepends=True))))

    return edit


def journal(change: Callable[[list[Timed]], list[Timed]]) -> Callable[[RunFiles, Path], object]:
    return lambda files, other: rewritten(files, change)


def of_another(files: RunFiles, other: Path) -> None:
    """The answers to another run, with its nonce in this journal: an old nonce."""
    copyfile(RunFiles(other).notary_answers(0), files.notary_answers(0))
    told = [line.event for line in read_journal(RunFiles(other).journal)]
    rewritten(files, each(NonceGiven, lambda _: next(e for e in told if isinstance(e, NonceGiven))))


LATER_NONCE = each(LegBegan, lambda event: replace(event, started="2026-05-04T07:00:00+00:00"))
"""The first lines of a run that began sooner than its nonce."""


def better_test(lines: list[Timed]) -> list[Timed]:
    """The last line has more right answers."""
    return changed_line(lines, len(lines) - 1, within(lines[-1][1], tally=Classified(1197, 1190)))


def unsigned_test(change: Callable[[list[Timed]], list[Timed]]) -> Callable[[RunFiles, Path], object]:
    """Another test, without the answer to the head that has the right one."""

    def edit(files: RunFiles, other: Path) -> None:
        rewritten(files, change)
        edited(lambda lines: lines[:-1])(files, other)

    return edit


UNTIL = r"notarised by HPC list until line \d+ of \d+: "


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Office, RunFiles, Path]:
    """A notary, a run that it signed to the end, and another one of which it signed the beginning."""
    folder = tmp_path_factory.mktemp("notary")
    office = Office(folder / "office")
    other = notarise(office, folder / "other", OTHER).directory
    return office, notarise(office, folder / "run", RUN), other


def test_a_run_is_held_as_far_as_the_notary_was_there_and_signed(
    signed: tuple[Office, RunFiles, Path], folders: Iterator[Path], comes_to_what_was_read: ComesTo
) -> None:
    """Nor a duration that the notary did not see, nor what a notary signs without order."""
    office, run, other = signed

    def honest(run: list[Timed], **how: Any) -> str:
        notary = Office((folder := next(folders)) / "office")
        return seen(notarise(notary, folder / "run", run, **how), notary)

    def forged(forge: Callable[[RunFiles, Path], object]) -> str:
        files = RunFiles(copytree(run.directory, next(folders)))
        forge(files, other)
        return seen(files, office)

    def wrong(change: Callable[[list[NotaryAnswer]], list[NotaryAnswer]]) -> str:
        return forged(lambda files, _: signed_again(files, office, 0, change))

    names = {"honest": honest, "forged": forged, "wrong": wrong, "copyfile": copyfile}
    comes_to_what_was_read(
        "notarised.txt", {**globals(), **names, "with_leg_for_the_test": with_leg_for_the_test}
    )


def test_no_line_is_notarised_behind_the_first_that_was_changed(
    signed: tuple[Office, RunFiles, Path], tmp_path: Path
) -> None:
    """By a microsecond, with every later chain computed again."""
    office, run, _ = signed
    lines = [(line.t, line.event) for line in read_journal(run.journal)]
    copytree(run.directory, tmp_path / "run")
    files, register = RunFiles(tmp_path / "run"), {office.public: "HPC list"}
    for index in range(3, len(lines), 29):
        t, event = lines[index]
        rewritten(files, lambda _, at=index, to=(t + 1e-6, event): [*lines[:at], to, *lines[at + 1 :]])
        (leg,) = notarised(files, read_run(files), register).legs
        assert leg.why
        assert leg.line <= index, f"line {index + 1} was changed"


def signed_again(
    files: RunFiles, office: Office, leg: int, change: Callable[[list[NotaryAnswer]], list[NotaryAnswer]]
) -> None:
    """Other answers, each with the right signature, as of a notary that is wrong."""
    _, sign = signer(office.folder / "key")
    previous, lines = "", list[str]()
    for number, answer in enumerate(change(list(answers(files.notary_answers(leg))))):
        told = replace(answer, count=number, previous=answer.previous and previous)
        previous = sign(told.content)
        lines.append(replace(told, signature=previous).line())
    files.notary_answers(leg).write_text("".join(lines))


def changed(place: int, **fields: Any) -> Callable[[list[NotaryAnswer]], list[NotaryAnswer]]:
    return lambda told: [*told[:place], replace(told[place], **fields), *told[place + 1 :]]


def test_a_leg_holds_only_its_own_lines_and_none_behind_one_that_is_not_held(
    office: Office, tmp_path: Path
) -> None:
    """The second leg is notarised to its end, but begins with what the first one left."""
    files = notarise(office, tmp_path / "run", TWO_LEGS)
    end = list(answers(files.notary_answers(1)))[-1]
    kept = files.notary_answers(0).read_text()
    later: dict[str, Any] = {"head": end.head, "milliseconds": end.milliseconds}
    signed_again(files, office, 0, lambda told: [*told, replace(told[-1], **later)])
    until = rf"leg 0: lines up to {end.head.lines} were signed, and the leg ends before; "
    assert re.match(UNTIL + until, seen(files, office))
    files.notary_answers(0).write_text("".join(kept.splitlines(keepends=True)[:3]))
    found = seen(files, office)
    assert re.match(UNTIL + r"leg 0: \d of 68 s of the span are covered; leg 0: nonce", found)
    assert "leg 1: " not in found


@dataclass
class Relay:
    """Two notaries, of which the second sees the second leg, by a clock that is so far behind."""

    first: Office
    second: Office
    behind: float
    now: float = 0.0

    def look(self, directory: Path) -> list[str]:
        self.first.now, self.second.now = self.now, self.now - self.behind
        files = RunFiles(directory)
        if not files.notary_request(1).exists():
            return self.first.look(directory)
        files.notary_request(0).unlink(missing_ok=True)  # else the second one would answer it, too
        return self.second.look(directory)


@pytest.mark.parametrize(
    ("behind", "expected"),
    [
        (3560.0, "notarised by HPC list and Auditor; leg 0: "),
        (3599.0, "until line .*: leg 1: its nonce is older than the last answer to the leg before it; "),
    ],
)
def test_legs_of_two_notaries_come_one_after_the_other(
    behind: float, expected: str, office: Office, tmp_path: Path
) -> None:
    """The first leg can be made up in a second, and be signed at its pace while the second one is, too."""
    other = Office(tmp_path / "other")
    relay: Any = Relay(office, other, behind)
    files = notarise(relay, tmp_path / "run", TWO_LEGS)
    register: Register = {office.public: "HPC list", other.public: "Auditor"}
    assert re.search(expected, notarised(files, read_run(files), register).text)


def test_a_notary_that_is_not_on_the_list_counts_for_nothing(office: Office, tmp_path: Path) -> None:
    """Anybody can make a key; what he signed must not be taken for a listed notary's either."""
    own = Office(tmp_path / "own")
    files = notarise(own, tmp_path / "run", RUN)
    assert seen(files, office).startswith(
        f"not notarised: notary/0.answers.jsonl, line 1: its key {own.public[:16]}"
    )
    path = files.notary_answers(0)
    path.write_text(path.read_text().replace(own.public, office.public))
    assert "line 1: the signature is not that of HPC list" in seen(files, office)


def test_a_run_that_is_copied_after_its_nonce_is_notarised_once(office: Office, tmp_path: Path) -> None:
    """Two endings of one beginning cannot both have answers: the notary's record is by run and leg."""
    files = notarise(office, tmp_path / "runs" / "run", RUN[:60])
    copytree(files.directory, tmp_path / "elsewhere" / "run")
    before = files.notary_answers(0).read_text()
    copy = RunFiles(tmp_path / "elsewhere" / "run")
    copy.notary_answers(0).unlink()
    office.look(copy.directory)
    assert copy.notary_answers(0).read_text() == before


@pytest.mark.usefixtures("undrawn")
def test_a_list_that_demands_a_notary_refuses_what_was_made_offline(office: Office, tmp_path: Path) -> None:
    run = notarise(office, tmp_path / "run", told(Scene(max_trials=2)))
    offline = write_run(tmp_path / "offline", told(Scene(max_trials=3)))
    packages = [make(tmp_path / f"{files.directory.name}.tar.gz", files) for files in (run, offline)]
    register: Register = {office.public: "HPC list"}
    labels = {
        is_required: ranked(*packages, notaries=Notaries(register, is_required))[0]
        for is_required in (False, True)
    }
    assert [entry.notary for entry in labels[True].entries] == ["notarised by HPC list"]
    assert {entry.notary for entry in labels[False].entries} == {"notarised by HPC list", "not notarised"}
    (refused,) = labels[True].refused
    assert (refused.package, refused.reasons) == (
        "offline.tar.gz",
        ["runs/offline: not notarised: no notary gave it a nonce"],
    )


def test_a_package_without_names_has_what_the_notary_signed(office: Office, tmp_path: Path) -> None:
    (_, opened), *rest = RUN
    assert isinstance(opened, Opened)
    hiding = [(0.0, replace(opened, salt_sha256="ab" * 32)), *rest]
    files = notarise(office, tmp_path / "run", hiding)
    path = files.notary_answers(0)
    path.with_name("1.answers.jsonl").write_text("node17\n")
    path.with_name("x.answers.jsonl").symlink_to("/etc/passwd")
    packed = contents(make(tmp_path / "run.tar.gz", files, redact=True))
    held = {name: data for name, data in packed.items() if "/notary/" in name}
    assert held == {"runs/simulated/notary/0.answers.jsonl": path.read_bytes()}


ASKED = JournalHead(2, 4000, "ab" * 32)
Attack = Callable[[RunFiles, Path], object]


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


def answered(files: RunFiles) -> list[NotaryAnswer]:
    return list(answers(files.notary_answers(0)))


def test_what_is_new_is_signed_once_in_order_and_with_the_notarys_own_time(
    office: Office, files: RunFiles
) -> None:
    for lines, seconds in ((2, 0), (2, 1), (10, 30), (10, 31), (9, 40), (20, 60)):
        office.now = NOON + seconds
        if lines != 2:
            ask(files, later(lines))
        office.look(files.directory.parent)
    found = answered(files)
    assert [(a.head.lines, a.milliseconds - 1000 * int(NOON), a.count) for a in found] == [
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
    assert [answer.count for answer in answered(files)] == [0, 1, 2]


def test_a_run_cannot_make_it_forget_or_sign_another_beginning(office: Office, files: RunFiles) -> None:
    office.look(files.directory.parent)
    (first,) = answered(files)
    rmtree(files.notary_directory)
    files.notary_directory.mkdir()
    ask(files, later(10))
    office.look(files.directory.parent)
    assert answered(files)[0] == first
    office.now += 10
    other = JournalHead(2, 4000, "cd" * 32)
    ask(files, other, other)
    assert office.look(files.directory.parent) == [f"{files.directory}: nonce 2 was given"]
    second = answered(files)[0]
    assert second.nonce != first.nonce
    assert (office.folder / "record" / "nonces.txt").read_text().splitlines() == [
        f"1 2026-05-04 12:00:00 UTC {first.nonce} {files.directory}",
        f"2 2026-05-04 12:00:10 UTC {second.nonce} {files.directory}",
    ]


def test_one_run_cannot_fill_the_record(office: Office, files: RunFiles) -> None:
    """A leg that begins again and again gets a nonce every five seconds, and each of them in its turn."""
    notary = office.open()
    for second in range(11):
        office.now, asked = NOON + second, JournalHead(2, 4000, f"{second:064x}")
        ask(files, asked, asked)
        list(notary.look(files.directory.parent))
    notary.close()
    assert len(list((office.folder / "record").glob("*.jsonl"))) == 3
    assert answered(files)[0].nonces == 3


def test_a_clock_that_went_back_signs_nothing_until_it_has_caught_up(office: Office, files: RunFiles) -> None:
    office.look(files.directory.parent)
    ask(files, later(10))
    office.now -= 100
    said = office.look(files.directory.parent)
    why = "the clock of this host went back; nothing is signed until it has caught up"
    assert said == [f"{files.directory}: 0.request.json: {why}"]
    office.now += 101
    assert office.look(files.directory.parent) == []
    assert [answer.count for answer in answered(files)] == [0, 1]


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


@pytest.fixture
def heard(folders: Iterator[Path]) -> Callable[[Attack], list[str]]:
    """What the notary says of a folder in which its owner has put something. Whatever it is, another run is
    served, and no other file is touched."""

    def served(attack: Attack) -> list[str]:
        office = Office((runs := next(folders)) / "office")
        honest, files = (RunFiles(runs / "runs" / name) for name in ("a-run", "run"))
        for run in (honest, files):
            run.notary_directory.mkdir(parents=True)
            ask(run, ASKED)
        (victim := runs / "victim").write_text("precious")
        attack(files, victim)
        found = [text.removeprefix(f"{runs}/runs/") for text in office.look(runs / "runs")]
        found = [text for text in found if not text.startswith("a-run")]
        assert victim.read_text() == "precious"
        assert len(answered(honest)) == 1
        return [re.sub("Not a directory|Too many [a-z ]+", "…", text) for text in found]  # by system

    return served


def test_nothing_in_a_folder_is_followed_or_written_into(
    heard: Callable[[Attack], list[str]], comes_to_what_was_read: ComesTo
) -> None:
    comes_to_what_was_read("hostile_folders.txt", {**globals(), "heard": heard})


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_a_file_of_another_user_is_not_read(heard: Callable[[Attack], list[str]]) -> None:
    (text,) = heard(lambda files, victim: os.chown(files.notary_request(0), 12345, 12345))
    assert "0.request.json is not a file of the run's owner" in text
