"""The ranks' own logs beside the journal: what they prove, what they do not, and what no rank writes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.files import RunFiles
from aiperf.journal.events import Closed, Dispatched, Ended, GroupLost, LegBegan, LegEnded, RankReady
from aiperf.rules.rule import Outcome
from aiperf.rules.verdict import judge
from tests.aiperf.rules.test_falsify_course import replay_of
from tests.journals import Scene, Timed, told, write_run, write_witnesses

GROUP = told(Scene(minutes=0.2, groups=1, ranks_of_a_group=2))
HONEST = [
    Scene(minutes=0.2, groups=1, ranks_of_a_group=2),
    Scene(minutes=0.3, lost=((1, 16.0), (0, 20.0))),
    Scene(minutes=0.4, killed_at=20.0),
    Scene(minutes=0.2, out_of_memory=frozenset({1, 4})),
]


def hashed_run(directory: Path, timed: list[Timed]) -> tuple[RunFiles, list[Timed]]:
    """With the hash over the logs in each validation."""
    files = write_run(directory / "run", timed)
    return files, write_witnesses(files, timed)


def witnesses(timed: list[Timed], files: RunFiles) -> tuple[Outcome, str]:
    (found,) = [each for each in judge(replay_of(timed), files).findings if each.rule == "witnesses"]
    return found.outcome, found.text


@pytest.mark.parametrize("scene", HONEST)
def test_the_hashes_of_an_honest_run_agree(tmp_path: Path, scene: Scene) -> None:
    files, timed = hashed_run(tmp_path, told(scene))
    assert all(event.logs for _, event in timed if isinstance(event, Closed))
    assert witnesses(timed, files) == (
        Outcome.PASSED,
        "2 rank logs agree with the journal and with the hash of each validation; none missing",
    )


def test_what_was_written_after_the_last_validation_is_no_contradiction(tmp_path: Path) -> None:
    files, timed = hashed_run(tmp_path, GROUP)
    last = max(place for place, (_, event) in enumerate(timed) if isinstance(event, Closed))
    assert witnesses(timed[: last + 1], files)[0] is Outcome.PASSED
    path = files.witness("node2", 2)
    path.write_bytes(path.read_bytes() + b'{"trial": 9')
    assert witnesses(timed, files)[0] is Outcome.PASSED


def one_byte(text: str) -> str:
    """Images of two ranks that add up to the same as before are not seen by any other rule."""
    return text.replace('"examples"', '"examples" ', 1)


@pytest.mark.parametrize("rank", [1, 2])
def test_one_byte_that_was_changed_in_any_log_shows(tmp_path: Path, rank: int) -> None:
    files, timed = hashed_run(tmp_path, GROUP)
    path = files.witness(f"node{rank}", rank)
    path.write_text(one_byte(path.read_text()))
    outcome, text = witnesses(timed, files)
    assert outcome is Outcome.FAILED
    assert "the logs were changed after trial 0, attempt 1, segment 0" in text
    without = [(t, replace(e, logs="") if isinstance(e, Closed) else e) for t, e in timed]
    assert witnesses(without, files)[0] is Outcome.PASSED, "as in journals without hashes"


def test_hashes_that_were_removed_are_missed(tmp_path: Path) -> None:
    files, timed = hashed_run(tmp_path, GROUP)
    first = min(place for place, (_, event) in enumerate(timed) if isinstance(event, Closed))
    rest = [(t, replace(e, logs="") if isinstance(e, Closed) else e) for t, e in timed[first + 1 :]]
    outcome, text = witnesses([*timed[: first + 1], *rest], files)
    assert outcome is Outcome.UNKNOWN
    assert " and with the hash of 1 of " in text


def test_answers_that_two_ranks_exchanged_show(tmp_path: Path) -> None:
    files, timed = hashed_run(tmp_path, GROUP)
    paths = [files.witness(f"node{rank}", rank) for rank in (1, 2)]
    texts = [path.read_text() for path in paths]
    for path, text in zip(paths, reversed(texts)):
        path.write_text(text)
    assert "their hash is not the recorded one" in witnesses(timed, files)[1]


def test_a_log_that_is_missing_is_named_and_nothing_is_proved_without_it(tmp_path: Path) -> None:
    files, timed = hashed_run(tmp_path, GROUP)
    files.witness("node2", 2).unlink()
    outcome, text = witnesses(timed, files)
    assert outcome is Outcome.UNKNOWN
    assert text.endswith("; missing or incomplete: rank 2 on node2")


def test_the_last_lines_of_a_host_that_died_may_be_lost_and_no_others(tmp_path: Path) -> None:
    """It had not put them on its disk; after a resume the rank appends to what is left."""
    scene = Scene(minutes=0.4, killed_at=20.0)
    killed = told(scene)
    first = killed[: max(place for place, (_, event) in enumerate(killed) if isinstance(event, LegBegan))]
    files, timed = hashed_run(tmp_path, killed)
    path = files.witness("node1", 1)
    whole = path.read_text()
    write_witnesses(files, first)
    before = path.read_text()
    assert whole.startswith(before)
    last = replay_of(first).running[0]
    (cut,) = [n for n in [before.find(f'{{"trial": {last.trial.number}, ')] if n > 0]
    write_witnesses(files, timed)
    unhashed = [(t, replace(e, logs="") if isinstance(e, Closed) else e) for t, e in timed]
    path.write_text(before[:cut] + whole[len(before) :])
    outcome, text = witnesses(unhashed, files)
    assert (outcome, text.split("; ")[1]) == (
        Outcome.UNKNOWN,
        "missing or incomplete: rank 1 on node1",
    )
    lines = before.splitlines(keepends=True)
    path.write_text("".join(lines[3:]) + whole[len(before) :])
    assert witnesses(unhashed, files)[0] is Outcome.FAILED


@pytest.mark.parametrize("lost", [True, False])
def test_a_host_may_also_die_between_two_trials(tmp_path: Path, lost: bool) -> None:
    """Its leg died with it, or its group was lost, after a trial had ended and before the next began."""
    files, timed = hashed_run(tmp_path, told(Scene(minutes=0.2, groups=1)))
    ended = [place for place, (_, event) in enumerate(timed) if isinstance(event, Ended)]
    killed = timed[: ended[1] + 1]
    files.witness("node1", 1).write_text("")
    write_witnesses(files, killed)
    path = files.witness("node1", 1)
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-3]))
    t, follows = timed[ended[1] + 1]
    assert isinstance(follows, Dispatched)
    if lost:
        killed += [(t, follows), (t, GroupLost(0, "the host died")), (t, LegEnded("error: x", t))]
    assert witnesses(killed, files)[0] is Outcome.UNKNOWN
    clean = [*timed[: ended[1] + 2], (t, LegEnded("interrupted", t))]
    assert witnesses(clean, files)[0] is Outcome.FAILED


def test_a_log_that_is_silent_on_a_whole_leg_was_lost_in_between(tmp_path: Path) -> None:
    """As where a host was cleaned after the job, and the run was resumed there."""
    killed = told(Scene(minutes=0.4, killed_at=20.0))
    place = max(place for place, (_, event) in enumerate(killed) if isinstance(event, LegBegan))
    files, timed = hashed_run(tmp_path, killed)
    write_witnesses(files, killed[:place])
    before = len(files.witness("node1", 1).read_text())
    write_witnesses(files, killed)
    path = files.witness("node1", 1)
    path.write_text(path.read_text()[before:])
    unhashed = [(t, replace(e, logs="") if isinstance(e, Closed) else e) for t, e in timed]
    assert witnesses(unhashed, files)[0] is Outcome.UNKNOWN
    path.write_text("")
    assert witnesses(unhashed, files)[0] is Outcome.UNKNOWN


def wider(timed: list[Timed]) -> list[Timed]:
    """A group of two ranks, said to be one of four."""
    found: list[Timed] = []
    for t, event in timed:
        if isinstance(event, LegBegan):
            event = replace(event, groups=((1, 2, 3, 4),))
        found.append((t, event))
        if isinstance(event, RankReady):
            more = event.ready.rank + 2
            found.append((t, replace(event, ready=replace(event.ready, rank=more, host=f"node{more}"))))
    return found


def test_ranks_that_never_were_have_no_log(tmp_path: Path) -> None:
    files, timed = hashed_run(tmp_path, GROUP)
    outcome, text = witnesses(wider(timed), files)
    assert outcome is Outcome.UNKNOWN
    assert text.endswith("missing or incomplete: rank 3 on node3, rank 4 on node4")
    for rank in (3, 4):  # copies of those of real ranks have too many images, and another hash
        source = files.witness(f"node{rank - 2}", rank - 2)
        files.witness(f"node{rank}", rank).write_bytes(source.read_bytes())
    outcome, text = witnesses(wider(timed), files)
    assert outcome is Outcome.FAILED
    assert "the ranks wrote 4000 images of trial 0, attempt 1, segment 0; the journal has 2000" in text
    assert "their hash is not the recorded one" in text


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ('"steps": 15', '"steps": 15, "steps": 15', "steps appears twice"),
        ('"steps": 15', '"steps": 15, "of": 1', "its keys are steps, of, examples"),
        ('"steps": 15', '"steps": -15', "not all values are whole numbers of at least 0"),
        ('"steps": 15', '"steps": true', "not all values are whole numbers"),
        ('"steps": 15', '"steps": 15.0', "not all values are whole numbers"),
        ('"segment": 0', '"segment": 1', "it is of segment 1, but 0 is open"),
    ],
)
def test_what_no_rank_writes_is_damage(tmp_path: Path, before: str, after: str, says: str) -> None:
    files, timed = hashed_run(tmp_path, told(Scene(minutes=0.2)))
    path = files.witness("node1", 1)
    path.write_text(path.read_text().replace(before, after, 1))
    outcome, text = witnesses(timed, files)
    assert outcome is Outcome.FAILED
    assert says in text


def test_a_rank_does_one_thing_after_the_other(tmp_path: Path) -> None:
    files, timed = hashed_run(tmp_path, told(Scene(minutes=0.2)))
    path = files.witness("node1", 1)
    lines = path.read_text().splitlines()
    answers = next(place for place, line in enumerate(lines) if "correct" in line)
    path.write_text("\n".join([*lines, lines[0]]) + "\n")
    assert "it goes back to trial 0, attempt 1" in witnesses(timed, files)[1]
    path.write_text("\n".join([*lines[: answers + 1], *lines[answers:]]) + "\n")
    assert "it is of segment 0, but 1 is open" in witnesses(timed, files)[1], "a repeated validation"
    path.write_text("\n".join([*lines[:answers], lines[answers + 1], lines[answers]]) + "\n")
    assert "it is of segment 1, but 0 is open" in witnesses(timed, files)[1]
