"""The ranks' own logs next to the journal: what they prove, what they do not, and what no rank writes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.journal.events import Closed, Dispatched, Ended, GroupLost, LegBegan, LegEnded, RankReady, Stepped
from aiperf.journal.run_files import RunFiles
from aiperf.rules.rule import Outcome
from tests.aiperf.rules.forged import LOST, TIMED, each, found, inserted, places
from tests.journals import Scene, Timed, replayed, told, within, write_witnesses
from tests.tables import ComesTo

GROUP = told(Scene(minutes=0.2, groups=1, ranks_of_a_group=2))
KILLED = told(Scene(minutes=0.4, killed_at=20.0))
SECOND_LEG = places(KILLED, LegBegan)[1]
HONEST = [GROUP, KILLED, told(Scene(minutes=0.3, lost=((1, 16.0), (0, 20.0))))]


class Logged:
    """A run with the logs of its ranks, and with the hash over them in each validation."""

    def __init__(self, directory: Path, timed: list[Timed]) -> None:
        self.files = RunFiles(directory)
        self.timed = write_witnesses(self.files, timed)
        self.unhashed = each(Closed, lambda event: replace(event, logs=""))(timed)

    def log(self, rank: int) -> Path:
        return self.files.witness(f"node{rank}", rank)

    def edit(self, rank: int, change: Callable[[str], str]) -> None:
        self.log(rank).write_text(change(self.log(rank).read_text()))

    def edit_lines(self, rank: int, change: Callable[[list[str]], list[str]]) -> None:
        self.edit(rank, lambda text: "".join(change(text.splitlines(keepends=True))))

    def says(self, timed: list[Timed] | None = None) -> tuple[Outcome, str]:
        """What the rule `witnesses` says of the run, or of other lines with the same logs."""
        finding = found(timed or self.timed, "witnesses", self.files)
        return finding.outcome, finding.text


@pytest.fixture
def run(tmp_path: Path) -> Logged:
    return Logged(tmp_path, TIMED)


@pytest.fixture
def group(tmp_path: Path) -> Logged:
    """A run of one group of two ranks, with its logs."""
    return Logged(tmp_path, GROUP)


@pytest.mark.parametrize("timed", HONEST, ids=["group", "killed", "lost"])
def test_the_hashes_of_an_honest_run_agree(tmp_path: Path, timed: list[Timed]) -> None:
    run = Logged(tmp_path, timed)
    agree = "2 rank logs agree with the journal"
    assert run.says() == (Outcome.PASSED, f"{agree} and with the hash of each validation; none missing")
    assert run.says(run.unhashed) == (Outcome.PASSED, f"{agree}; none missing")
    run.log(2).unlink()
    outcome, text = run.says(run.unhashed)
    assert outcome is Outcome.UNKNOWN
    assert text == "1 rank log agrees with the journal; missing or incomplete: rank 2 on node2"


def test_what_was_written_after_the_last_validation_is_no_contradiction(group: Logged) -> None:
    assert group.says(group.timed[: places(GROUP, Closed)[-1] + 1])[0] is Outcome.PASSED
    group.edit(2, lambda text: text + '{"trial": 9')  # a torn end
    assert group.says()[0] is Outcome.PASSED


def test_steps_that_were_written_but_never_reported_are_no_contradiction(run: Logged) -> None:
    """The master was killed: the ranks were some blocks ahead of the journal."""
    last = places(TIMED, Stepped)[-1]
    write_witnesses(run.files, TIMED[: last + 1])
    assert run.says(TIMED[:last])[0] is Outcome.PASSED


def test_a_step_that_a_rank_did_not_write_is_named(run: Logged) -> None:
    run.edit_lines(1, lambda lines: lines[1:])
    outcome, text = run.says(run.unhashed)
    assert outcome is Outcome.FAILED
    assert text.split("; ") == [
        "rank 1 wrote 25 steps of trial 0, attempt 1, segment 0",
        "the journal has 40",
        "the ranks wrote 1250 images of trial 0, attempt 1, segment 0",
        "the journal has 2000",
    ]


def test_the_ranks_of_a_group_must_add_up_to_it_when_all_their_logs_are_at_hand(tmp_path: Path) -> None:
    run = Logged(tmp_path, told(Scene(minutes=0.1, groups=1, ranks_of_a_group=3)))
    run.edit(2, lambda text: text.replace('"examples": 250', '"examples": 251', 1))
    text = "the ranks wrote 2001 images of trial 0, attempt 1, segment 0; the journal has 2000"
    assert run.says(run.unhashed) == (Outcome.FAILED, text)
    run.log(3).unlink()
    assert run.says(run.unhashed)[0] is Outcome.UNKNOWN
    run.edit(2, lambda text: text.replace('"steps": 15', '"steps": 16', 1))
    text = "rank 2 wrote 41 steps of trial 0, attempt 1, segment 0; the journal has 40"
    assert run.says(run.unhashed) == (Outcome.FAILED, text)


@pytest.mark.parametrize("rank", [1, 2])
def test_one_byte_that_was_changed_in_any_log_shows(group: Logged, rank: int) -> None:
    """Images of two ranks that add up to the same as before are not seen by any other rule."""
    group.edit(rank, lambda text: text.replace('"examples"', '"examples" ', 1))
    outcome, text = group.says()
    assert outcome is Outcome.FAILED
    assert "the logs were changed after trial 0, attempt 1, segment 0" in text
    assert group.says(group.unhashed)[0] is Outcome.PASSED, "as in journals without hashes"


def test_hashes_that_were_removed_are_missed(group: Logged) -> None:
    cut = places(GROUP, Closed)[0] + 1
    outcome, text = group.says([*group.timed[:cut], *group.unhashed[cut:]])
    assert outcome is Outcome.UNKNOWN
    assert " and with the hash of 1 of " in text


def test_answers_that_two_ranks_exchanged_show(group: Logged) -> None:
    first, second = (group.log(rank).read_text() for rank in (1, 2))
    group.edit(1, lambda _: second)
    group.edit(2, lambda _: first)
    assert "their hash is not the recorded one" in group.says()[1]


def test_the_last_lines_of_a_host_that_died_may_be_lost_and_no_others(tmp_path: Path) -> None:
    """It had not put them on its disk; after a resume the rank appends to what is left."""
    run = Logged(tmp_path, KILLED)
    whole = run.log(1).read_text()
    write_witnesses(run.files, KILLED[:SECOND_LEG])
    before = run.log(1).read_text()
    write_witnesses(run.files, KILLED)
    running = [attempt.trial.number for attempt in replayed(KILLED[:SECOND_LEG]).running.values()]
    (cut,) = [at for number in running if (at := before.find(f'{{"trial": {number}, ')) > 0]
    run.log(1).write_text(before[:cut] + whole[len(before) :])
    outcome, text = run.says(run.unhashed)
    assert (outcome, text.split("; ")[1]) == (Outcome.UNKNOWN, "missing or incomplete: rank 1 on node1")
    run.log(1).write_text("".join(before.splitlines(keepends=True)[3:]) + whole[len(before) :])
    assert run.says(run.unhashed)[0] is Outcome.FAILED


@pytest.mark.parametrize("lost", [True, False])
def test_a_host_may_also_die_between_two_trials(tmp_path: Path, lost: bool) -> None:
    """Its leg died with it, or its group was lost, after a trial had ended and before the next began."""
    run = Logged(tmp_path, told(Scene(minutes=0.2, groups=1)))
    place = places(run.timed, Ended)[1] + 1
    killed, (t, follows) = run.timed[:place], run.timed[place]
    write_witnesses(run.files, killed)
    run.edit_lines(1, lambda lines: lines[:-3])
    assert isinstance(follows, Dispatched)
    if lost:
        killed += [(t, follows), (t, GroupLost(0, "the host died")), (t, LegEnded("error: x", t))]
    assert run.says(killed)[0] is Outcome.UNKNOWN
    assert run.says([*run.timed[: place + 1], (t, LegEnded("interrupted", t))])[0] is Outcome.FAILED


def test_a_log_that_is_silent_on_a_whole_leg_was_lost_in_between(tmp_path: Path) -> None:
    """As where a host was cleaned after the job, and the run was resumed there."""
    run = Logged(tmp_path, KILLED)
    write_witnesses(run.files, KILLED[:SECOND_LEG])
    before = len(run.log(1).read_text())
    write_witnesses(run.files, KILLED)
    run.edit(1, lambda text: text[before:])
    assert run.says(run.unhashed)[0] is Outcome.UNKNOWN
    run.edit(1, lambda text: "")
    assert run.says(run.unhashed)[0] is Outcome.UNKNOWN


def wider(timed: list[Timed]) -> list[Timed]:
    """A group of two ranks, said to be one of four."""
    last = places(timed, RankReady)[-1]
    ready = [event for _, event in timed if isinstance(event, RankReady)]
    more = [within(e, rank=e.ready.rank + 2, host=f"node{e.ready.rank + 2}") for e in ready]
    four = each(LegBegan, lambda event: replace(event, groups=((1, 2, 3, 4),)))
    return four(inserted(timed, last + 1, *more))


def test_ranks_that_never_were_have_no_log_and_leave_too_much_to_the_others(group: Logged) -> None:
    text = group.says(wider(group.timed))[1]
    for rank in (1, 2):
        assert (
            f"rank {rank} wrote 1000 images of trial 0, attempt 1, segment 0, which has 40 steps of 50"
            in text
        )
    for rank in (3, 4):  # copies of those of real ranks have too many images
        group.log(rank).write_bytes(group.log(rank - 2).read_bytes())
    outcome, text = group.says(wider(group.timed))
    assert outcome is Outcome.FAILED
    assert "shared by 4 ranks" in text


@pytest.mark.parametrize(
    ("name", "says"), [("examples", "rank 2 wrote 0 images"), ("of", "rank 2 validated 0")]
)
def test_no_rank_of_a_group_leaves_its_share_to_another(group: Logged, name: str, says: str) -> None:
    """As one that never worked: the sums over the group are right."""

    def moved(text: str, factor: int) -> str:
        return re.sub(rf'"{name}": (\d+)', lambda found: f'"{name}": {int(found[1]) * factor}', text)

    group.edit(1, lambda text: moved(text, 2))
    group.edit(2, lambda text: moved(text, 0).replace('"of": 0, "correct": 200', '"of": 0, "correct": 0'))
    outcome, text = group.says(group.unhashed)
    assert outcome is Outcome.FAILED
    assert says in text


def test_what_no_rank_writes_is_damage(run: Logged, comes_to_what_was_read: ComesTo) -> None:
    whole = run.log(1).read_text()

    def damaged(before: str, after: str) -> str:
        run.log(1).write_text(whole.replace(before, after, 1))
        outcome, text = run.says()
        assert outcome is Outcome.FAILED
        return text.replace(f"{run.files.directory}/", "")

    comes_to_what_was_read("damaged_logs.txt", {"damaged": damaged})
    assert "line 1 of " in damaged('"steps": 15', '"steps": ' + "[" * 100_000)


def test_a_rank_does_one_thing_after_the_other(run: Logged) -> None:
    lines = run.log(1).read_text().splitlines(keepends=True)
    answers = next(place for place, line in enumerate(lines) if "correct" in line)
    run.edit_lines(1, lambda lines: [*lines, lines[0]])
    assert "it goes back to trial 0, attempt 1" in run.says()[1]
    run.edit_lines(1, lambda _: [*lines[: answers + 1], *lines[answers:]])
    assert "it is of segment 0, but 1 is open" in run.says()[1], "a repeated validation"
    run.edit_lines(1, lambda _: [*lines[:answers], lines[answers + 1], lines[answers]])
    assert "it is of segment 1, but 0 is open" in run.says()[1]


def test_what_lies_where_logs_should_is_not_at_hand(run: Logged) -> None:
    """Hosts are named by the journal, which is anybody's."""
    for rank in (1, 2):
        run.log(rank).unlink()
        run.log(rank).mkdir()
    assert run.says()[0] is Outcome.UNKNOWN
    assert run.says(each(RankReady, lambda e: within(e, host="h" * 5000))(TIMED))[0] is Outcome.UNKNOWN


def test_a_rank_that_is_left_out_of_the_journal_wrote_its_own_log(tmp_path: Path) -> None:
    """Half of the devices are said to have done all the work."""
    run = Logged(tmp_path, told(Scene(minutes=0.25, ranks_of_a_group=2)))
    text = run.says(TIMED)[1]
    assert "logs/node3.rank3.steps.jsonl has the work of a rank that is not in the journal" in text
    for log in run.files.logs_directory.iterdir():
        log.rename(log.with_name(f"other{log.name}"))
    assert "a rank that is not in the journal" in run.says(TIMED)[1]


def test_the_rank_of_a_run_that_did_nothing_is_no_stranger(run: Logged) -> None:
    run.files.witness("elsewhere", 9).touch()
    assert run.says()[0] is Outcome.PASSED


def test_a_validation_of_which_the_ranks_wrote_nothing(run: Logged) -> None:
    def without_the_last(lines: list[str]) -> list[str]:
        last = max(place for place, line in enumerate(lines) if "correct" in line)
        return lines[:last] + lines[last + 1 :]

    for rank in (1, 2):
        run.edit_lines(rank, without_the_last)
    assert "the ranks have 0 of 0 wrong after trial " in run.says(run.unhashed)[1]


def test_a_group_that_was_given_up_may_have_worked_on_unheard(tmp_path: Path) -> None:
    run = Logged(tmp_path, LOST)
    lost = next(a for a in replayed(LOST).attempts if a.ended is None and a.began is not None)
    (rank, *_), done = lost.leg.began.groups[lost.group], len(lost.validations)
    head = f'{{"trial": {lost.trial.number}, "attempt": {lost.number}, "segment": '

    def worked_on(lines: list[str]) -> list[str]:
        last = max(place for place, line in enumerate(lines) if line.startswith(head))
        steps = [f'{head}{done + n}, "steps": 15, "examples": 750}}\n' for n in range(3)]
        answers = [f'{head}{done + n}, "of": 400, "correct": 200}}\n' for n in range(2)]
        more = [steps[0], answers[0], steps[1], answers[1], steps[2]]
        return [*lines[: last + 1], *more, *lines[last + 1 :]]

    run.edit_lines(rank, worked_on)
    assert run.says(run.unhashed)[0] is Outcome.PASSED
