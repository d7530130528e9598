"""The ranks' own logs next to the journal: what they prove, what they do not, and what no rank writes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from aiperf.journal.events import (
    Closed,
    Dispatched,
    Ended,
    Event,
    GroupLost,
    LegBegan,
    LegEnded,
    RankReady,
    Stepped,
)
from aiperf.journal.run_files import RunFiles
from tests.aiperf.rules.forged import LOST, TIMED, Edit, each, found, inserted, places
from tests.journals import Scene, Timed, replayed, told, within, write_witnesses
from tests.tables import ComesTo

GROUP, TRIO = (told(Scene(minutes=0.2, groups=1, ranks_of_a_group=ranks)) for ranks in (2, 3))
KILLED, LOST_TWICE = (
    told(Scene(minutes=0.4, killed_at=20.0)),
    told(Scene(minutes=0.3, lost=((1, 16.0), (0, 20.0)))),
)
SECOND_LEG = places(KILLED, LegBegan)[1]
PAIRS = told(Scene(minutes=0.25, ranks_of_a_group=2))
LAST_STEP, LAST_VALIDATION = places(TIMED, Stepped)[-1], places(GROUP, Closed)[-1]
ALONE = told(Scene(minutes=0.2, groups=1))
BETWEEN = places(ALONE, Ended)[1] + 1
"""The place of the line that dispatches a third trial."""


class Logs:
    """The logs of the ranks of a run."""

    def __init__(self, files: RunFiles) -> None:
        self.files = files

    def log(self, rank: int) -> Path:
        return self.files.witness(f"node{rank}", rank)

    def edit(self, rank: int, change: Callable[[str], str]) -> None:
        self.log(rank).write_text(change(self.log(rank).read_text()))


Change = Callable[[Logs], object]


def text(rank: int, change: Callable[[str], str]) -> Change:
    return lambda logs: logs.edit(rank, change)


def one(rank: int, before: str, after: str) -> Change:
    """The first of such words in a log, replaced."""
    return text(rank, lambda text: text.replace(before, after, 1))


def lines(rank: int, change: Callable[[list[str]], list[str]]) -> Change:
    return text(rank, lambda text: "".join(change(text.splitlines(keepends=True))))


def at_answer(change: Callable[[list[str], int], list[str]]) -> Change:
    """The lines of rank 1, by the place of its first validation."""
    return lines(1, lambda all: change(all, next(at for at, line in enumerate(all) if "correct" in line)))


def gone(*ranks: int) -> Change:
    return lambda logs: [logs.log(rank).unlink() for rank in ranks]


def wrote(timed: list[Timed]) -> Change:
    """The ranks wrote of these lines alone."""
    return lambda logs: write_witnesses(logs.files, timed)


def in_first_leg(change: Callable[[str], str]) -> Change:
    """What rank 1 wrote in the leg that was killed, and what it appended after a resume."""

    def edit(logs: Logs) -> None:
        whole = logs.log(1).read_text()
        wrote(KILLED[:SECOND_LEG])(logs)
        before = logs.log(1).read_text()
        wrote(KILLED)(logs)
        logs.log(1).write_text(change(before) + whole[len(before) :])

    return edit


def without_the_running(before: str) -> str:
    running = [attempt.trial.number for attempt in replayed(KILLED[:SECOND_LEG]).running.values()]
    (cut,) = [at for number in running if (at := before.find(f'{{"trial": {number}, ')) > 0]
    return before[:cut]


def exchanged(logs: Logs) -> None:
    first, second = (logs.log(rank).read_text() for rank in (1, 2))
    logs.log(1).write_text(second)
    logs.log(2).write_text(first)


def copied(logs: Logs) -> None:
    """To ranks that never were."""
    for rank in (3, 4):
        logs.log(rank).write_bytes(logs.log(rank - 2).read_bytes())


def all_done_by_rank_1(name: str) -> Change:
    """The sums over the group are right."""

    def times(factor: int) -> Callable[[str], str]:
        return lambda text: re.sub(rf'"{name}": (\d+)', lambda n: f'"{name}": {int(n[1]) * factor}', text)

    def edit(logs: Logs) -> None:
        logs.edit(1, times(2))
        logs.edit(2, times(0))
        logs.edit(2, lambda text: text.replace('"of": 0, "correct": 200', '"of": 0, "correct": 0'))

    return edit


def folders_instead(logs: Logs) -> None:
    for rank in (1, 2):
        logs.log(rank).unlink()
        logs.log(rank).mkdir()


def renamed(logs: Logs) -> None:
    for log in logs.files.logs_directory.iterdir():
        log.rename(log.with_name(f"other{log.name}"))


def without_the_last_answers(logs: Logs) -> None:
    def without(all: list[str]) -> list[str]:
        last = max(place for place, line in enumerate(all) if "correct" in line)
        return all[:last] + all[last + 1 :]

    for rank in (1, 2):
        lines(rank, without)(logs)


def worked_on(logs: Logs) -> None:
    """A group that was given up, unheard."""
    lost = next(a for a in replayed(LOST).attempts if a.ended is None and a.began is not None)
    (rank, *_), done = lost.leg.began.groups[lost.group], len(lost.validations)
    head = f'{{"trial": {lost.trial.number}, "attempt": {lost.number}, "segment": '

    def more(all: list[str]) -> list[str]:
        last = max(place for place, line in enumerate(all) if line.startswith(head))
        steps = [f'{head}{done + n}, "steps": 15, "examples": 750}}\n' for n in range(3)]
        answers = [f'{head}{done + n}, "of": 400, "correct": 200}}\n' for n in range(2)]
        return [*all[: last + 1], steps[0], answers[0], steps[1], answers[1], steps[2], *all[last + 1 :]]

    lines(rank, more)(logs)


# What the journal says instead


def unhashed(timed: list[Timed]) -> list[Timed]:
    """As in older journals."""
    return each(Closed, lambda event: replace(event, logs=""))(timed)


def hashed_once(timed: list[Timed]) -> list[Timed]:
    cut = places(timed, Closed)[0] + 1
    return [*timed[:cut], *unhashed(timed[cut:])]


def up_to(place: int, *ends: Event) -> Edit:
    return lambda timed: [*timed[:place], *((timed[place][0], end) for end in ends)]


def wider(timed: list[Timed]) -> list[Timed]:
    """A group of two ranks, said to be one of four."""
    last = places(timed, RankReady)[-1]
    ready = [event for _, event in timed if isinstance(event, RankReady)]
    more = [within(e, rank=e.ready.rank + 2, host=f"node{e.ready.rank + 2}") for e in ready]
    four = each(LegBegan, lambda event: replace(event, groups=((1, 2, 3, 4),)))
    return four(inserted(timed, last + 1, *more))


def test_what_the_logs_prove(folders: Iterator[Path], comes_to_what_was_read: ComesTo) -> None:
    """What was written after the last validation contradicts nothing, nor do steps that were never reported,
    as where the master was killed. Images of two ranks that add up to the same as before are seen by no other
    rule than by the hash. A host that died may lose the lines that it had not put on its disk."""

    def says(timed: list[Timed], *changes: Change, told: Edit = lambda timed: timed) -> tuple[str, str]:
        """What the rule says of a run whose logs were changed, and whose journal tells it otherwise."""
        logs = Logs(RunFiles(next(folders)))
        hashed = write_witnesses(logs.files, timed)
        for change in changes:
            change(logs)
        finding = found(told(hashed), "witnesses", logs.files)
        return finding.outcome.name, finding.text.replace(f"{logs.files.directory}/", "")

    third = ALONE[BETWEEN][1]
    assert isinstance(third, Dispatched)
    died = [third, GroupLost(0, "the host died"), LegEnded("error: x", ALONE[BETWEEN][0])]
    comes_to_what_was_read("rank_logs.txt", {**globals(), "says": says, "died": died})
    deep = says(TIMED, one(1, '"steps": 15', '"steps": ' + "[" * 100_000))
    assert (deep[0], deep[1].startswith("line 1 of ")) == ("FAILED", True)
    long = each(RankReady, lambda e: within(e, host="h" * 5000))  # hosts are named by the journal: anybody's
    assert says(TIMED, folders_instead, told=long)[0] == "UNKNOWN"
