"""Runs that are notarised as they are written, by the real notary on a clock of the test."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from aiperf.journal.attempts import Attempt
from aiperf.journal.events import Ended, Event, LegBegan, LegEnded, NonceGiven, Tested
from aiperf.journal.file import chained, read_journal
from aiperf.journal.notary import JournalHead, NotaryRequest, answers
from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from aiperf.journal.spot_checks import chosen_in, ending_of
from aiperf.run.notarisation import SpotChecks
from analysis.submissions.notary import Notary
from analysis.submissions.signature import make_key, signer
from tests.aiperf.rules.forged import each
from tests.journals import Timed, within, write_witnesses

NOON = 1_777_896_000.0
"""Time of day at which each first leg begins, by the notary's clock; a later leg begins an hour later."""


@dataclass
class Office:
    """A notary with its key, its record and its clock, which is killed and started again before each pass."""

    folder: Path
    now: float = NOON
    public: str = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        self.public = make_key(self.folder / "key")

    def open(self) -> Notary:
        public, sign = signer(self.folder / "key")
        return Notary(public, sign, self.folder / "record", lambda: int(1000 * self.now))

    def look(self, runs: Path) -> list[str]:
        notary = self.open()
        try:
            return list(notary.look(runs))
        finally:
            notary.close()


@dataclass
class Writing:
    """A journal that grows."""

    files: RunFiles
    head: JournalHead | None = None
    lines: list[str] = field(default_factory=list)

    def write(self, t: float, event: Event) -> None:
        (line,) = chained([(t, event)], self.head.chain if self.head else "")
        self.lines.append(line + "\n")
        before = self.head or JournalHead(1, 1, "0" * 64)
        size = before.bytes if self.head else 0
        self.head = JournalHead(len(self.lines), size + len(line.encode()) + 1, json.loads(line)["chain"])

    def ask(self, leg: int, asked: JournalHead) -> None:
        assert self.head
        request = self.files.notary_request(leg)
        request.parent.mkdir(exist_ok=True)
        request.write_text(NotaryRequest(asked, self.head).text())


def rewritten(files: RunFiles, change: Callable[[list[Timed]], list[Timed]]) -> None:
    """The forger's work on a journal: other lines, and the chain computed again."""
    lines = change([(line.t, line.event) for line in read_journal(files.journal)])
    files.journal.write_text("".join(line + "\n" for line in chained(lines)), encoding="utf-8")


def content(trial: int) -> bytes:
    """The file of weights of a trial."""
    return f"weights of {trial}".encode()


def with_weights(run: list[Timed]) -> list[Timed]:
    """A run that kept a file of weights of each trial that ended well."""

    def hashed(event: Any) -> Event:
        weights = sha256(content(event.finished.trial)).hexdigest()
        return within(event, weights=weights) if event.finished.kept is not None else event

    return each(Ended, hashed)(run)


def keep(files: RunFiles, spots: SpotChecks, attempt: Attempt, t: float) -> None:
    """As the master does, with a search that needs the weights no longer."""
    if (ending := ending_of(attempt)) is not None and ending.weights:
        files.weights_directory.mkdir(exist_ok=True)
        files.weights(ending.trial).write_bytes(content(ending.trial))
        spots.ended(ending, t)
        files.weights(ending.trial).unlink()


def notarise(
    office: Office,
    directory: Path,
    run: Iterable[Timed],
    every: float = 5.0,
    real: Callable[[float], float] = lambda t: t,
    late: Callable[[float], float] = lambda t: 0.5,
    is_there: Callable[[float], bool] = lambda t: True,
) -> RunFiles:
    """Writes the run, with a head handed over every this many seconds and after the lines that end a leg.

    `real`: the notary's seconds since the leg began at a time of the journal. `late`: how much later it
    answers; `is_there`: whether it does.
    """
    timed, writing, leg, due = list(run), Writing(RunFiles(directory)), -1, 0.0
    replay, spots = Replay(), None
    directory.mkdir(parents=True)
    writing.files.journal.touch()  # so the folder is a run
    asked: JournalHead | None = None
    for t, event in timed:
        writing.write(t, event)
        replay.add(t, event)
        if begins := isinstance(event, LegBegan):
            leg, asked, due = leg + 1, writing.head, 0.0
            spots = SpotChecks(writing.files, leg, chosen_in(writing.files, replay))
        if isinstance(event, Ended) and spots is not None and asked is not None:
            keep(writing.files, spots, replay.trials[event.finished.trial].attempts[-1], t)
        if asked is None or not (begins or t >= due or isinstance(event, LegEnded | Tested)):
            continue
        due = t + every
        writing.ask(leg, asked)
        if is_there(t):
            office.now = NOON + 3600 * leg + real(t) + late(t)
            office.look(directory)
        if spots is not None:
            spots.settle(t)
        if begins and writing.files.notary_answers(leg).exists():
            first = next(answers(writing.files.notary_answers(leg)))
            writing.write(t, given := NonceGiven(first.nonce, first.signature))
            replay.add(t, given)
        elif begins:
            asked = None
    writing.files.journal.write_text("".join(writing.lines), encoding="utf-8")
    write_witnesses(writing.files, timed)
    return writing.files
