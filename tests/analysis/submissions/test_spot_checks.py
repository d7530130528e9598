"""Spot checks: honest runs keep what the signatures choose, and what a forger can do about it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from aiperf.journal import spot_checks
from aiperf.journal.events import Dispatched, Ended
from aiperf.journal.notary import JournalHead, NotaryAnswer
from aiperf.journal.run_files import RunFiles
from aiperf.journal.spot_checks import Draw, Ending, chosen, chosen_in, drawn, endings_by_leg
from aiperf.run.notarisation import HELD_SECONDS, MOST_WAITING, SpotChecks
from aiperf.wire.reports import NOTHING_KEPT
from aiperf.wire.trial import State
from analysis.readings.judgement import read_run
from analysis.submissions.notarisation import notarised
from analysis.submissions.verify import checked
from tests.aiperf.rules.forged import first as first_line
from tests.aiperf.rules.forged import one
from tests.analysis.packages import contents, make, packed, resealed
from tests.analysis.submissions.notarising import Office, content, notarise, rewritten, with_weights
from tests.journals import Scene, Timed, replayed, told, within
from tests.tables import ComesTo

RUN = with_weights(told(Scene(minutes=2.0, groups=1, epochs=10, out_of_memory=frozenset({2}))))
TWO_LEGS = with_weights(told(Scene(minutes=2.0, groups=1, epochs=10, killed_at=70.0)))
FEW = with_weights(told(Scene(groups=1, max_trials=3)))
LONG = with_weights(told(Scene(minutes=6.0, groups=1, epochs=60)))


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path / "office")


def seen(files: RunFiles, office: Office) -> str:
    """What a validator prints, from the reason why a run is not notarised to its end, without the times."""
    label, *rest = notarised(files, read_run(files), {office.public: "HPC list"}).text.split("; ")
    return "; ".join([label, *(each for each in rest if each.startswith("spot"))])


WHOLE = "notarised by HPC list"


def test_weights_that_nobody_could_keep_so_long_are_skipped_and_not_missing(
    office: Office, tmp_path: Path
) -> None:
    """The notary was away from the first trial to the end."""
    files = notarise(office, tmp_path / "run", LONG, is_there=lambda t: t < 12 or t > 371)
    for trial in files.spot_checked():
        files.spot_weights(trial).unlink()
    assert seen(files, office) == f"{WHOLE}; spot checks: 0 of 8 there, 8 skipped (late)"


def test_what_failed_or_kept_nothing_is_never_chosen() -> None:
    """Trial 2 ran out of memory and was repeated; the last one was stopped before its first validation."""
    ends = [event.finished for _, event in RUN if isinstance(event, Ended)]
    assert [end.state for end in ends if end.trial == 2] == [State.FAILED, State.COMPLETE]
    (found,) = endings_by_leg(replayed(RUN)).values()
    assert [each.trial for each in found] == [end.trial for end in ends if end.state is not State.FAILED]
    last = next(event.finished for _, event in reversed(TWO_LEGS) if isinstance(event, Ended))
    assert (last.state, last.kept) == (State.STOPPED, NOTHING_KEPT)
    assert last.trial not in [each.trial for each in endings_by_leg(replayed(TWO_LEGS))[1]]


def answers_at(*heads: tuple[int, int]) -> list[NotaryAnswer]:
    """Answers to heads of so many lines, after so many milliseconds; each signature is its number."""
    hashes = "ab" * 32
    return [
        NotaryAnswer(hashes, hashes, 1, JournalHead(line, line, hashes), later, count, "", f"{count}" * 128)
        for count, (line, later) in enumerate(heads)
    ]


def test_the_first_signature_after_a_trials_end_draws_its_number() -> None:
    """Within two minutes of the signature before it."""
    answers = answers_at((2, 0), (10, 120_000), (12, 240_001), (20, 240_001))
    endings = [Ending(trial, line, 1, "") for trial, line in [(7, 5), (3, 10), (4, 11), (5, 13), (6, 21)]]
    numbers = [
        sha256(f"{sign * 128} {trial}".encode()).hexdigest() for sign, trial in ("17", "13", "24", "35")
    ]
    assert list(drawn(endings, answers)) == [
        Draw(ending, number, is_late)
        for ending, number, is_late in zip(endings, numbers, (False, False, True, False))
    ]
    assert not list(drawn(endings, answers[:1]))


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [([1] * 20, 8), ([1 << 27, 1 << 27, 1], 2), ([1, 1 << 28, 1], 1), ([1 << 28, 1], 1), ([], 0)],
)
def test_the_checked_networks_are_bounded_in_number_and_size(sizes: list[int], expected: int) -> None:
    draws = [
        Draw(Ending(number, number, size, ""), f"{number:02}") for number, size in enumerate(sizes, start=10)
    ]
    found = chosen(reversed(draws))
    assert found == draws[:expected]
    kept = list[Draw]()
    for each in draws[::2] + draws[1::2]:  # one by one, and the others forgotten
        kept = chosen([*kept, each])
    assert kept == found


def test_a_network_above_the_limit_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {event.trial.number: event.parameters for _, event in RUN if isinstance(event, Dispatched)}
    limit = sorted(sizes.values())[len(sizes) // 2]
    monkeypatch.setattr(spot_checks, "MOST_PARAMETERS", limit)
    found = [each.trial for each in endings_by_leg(replayed(RUN))[0]]
    assert found
    assert max(sizes[trial] for trial in found) <= limit < max(sizes.values())


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Office, RunFiles]:
    folder = tmp_path_factory.mktemp("notary")
    office = Office(folder / "office")
    return office, notarise(office, folder / "run", RUN)


def first(files: RunFiles) -> Ending:
    """The chosen trial that ended first."""
    return min((each.ending for each in chosen_in(files, read_run(files))), key=lambda ending: ending.line)


def missing(files: RunFiles) -> None:
    files.spot_weights(first(files).trial).unlink()


def replaced(files: RunFiles) -> None:
    files.spot_weights(first(files).trial).write_bytes(content(999))


def swapped(files: RunFiles) -> None:
    """Two chosen trials have each other's weights."""
    one, other, *_ = files.spot_checked()
    files.spot_weights(one).write_bytes(content(other))
    files.spot_weights(other).write_bytes(content(one))


def one_too_many(files: RunFiles) -> None:
    trial = next(trial for trial in read_run(files).trials if trial not in files.spot_checked())
    files.spot_weights(trial).write_bytes(content(trial))


def changed(change: Callable[[Ended], Ended]) -> Callable[[RunFiles], None]:
    """The end of the first trial is another, and the chain is computed again."""
    assert one(Ended, RUN, 0).finished.weights
    return lambda files: rewritten(files, first_line(Ended, change, 0))


def left_out(files: RunFiles) -> None:
    """The end of the first trial, likewise."""
    rewritten(files, lambda lines: [(t, event) for t, event in lines if event is not one(Ended, lines, 0)])


def without_answers(files: RunFiles) -> None:
    """Those from the one that chose on, so that nothing is chosen."""
    path, line = files.notary_answers(0), first(files).line
    answers = path.read_text().splitlines(keepends=True)
    before = (each for each in answers if int(re.findall(r'"lines": (\d+)', each)[0]) < line)
    path.write_text("".join(before))


def drawn_again(files: RunFiles) -> None:
    """The signature that chose is another, which chooses others."""
    path, line = files.notary_answers(0), first(files).line
    answers = path.read_text().splitlines(keepends=True)
    at = next(i for i, each in enumerate(answers) if int(re.findall(r'"lines": (\d+)', each)[0]) >= line)
    answers[at] = re.sub(r'"signature": "..', '"signature": "00', answers[at])
    path.write_text("".join(answers))


def test_an_honest_run_has_the_weights_that_the_signatures_choose_and_none_is_exchanged_afterwards(
    signed: tuple[Office, RunFiles], folders: Iterator[Path], comes_to_what_was_read: ComesTo
) -> None:
    """The run decides answer by answer, a validator at once."""
    office, run = signed

    def honest(run: list[Timed], **how: Any) -> str:
        notary = Office((folder := next(folders)) / "office")
        files = notarise(notary, folder / "run", run, **how)
        assert not list(files.weights_directory.glob("[0-9].safetensors")), "the search has dropped them"
        wanted = {each.ending.trial for each in chosen_in(files, read_run(files)) if not each.is_late}
        assert wanted <= set(files.spot_checked())
        found = seen(files, notary)
        assert len(files.spot_checked()) <= 8 or " until line" in found
        return re.sub(" until line [^;]*", " until a line", found)

    def forged(forge: Callable[[RunFiles], None]) -> str:
        files = RunFiles(copytree(run.directory, next(folders)))
        forge(files)
        return seen(files, office)

    def held(forge: Callable[[RunFiles], None]) -> bool:
        """To the end."""
        return forged(forge).partition(";")[0] == WHOLE

    def cut(forge: Callable[[RunFiles], None]) -> bool:
        """Nothing that was signed after the change chooses anything."""
        return "spot checks" not in forged(forge) and not held(forge)

    names = {"honest": honest, "forged": forged, "held": held, "cut": cut, "State": State, "within": within}
    comes_to_what_was_read("spot_checks.txt", {**globals(), **names})


def test_a_run_that_records_no_hashes_of_weights_escapes_nothing(office: Office, tmp_path: Path) -> None:
    files = notarise(office, tmp_path / "run", told(Scene(groups=1, max_trials=3)))
    assert seen(files, office) == f"{WHOLE}; spot checks: 0 of 3 there, 3 missing"


def test_a_package_has_the_chosen_weights_and_others_make_it_invalid(
    signed: tuple[Office, RunFiles], tmp_path: Path
) -> None:
    office, run = signed
    copytree(run.directory, tmp_path / "run")
    files = RunFiles(tmp_path / "run")
    names = {f"runs/run/weights/{trial}.spot.safetensors" for trial in files.spot_checked()}
    one_too_many(files)  # as one that still waited for an answer at the end
    held = contents(make(tmp_path / "run.tar.gz", files))
    assert {name for name in held if "/weights/" in name} == names
    other = next(trial for trial in read_run(run).trials if trial not in run.spot_checked())
    more = f"runs/run/weights/{other}.spot.safetensors"
    forged = packed(tmp_path / "more.tar.gz", resealed({**held, more: content(other)}))
    with checked(forged) as submission:
        (one,) = submission.runs
        (reason,) = one.reasons
        assert (reason.where, reason.text[-42:]) == (more, "neither tested nor chosen for a spot check")
        text = notarised(one.judged.files, one.judged.replay, {office.public: "HPC list"}).text
        assert text.endswith("; spot checks: 8 of 8 there")


class Kept:
    """A leg that keeps weights."""

    def __init__(self, directory: Path) -> None:
        self.files = RunFiles(directory)
        self.files.weights_directory.mkdir()
        self.spots = SpotChecks(self.files, 0)

    def end(self, trial: int, now: float = 0.0) -> None:
        self.files.weights(trial).write_bytes(content(trial))
        self.spots.ended(Ending(trial, 10 + trial, 1, ""), now)
        self.files.weights(trial).unlink()


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


def test_weights_wait_three_minutes_and_not_longer(kept: Kept) -> None:
    kept.end(1, 0.0)
    kept.end(2, 100.0)
    kept.spots.settle(HELD_SECONDS)
    assert kept.files.spot_checked() == [1, 2]
    kept.spots.settle(HELD_SECONDS + 1)
    assert kept.files.spot_checked() == [2]
    assert kept.spots.failure == ""


def test_each_answer_drops_the_weights_that_it_does_not_choose(kept: Kept) -> None:
    """Nine trials have ended, of which the first answer covers eight and the second one more."""
    for trial in range(1, 10):
        kept.end(trial)
    answers = answers_at((2, 0), (18, 0), (19, 0))
    kept.files.notary_directory.mkdir()
    for known, waits in ((1, True), (2, True), (3, False)):
        kept.files.notary_answers(0).write_text("".join(each.line() for each in answers[:known]))
        kept.spots.settle(1.0)
        assert kept.spots.is_waiting is waits
        assert len(kept.files.spot_checked()) == (8 if known == 3 else 9)
    draws = [*drawn([Ending(trial, 10 + trial, 1, "") for trial in range(1, 10)], answers)]
    assert kept.files.spot_checked() == sorted(each.ending.trial for each in chosen(draws))


def test_a_bounded_number_of_weights_waits(kept: Kept) -> None:
    for trial in range(MOST_WAITING + 3):
        kept.end(trial)
    assert len(kept.files.spot_checked()) == MOST_WAITING
    assert kept.spots.failure == "512 trials wait for the notary"


def test_without_hard_links_nothing_is_kept_and_that_is_reported(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(source: Path, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    kept.end(1)
    assert (kept.files.spot_checked(), kept.spots.is_waiting) == ([], False)
    assert kept.spots.failure == "Operation not permitted"


def test_a_leg_removes_what_the_one_before_left_without_an_answer(kept: Kept) -> None:
    kept.end(1)
    kept.end(2)
    (kept.files.weights_directory / "notes.spot.safetensors").touch()
    SpotChecks(kept.files, 1, [Draw(Ending(2, 12, 1, ""), "00")])
    assert kept.files.spot_checked() == [2]
    assert (kept.files.weights_directory / "notes.spot.safetensors").exists()


@pytest.mark.parametrize("noise", ["", "no answer\n", "7" * 100_000])
def test_a_file_that_is_not_a_notarys_chooses_nothing(noise: str, kept: Kept) -> None:
    kept.end(1)
    kept.files.notary_directory.mkdir()
    kept.files.notary_answers(0).write_text(noise)
    kept.spots.settle(1.0)
    assert (kept.files.spot_checked(), kept.spots.is_waiting) == ([1], True)
