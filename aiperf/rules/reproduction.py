"""The search, repeated: the proposals of a run follow from its random seed and from the reported results.

So if a morphism, a hyper-parameter or an accuracy that decided a tournament is edited, or a trial removed,
everything after it must change too, training included.
"""

from __future__ import annotations

from aiperf.errors import ConfigError, MissingExtra
from aiperf.journal.attempts import Leg
from aiperf.journal.events import Dispatched, Event, LegBegan
from aiperf.journal.replay import Replay
from aiperf.proposing.foreign_search import SearchFailed
from aiperf.proposing.jobs import Jobs
from aiperf.proposing.proposals import libraries
from aiperf.rules.rule import Evidence, Seen
from aiperf.tasks.registry import task_of
from aiperf.trial import Trial
from nas.record import encode, graph_from_json
from nas.search import Exhausted

MOST_ASKED = 2_000
"""Maximum number of proposals that are repeated for one run, at a few milliseconds each. In a longer run,
every second, third, … one is repeated."""


_NAMES = {"hyper": "hyper-parameters", "round": "round", "epochs": "epochs", "seed": "random seed"}


class _Differs(Exception):
    """The search proposes something else."""


class _SoFar:
    """A run, in the leg that its events have reached."""

    leg: Leg

    def __init__(self, replay: Replay) -> None:
        self.trials = replay.trials
        self._legs = iter(replay.legs)

    def follow(self, event: Event) -> None:
        if isinstance(event, LegBegan):
            self.leg = next(self._legs)


def search(evidence: Evidence) -> Seen:
    """Repeats the proposals in the order of the journal."""
    replay = evidence.replay
    config = replay.opened.config
    version, own = replay.opened.search, task_of(config.data).search_version(config.tuning.name)
    if version != own:
        return Seen(
            f"the run used version {version} of the search; this program has version {own}", known=False
        )
    if not replay.trials:
        return Seen("no trial was dispatched", known=False)
    if evidence.recount.failures:
        return Seen("not every architecture can be rebuilt", known=False)
    try:
        here = libraries(config)
    except ConfigError as error:
        return Seen(str(error), known=False)
    if foreign := sorted(replay.opened.libraries.keys() - here.keys()):
        return Seen("", [f"{', '.join(foreign)} is recorded, but this search does not use it"])
    if other := {name: was for name, was in replay.opened.libraries.items() if here.get(name) != was}:
        told = "; ".join(f"{name} {was}, but {here.get(name)} is installed" for name, was in other.items())
        return Seen(f"the run's proposals depend on {told}", known=False)
    try:
        asked = _made_again(replay)
    except (MissingExtra, SearchFailed) as error:
        return Seen(str(error), known=False)
    except (_Differs, Exhausted, ValueError, LookupError) as error:
        return Seen("", [str(error)])
    return Seen(f"{asked} of {len(replay.trials)} proposals reproduced")


def _made_again(replay: Replay) -> int:
    """The number of proposals reproduced. Raises _Differs at the first that differs."""
    config, seed = replay.opened.config, graph_from_json(replay.opened.seed_graph)
    so_far = _SoFar(replay)
    jobs = Jobs.of(config, seed, so_far)
    every = -(-len(replay.trials) // MOST_ASKED)
    # The choice depends on the whole journal: it cannot be known while lines are still being changed.
    offset, asked = int(replay.last_chain[:8] or "0", 16) % every, 0
    for event in replay.decisions:
        so_far.follow(event)
        if isinstance(event, Dispatched) and event.attempt > 1:
            _compare_again(jobs.again(event.group), event)
            jobs.follow(event)
        elif isinstance(event, Dispatched) and event.trial.number % every == offset:
            made = jobs.propose(event.trial.number, event.group)
            _compare(made.trial, event.trial)
            jobs.follow(made)
            asked += 1
        else:
            jobs.follow(event)
    return asked


def _compare(made: Trial, recorded: Trial) -> None:
    where = f"trial {recorded.number}: from the results so far the search proposes"
    if (made.parent, made.morphisms) != (recorded.parent, recorded.morphisms):
        raise _Differs(f"{where} {_shown(made)}, not {_shown(recorded)}")
    for what in ("hyper", "round", "epochs", "seed"):
        proposed, stands = getattr(made, what), getattr(recorded, what)
        if proposed != stands:
            raise _Differs(f"{where} the {_NAMES[what]} {encode(proposed)}, not {encode(stands)}")


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
    edits = ", ".join(type(morphism).__name__ for morphism in trial.morphisms) or "no morphism"
    return f"{edits} of {'the seed' if trial.parent is None else f'trial {trial.parent}'}"
