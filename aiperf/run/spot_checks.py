"""The run's side of spot checks: it keeps the weights of a trial that ended until the notary's answer chooses
it or not (`aiperf.journal.spot_checks`).

A file is kept by a second name in its own folder, so nothing is copied, and the search may drop the first.
All file systems of clusters have such names, some only within one folder.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable

from aiperf.files import RunFiles
from aiperf.journal.notary import NotaryAnswer, NotaryFileError, answers
from aiperf.journal.spot_checks import Draw, Ending, chosen, draw
from aiperf.os_error import reason

HELD_SECONDS = 180.0
"""Longest time in seconds for which the weights of a trial wait for an answer: two minutes, the wait for the
next head, and what the answer before may have lacked. The trial is then skipped."""
MOST_WAITING = 512
"""Maximum number of trials whose weights wait at the same time; further ones are skipped."""


class SpotChecks:
    """The weights of one leg that wait, and those of the run that were chosen.

    `ended` is called by the master, `settle` by one other thread at a time. Nothing here raises.
    """

    def __init__(self, files: RunFiles, leg: int, earlier: Iterable[Draw] = ()) -> None:
        """`earlier`: the trials that the legs before chose. What else these left is removed."""
        self._files, self._answers = files, files.notary_answers(leg)
        self._kept = list(earlier)
        self._waiting = deque[tuple[Ending, float]]()
        self._read = 0
        """Number of the leg's answers that were read."""
        self._last: NotaryAnswer | None = None
        self.failure = ""
        """Why the weights of some trial could not be kept, for the user; empty if all were."""
        wanted = {each.ending.trial for each in self._kept}
        self._drop(trial for trial in files.spot_checked() if trial not in wanted)

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    def ended(self, ending: Ending, now: float) -> None:
        """Keeps the weights of a trial that ended. `now` is monotonic, in seconds."""
        if len(self._waiting) >= MOST_WAITING:
            self.failure = f"{MOST_WAITING} trials wait for the notary"
            return
        try:
            os.link(self._files.weights(ending.trial), self._files.spot_weights(ending.trial))
        except OSError as error:
            self.failure = reason(error)
            return
        self._waiting.append((ending, now + HELD_SECONDS))

    def settle(self, now: float) -> None:
        """Removes the weights of all trials that the new answers do not choose, or that waited too long."""
        for answer in self._new_answers():
            draws = list(self._kept)
            while self._waiting and self._waiting[0][0].line <= answer.head.lines:
                draws.append(draw(self._waiting.popleft()[0], answer, self._last))
            # Without those that were skipped these are all that a validator chooses, and perhaps more.
            self._kept, self._last = chosen(draws), answer
            self._drop({each.ending.trial for each in draws} - {each.ending.trial for each in self._kept})
        while self._waiting and self._waiting[0][1] < now:
            self._drop([self._waiting.popleft()[0].trial])

    def _new_answers(self) -> list[NotaryAnswer]:
        """Those since the last call. The file may be anybody's, or not be there."""
        found = list[NotaryAnswer]()
        try:
            for answer in answers(self._answers, self._read):
                found.append(answer)
        except (NotaryFileError, OSError):
            pass
        self._read += len(found)
        return found

    def _drop(self, trials: Iterable[int]) -> None:
        for trial in trials:
            try:
                self._files.spot_weights(trial).unlink(missing_ok=True)
            except OSError as error:
                self.failure = reason(error)
