"""The run's side of a notarisation: it asks for a nonce, hands over the state of the journal, and keeps the
weights that the notary's answers choose for spot checks.

The run waits for the notary only once, before anything is measured, and not for long. Later it only writes:
the journal is synchronised and the request written by a thread of their own, and what the notary does, or
does not do, is left to whoever judges the run.

Weights are kept by a second name in their own folder, so nothing is copied, and the search may drop the
first. All file systems of clusters have such names, some only within one folder.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

from aiperf.journal.attempts import Attempt
from aiperf.journal.notary import JournalHead, NotaryAnswer, NotaryFileError, NotaryRequest, answers
from aiperf.journal.run_files import RunFiles
from aiperf.journal.spot_checks import Draw, Ending, chosen, draw, ending_of
from aiperf.os_error import reason

NONCE_SECONDS = 8.0
"""Longest wait for the nonce in seconds, less than `AFTER_LAST_LINE_SECONDS`, so that it is no stall."""
TICK_SECONDS = 0.1  # between two looks whether an answer is there that the run waits for
HAND_OVER_SECONDS = 30.0
"""Time between two heads that are handed over, in seconds. A journal can be changed after the fact only
behind its last head."""
SHARE_OF_SPAN = 0.05
"""The same as a share of a shorter span, which would otherwise have no head in it."""
LEAST_SECONDS = 1.0
"""Least time between two heads in seconds, however short the span is."""
LAST_SECONDS = 10.0
"""Longest wait for the file system at the end of the leg, in seconds."""
SETTLE_SECONDS = 5.0
"""Longest wait in seconds for the answer to the last head of a run, by which the last weights for spot checks
are chosen. Those without one are left to `package`."""
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
        chosen_before = {each.ending.trial for each in self._kept}
        self._drop(trial for trial in files.spot_checked() if trial not in chosen_before)

    @property
    def is_waiting(self) -> bool:
        """Whether weights wait for an answer."""
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
        """The answers since the last call. Anybody may have written the file, or it may be missing."""
        found = list[NotaryAnswer]()
        try:
            for answer in answers(self._answers, self._read):
                found.append(answer)
        except (NotaryFileError, OSError):
            pass
        self._read += len(found)
        return found

    def _drop(self, trials: Iterable[int]) -> None:
        """Removes the second names of the weights of these trials."""
        for trial in trials:
            try:
                self._files.spot_weights(trial).unlink(missing_ok=True)
            except OSError as error:
                self.failure = reason(error)


class Notarisation:
    """The requests of one leg. Nothing here raises: without a notary, or with a full disk, the run goes on.
    If the leg has no nonce, because none was asked for or none came, every later call does nothing."""

    def __init__(
        self,
        files: RunFiles,
        leg: int,
        head: Callable[[], JournalHead],
        duplicate: Callable[[], int],
        say: Callable[[str], None],
        earlier: Iterable[Draw] = (),
    ) -> None:
        """`head` gives the journal's head at any time, `duplicate` a descriptor of its file; `earlier`: the
        trials that the legs before chose for spot checks."""
        self._request, self._answers = files.notary_request(leg), files.notary_answers(leg)
        self._head, self._duplicate, self._say = head, duplicate, say
        self._spots = SpotChecks(files, leg, earlier)
        self._first: JournalHead | None = None
        """The head with which this leg asked; None without a nonce."""
        self._writing: threading.Thread | None = None
        self._due = 0.0
        self._failure = ""
        """Why a request could not be written, for the user; empty once it was said."""
        self._said_skipped = False

    def nonce(self, is_stopped: Callable[[], object]) -> NotaryAnswer | None:
        """Asks for a nonce and waits for it, until `is_stopped`. None if no notary answered: the leg is then
        not notarised, and nothing more is asked."""
        first = self._head()
        self._hand_over(NotaryRequest(first, first))
        until = time.monotonic() + NONCE_SECONDS
        self._join(NONCE_SECONDS)
        while not self._failure and not is_stopped() and time.monotonic() < until:
            answer = _first(self._answers)
            if answer is not None and (answer.head, answer.count) == (first, 0):
                self._first = first
                return answer
            time.sleep(TICK_SECONDS)
        why = self._failure or f"no notary answered within {NONCE_SECONDS:.0f} s"
        self._say(f"this leg is not notarised: {why}; the run goes on")
        return None

    def tick(self, now: float, span_seconds: float | None) -> None:
        """Hands the head over if it is time, at `now` seconds of the leg. `span_seconds`: the length of its
        span, None without a limit."""
        if self._first is None or now < self._due:
            return
        if self._failure:
            self._say(f"the journal cannot be handed to the notary: {self._failure}; the run goes on")
            self._failure = ""
        self._say_skipped()
        limit = HAND_OVER_SECONDS if span_seconds is None else SHARE_OF_SPAN * span_seconds
        self._due = now + min(HAND_OVER_SECONDS, max(LEAST_SECONDS, limit))
        self._hand_over(NotaryRequest(self._first, self._head()))

    def ended(self, attempt: Attempt) -> None:
        """Keeps the weights of a trial that ended and can be checked, until the notary has signed its end."""
        if self._first is not None and (ending := ending_of(attempt)) is not None:
            self._spots.ended(ending, time.monotonic())

    def last(self) -> None:
        """Hands the head over at an end, of the span or of the leg, which is not timed."""
        if self._first is not None:
            self._join(LAST_SECONDS)
            self._hand_over(NotaryRequest(self._first, self._head()))
            self._join(LAST_SECONDS)

    def settle(self, is_stopped: Callable[[], object]) -> None:
        """Waits for the answer to the last head, after everything else is done, if weights wait for it."""
        until = time.monotonic() + SETTLE_SECONDS
        while self._spots.is_waiting and time.monotonic() < until and not (self._is_writing or is_stopped()):
            self._spots.settle(time.monotonic())
            time.sleep(TICK_SECONDS)
        self._say_skipped()

    def _say_skipped(self) -> None:
        """Tells the user once that weights could not be kept."""
        if self._spots.failure and not self._said_skipped:
            self._say(f"weights are not kept for a spot check: {self._spots.failure}; the run goes on")
            self._said_skipped = True

    def _hand_over(self, request: NotaryRequest) -> None:
        """Does so beside the run. If a file server still holds the request before, this one is left out."""
        if self._is_writing:
            return
        try:
            file = self._duplicate()
        except OSError as error:
            self._failure = reason(error)
            return
        work = threading.Thread(
            target=self._synchronise_and_write, args=(file, request), name="notary", daemon=True
        )
        try:
            work.start()
            self._writing = work
        except RuntimeError as error:  # the system's limit on threads
            os.close(file)
            self._failure = str(error)

    def _synchronise_and_write(self, file: int, request: NotaryRequest) -> None:
        """Runs on a thread of its own, because to flush the journal may take long. The request is written
        after that."""
        try:
            os.fsync(file)
            _replace(self._request, request.text().encode())
            self._spots.settle(time.monotonic())
        except OSError as error:
            self._failure = reason(error)
        finally:
            os.close(file)

    @property
    def _is_writing(self) -> bool:
        """Whether the request before is still being written."""
        return self._writing is not None and self._writing.is_alive()

    def _join(self, seconds: float) -> None:
        """Waits at most this many seconds for the request that is being written."""
        if self._writing is not None:
            self._writing.join(seconds)


def _first(path: Path) -> NotaryAnswer | None:
    """The first answer in a file, which anybody may have written; None if there is none."""
    try:
        return next(answers(path), None)
    except (NotaryFileError, OSError):
        return None


def _replace(path: Path, content: bytes) -> None:
    """Writes a file as a whole. The notary may write into its folder too, so nothing that has its name is
    written into or followed."""
    path.parent.mkdir(exist_ok=True)
    partial = path.with_name(f"{path.name}.part")
    with contextlib.suppress(FileNotFoundError):
        partial.unlink()
    file = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        os.write(file, content)
    finally:
        os.close(file)
    partial.replace(path)
