"""The engine of a trial begins: prepared and checked where it must be, or replaced by the eager one."""

from __future__ import annotations

from aiperf.engines.check import begun, moved, ready
from aiperf.engines.engine import Engine
from aiperf.engines.made import KINDS
from aiperf.training.at_work import AtWork, Report
from aiperf.training.built_trial import BuiltTrial, Rank
from aiperf.wire.messages import Fallback


def begin_engine(rank: Rank, attempt: BuiltTrial, step: int, report: Report) -> None:
    """Makes the wanted engine that of the trial where this is its first step. One that is made anew for each
    network is checked first; all ranks of a group take it, or none.

    Nothing of this is credited. Where it fails the trial goes on eagerly, and an event says so.
    """
    eager, parallel = attempt.engine, rank.parallel
    kind = KINDS[attempt.wanted]
    if attempt.wanted == eager.name or step != kind.begins(parallel.wraps_network):
        return
    begin = begun if kind.is_made_anew else ready
    with AtWork(report):
        engine, reason = begin(attempt.wanted, eager, *attempt.batches.next, parallel)
    if reason:
        _fall_back(attempt, reason, report)
    attempt.engine = engine


def move_engine(rank: Rank, attempt: BuiltTrial, report: Report) -> None:
    """Makes the engine ready again where the group has moved the network's tensors: on all ranks, or none."""
    engine = attempt.engine
    with AtWork(report):
        reason = moved(engine, *attempt.batches.next, rank.parallel)
    if reason:
        engine.release()
        _fall_back(attempt, reason, report)
        attempt.engine = Engine(engine.passes)
        attempt.engine.module = engine.module


def _fall_back(attempt: BuiltTrial, reason: str, report: Report) -> None:
    report(Fallback(attempt.trial.number, attempt.number, attempt.wanted, reason))
    attempt.wanted = Engine.name
