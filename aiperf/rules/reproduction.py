"""The search, repeated: the proposals of a run follow from its random seed and from the reported results.

So if a morphism, a hyper-parameter or an accuracy that decided a tournament is edited, or a trial removed,
everything after it must change too, training included.
"""

from __future__ import annotations

import contextlib
import random
import signal
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from time import monotonic
from typing import TYPE_CHECKING

from aiperf.config import Config
from aiperf.errors import AiperfError, ConfigError, MissingExtra
from aiperf.host.code import code_hash
from aiperf.host.cores import allowed_cores
from aiperf.host.user_cache import OwnFile
from aiperf.journal.attempts import Leg
from aiperf.journal.events import Dispatched, Event, LegBegan
from aiperf.journal.replay import TOLD, Replay
from aiperf.proposing.foreign_search import SearchFailed
from aiperf.proposing.jobs import ATTEMPTS, Jobs
from aiperf.proposing.proposals import libraries, proposals_version
from aiperf.rules.rule import Evidence, Inspection, unknown
from aiperf.wire.trial import State, Trial
from aiperf.wording import percent
from nas.record import encode, graph_from_json
from nas.search import Exhausted, TooMuchWork

if TYPE_CHECKING:  # few runs are long enough to be shared by processes
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

ALL_REPEATED = ("evolution", "final", "random")
"""Searches whose proposals take some milliseconds, so that all are repeated, if no library tunes."""
MOST_ASKED = 2_000
"""Maximum number of proposals of any other search that are repeated. In a longer run they are a sample, which
each validation draws anew: a choice that follows from the journal could be ground by changing it."""
LEAST_WORK, WORK_OF_A_PROPOSAL, WORK_OF_A_DEARER_ONE = 500_000, 20_000, 150_000
"""Limits on the work of repeating proposals, as `Search.most_work` counts it: in any run, and for each
proposal of the searches in ALL_REPEATED and of another one. On average a proposal of `evolution` takes 220
for ResNet-50 and 1,300 for a Llama that grows, one of `bayesian` up to 72,000. Bounds or a network that need
more would take the time of those who check a list."""
SHARED_FROM = 5_000
"""Number of proposals from which several processes share them."""
FEW_FAILURES, MOST_FAILURES = 1, 0.05
"""Number of trials that may fail in any run, and share of those that ended. Failures of an honest run are of
memory, which is foreseen, or of a learning rate that is too high; few are left of either."""
STEERED_SINCE = 2
"""Version of the rules since which failures cost the class."""
TOLD_EACH_SECONDS = 5.0
"""Time in seconds after which progress is shown and kept."""


MOST_PROCESSES = 16
"""Each has its own copy of what it changes, which for a search is up to 5 kB per trial."""

Tell = Callable[[object], None]
"""Sends one thing to the parent process; it must be picklable."""
Work = Callable[[int, int, Tell], None]
"""Does the part with this index of this many parts, and tells the parent process what it did."""

_NAMES = {"hyper": "hyper-parameters", "round": "round", "epochs": "epochs", "seed": "random seed"}
"""Names in messages of the fields of a trial that are compared one by one."""


class SavedProgress(OwnFile):
    """How many proposals of a run this user has already reproduced, so that a long validation can be resumed.
    The file belongs to exactly this journal and exactly this program."""

    @classmethod
    def of(cls, replay: Replay) -> SavedProgress:
        """The progress on this run, which may not exist yet. A change of the journal or of the program begins
        anew."""
        return cls.at("proposals", replay.last_chain, replay.lines, code_hash())

    def read(self) -> int:
        """The number of the first trial whose proposal has not been reproduced yet."""
        found = self.content()
        return found if type(found) is int and found >= 0 else 0


class _Differs(Exception):
    """The search proposes something else."""


class _RunSoFar:
    """A run, in the leg that its events have reached."""

    leg: Leg

    def __init__(self, replay: Replay) -> None:
        """Before its first event it is in no leg."""
        self.trials = replay.trials
        self._legs = iter(replay.legs)

    def follow(self, event: Event) -> None:
        """Goes on to the next leg if the event begins one."""
        if isinstance(event, LegBegan):
            self.leg = next(self._legs)


def search(evidence: Evidence) -> Inspection:
    """Repeats the proposals in the order of the journal. Proposals depend on the program's version of the
    search and on its libraries; with others nothing is known."""
    replay = evidence.replay
    config = replay.opened.config
    version, own = replay.opened.search, proposals_version(config)
    if version != own:
        return unknown(f"the run used version {version} of the search; this program has version {own}")
    if not replay.trials:
        return unknown("no trial was dispatched")
    if evidence.recount.failures:
        return unknown("not every architecture can be rebuilt")
    try:
        here = libraries(config)
    except ConfigError as error:
        return unknown(str(error))
    if foreign := sorted(replay.opened.libraries.keys() - here.keys()):
        return Inspection("", [f"{', '.join(foreign)} is recorded, but this search does not use it"])
    if other := {name: was for name, was in replay.opened.libraries.items() if here.get(name) != was}:
        told = "; ".join(f"{name} {was}, but {here.get(name)} is installed" for name, was in other.items())
        return unknown(f"the run's proposals depend on {told}")
    asked, of = repeated_numbers(replay), len(replay.trials)
    processes = num_processes() if len(asked) >= SHARED_FROM else 0
    if processes and evidence.progress is not None:
        answer = _shared(replay, asked, processes, evidence.progress)
    else:
        answer = _repeated(replay, asked)
    if answer is not None:
        return answer
    if replay.opened.rules >= STEERED_SINCE and (doubt := _steered(replay)):
        return unknown(doubt)
    drawn = "" if len(asked) == of else ", drawn at random by this validation"
    return Inspection(f"{len(asked)} of {of} proposals reproduced{drawn}")


def repeated_numbers(replay: Replay) -> Sequence[int]:
    """The trials whose proposals are repeated: all, or a sample of those of a dearer search."""
    config, of = replay.opened.config, len(replay.trials)
    if _is_cheap(config) or of <= MOST_ASKED:
        return range(of)
    return sorted(random.SystemRandom().sample(range(of), MOST_ASKED))


def _is_cheap(config: Config) -> bool:
    """Whether each proposal takes some milliseconds, whatever the length of the run."""
    return config.search.name in ALL_REPEATED and not libraries(config)


def _repeated(
    replay: Replay, asked: Collection[int], tell: Callable[[int], object] = lambda number: None
) -> Inspection | None:
    """Repeats these proposals, and calls `tell` after each; None if they are as recorded. A proposal that
    needs another library or takes too much work leaves the rule unknown."""
    try:
        _made_again(replay, frozenset(asked), tell)
    except (MissingExtra, SearchFailed) as error:
        return unknown(str(error))
    except TooMuchWork as error:
        return unknown(f"its proposals take more work than is done to repeat {len(asked):,}: {error}")
    except (_Differs, Exhausted, ValueError, LookupError) as error:
        return Inspection("", [str(error)])
    return None


def _shared(
    replay: Replay, asked: Sequence[int], processes: int, show: Callable[[str], object]
) -> Inspection | None:
    """The same in several processes, among which the proposals are dealt out one by one. What they have all
    reproduced is kept, so that a validation that was interrupted continues there."""
    saved, is_sample = SavedProgress.of(replay), len(asked) < len(replay.trials)
    begin = 0 if is_sample else saved.read()
    if begin:
        show(f"{begin:,} of {len(asked):,} proposals were reproduced by an earlier validation")

    def work(index: int, of: int, tell: Tell) -> None:
        last = monotonic()

        def tell_now_and_then(number: int) -> None:
            nonlocal last
            if (now := monotonic()) > last + TOLD_EACH_SECONDS:
                last = now
                tell(number)

        mine = [number for number in asked[index::of] if number >= begin]
        tell(_repeated(replay, mine, tell_now_and_then))

    reached, shown = [begin] * processes, monotonic()
    for index, told in shared_answers(work, processes):
        if isinstance(told, Inspection):
            saved.remove()
            return told
        reached[index] = len(replay.trials) if told is None else int(str(told)) + 1
        if (now := monotonic()) > shown + TOLD_EACH_SECONDS:
            shown, first = now, min(reached)
            lost = "" if is_sample else saved.keep(first)
            show(f"{first:,} of {len(replay.trials):,} proposals reproduced{lost and f'; {lost}'}")
    saved.remove()
    return None


def _made_again(replay: Replay, asked: Collection[int], tell: Callable[[int], object]) -> None:
    """Repeats these proposals in the order of the journal. Raises _Differs at the first that differs."""
    config, seed = replay.opened.config, graph_from_json(replay.opened.seed_graph)
    run = _RunSoFar(replay)
    jobs = Jobs.of(config, seed, run)
    each = WORK_OF_A_PROPOSAL if _is_cheap(config) else WORK_OF_A_DEARER_ONE
    jobs.search.most_work = LEAST_WORK + each * len(asked)
    for event in replay.decisions:
        run.follow(event)
        if isinstance(event, Dispatched) and event.attempt > 1:
            _compare_again(jobs.again(event.group), event)
            jobs.follow(event)
        elif isinstance(event, Dispatched) and event.trial.number in asked:
            made = jobs.propose(event.trial.number, event.group)
            _compare(made.trial, event.trial)
            jobs.follow(made)
            tell(event.trial.number)
        else:
            jobs.follow(event)


def _steered(replay: Replay) -> str:
    """Describes failures that could have steered the search; empty if there are few.

    Nothing proves a failure. Whoever wants other proposals could call each unwelcome network failed, at once
    or after its validations, or lose it as often as it is tried.
    """
    stories = replay.trials.values()
    failed = sum(story.state is State.FAILED for story in stories)
    lost = sum(story.state is State.LOST and len(story.attempts) >= ATTEMPTS for story in stories)
    ended = lost + sum(story.state in TOLD for story in stories)
    if failed + lost <= max(FEW_FAILURES, MOST_FAILURES * ended):
        return ""
    share = percent(MOST_FAILURES, 0)
    return (
        f"{failed + lost} of {ended} trials failed, more than {share}: the proposals follow from that, and "
        "nothing proves a failure"
    )


def _compare(made: Trial, recorded: Trial) -> None:
    """Raises _Differs if a proposal is not the recorded one, with the first difference."""
    where = f"trial {recorded.number}: from the results so far the search proposes"
    if (made.parent, made.morphisms) != (recorded.parent, recorded.morphisms):
        raise _Differs(f"{where} {_shown(made)}, not {_shown(recorded)}")
    for field, name in _NAMES.items():
        proposed, stands = getattr(made, field), getattr(recorded, field)
        if proposed != stands:
            raise _Differs(f"{where} the {name} {encode(proposed)}, not {encode(stands)}")


def _compare_again(made: Dispatched | None, recorded: Dispatched) -> None:
    """A further attempt: after its group was lost, or with half the batch size."""
    number, attempt = recorded.trial.number, recorded.attempt
    if made is None or (made.trial.number, made.attempt) != (number, attempt):
        raise _Differs(f"trial {number}: there was no reason for attempt {attempt}")
    if made.trial.hyper != recorded.trial.hyper:
        raise _Differs(
            f"trial {number}, attempt {attempt}: the hyper-parameters should be {encode(made.trial.hyper)}, "
            f"not {encode(recorded.trial.hyper)}"
        )


def _shown(trial: Trial) -> str:
    """A proposal as a contradiction names it: its morphisms and its parent."""
    edits = ", ".join(type(morphism).__name__ for morphism in trial.morphisms) or "no morphism"
    return f"{edits} of {'the seed' if trial.parent is None else f'trial {trial.parent}'}"


# Work that is shared by processes which need nothing but what this process has read


def num_processes() -> int:
    """Processes that may work at the same time: one per processor that this process may use; 0 on other
    systems than Linux, which have no safe fork."""
    return min(allowed_cores(), MOST_PROCESSES) if sys.platform == "linux" else 0


def shared_answers(work: Work, processes: int) -> Iterator[tuple[int, object]]:
    """Shares the work between this many forked processes. Yields what each tells, with its index, until all
    have ended; if the caller stops earlier, they are ended.

    Raises AiperfError if a process dies.
    """
    from multiprocessing.connection import Connection, wait

    with _started(work, processes) as (listening, children):
        while listening:
            for connection in wait(list(listening)):
                assert isinstance(connection, Connection)
                index = listening[connection]
                try:
                    told = connection.recv()
                except EOFError:
                    del listening[connection]
                    connection.close()
                    children[index].join()
                    if children[index].exitcode:
                        why = f"exit code {children[index].exitcode}"
                        raise AiperfError(f"a process that checked a part of the run ended: {why}") from None
                else:
                    yield index, told


@contextlib.contextmanager
def _started(work: Work, processes: int) -> Iterator[tuple[dict[Connection, int], list[BaseProcess]]]:
    """Starts the processes. However the caller leaves, they are ended and their pipes closed."""
    import multiprocessing

    fork = multiprocessing.get_context("fork")  # so that a long run is neither read nor held again
    listening: dict[Connection, int] = {}
    children: list[BaseProcess] = []
    try:
        for index in range(processes):
            reader, writer = fork.Pipe(duplex=False)
            child = fork.Process(target=_child, args=(work, index, processes, writer), daemon=True)
            with warnings.catch_warnings():
                # Threads of numpy may exist, which Python 3.12 warns of. They are idle, and a child that
                # starts no threads and takes no lock of theirs does not miss them.
                warnings.simplefilter("ignore", DeprecationWarning)
                child.start()
            writer.close()
            listening[reader] = index
            children.append(child)
        yield listening, children
    finally:
        for started in children:
            started.terminate()
        for started in children:
            started.join()
        for reader in listening:
            reader.close()


def _child(work: Work, index: int, processes: int, writer: Connection) -> None:
    """Does one part in a forked process, and ends quietly if the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process ends its children
    with contextlib.suppress(BrokenPipeError):  # the parent process was killed, so nobody waits for this
        work(index, processes, writer.send)
        writer.close()
