"""The result of a run for machines, in the form of the schema `result-1`."""

from __future__ import annotations

from collections import Counter
from typing import Any

from aiperf.config import Config
from aiperf.journal.mark import mark_of
from aiperf.journal.replay import Replay
from aiperf.score.score import record_of
from analysis.readings.energy import Energy, read_energy
from analysis.readings.fabric import fabric_record
from analysis.readings.judgement import Judged
from analysis.readings.run_tables import engines, num_groups, software, verdict_text, verdict_word
from analysis.readings.score_figures import num_devices
from analysis.readings.trial_rows import line_of_descent, rows
from nas.record import encode

FORM = "aiperf-hpc/result/1"
"""Name and version of the form, as the schema states it."""


def result(judged: Judged) -> dict[str, Any]:
    """A function of the journal and of what the hosts recorded beside it, but for `verdict`: who validates
    may know more or less than who ran."""
    replay, verdict, opened = judged.replay, judged.verdict, judged.replay.opened
    return {
        "form": FORM,
        "run_id": opened.run_id,
        **unmeasured(replay),
        "program": opened.program,
        "code_hash": opened.code_hash,
        "journal": {"lines": replay.lines, "chain": replay.last_chain},
        "verdict": {**answered(judged), "validated": judged.validated, "findings": encode(verdict.findings)},
        "score": record_of(judged.score),
        "energy": _energy(judged),
        **fabric_record(replay),
        "engines": encode(engines(replay)),
        "best": _best(judged),
        "system": _system(replay),
        "data": dict(encode(replay.manifest)),
        "config": _config(opened.config),
    }


def _config(config: Config) -> dict[str, Any]:
    """All settings. Younger ones are left out if they are off, as in the results of runs that did not know
    them: what a package claims is compared with what follows from its journal today."""
    younger = ("notary", "allow_deviating")
    return {name: value for name, value in encode(config).items() if name not in younger or value}


def answered(judged: Judged) -> dict[str, Any]:
    """The answer for machines: of a valid run its class, of any other what it is instead, and why."""
    verdict, validated = judged.verdict, judged.validated
    if judged.valid and verdict.run_class:
        return {"valid": True, "class": verdict.run_class.value}
    word, why = verdict_word(verdict, validated), verdict_text(verdict, validated)
    return {"valid": False, "class": None, "answer": word, "cause": why}


def unmeasured(replay: Replay) -> dict[str, str]:
    """The key `origin` and its value for a run that was not measured; nothing for a measured one."""
    mark = mark_of(replay.opened.origin)
    return {} if mark is None else {"origin": mark.word}


def _energy(judged: Judged) -> dict[str, Any]:
    """The energy of the devices (L0), and under `levels` that of the nodes and of the whole machine. `levels`
    is left out if nobody measured them, as in results that did not know them."""
    operations = judged.score.goodput.operations
    # L0 is always there, and first.
    of_devices, *further = read_energy(judged.files, judged.replay)
    levels = []
    for each in further:
        how = {"source": each.source, "coverage": each.coverage}
        levels.append({"level": each.level.name, **_of_level(each, operations), **how})
    return _of_level(of_devices, operations) | ({"levels": levels} if levels else {})


def _of_level(energy: Energy, operations: int) -> dict[str, Any]:
    """The energy in joules, and the operations per joule; why they are unknown."""
    return {
        "joules": energy.joules,
        "ops_per_joule": energy.ops_per_joule(operations),
        "unknown_because": energy.missing,
    }


def _best(judged: Judged) -> dict[str, Any] | None:
    """The best network and its line from the seed on."""
    # What a reader needs to build the network: its morphisms from the seed on, and the hash of its weights.
    best = judged.replay.best
    if best is None:
        return None
    by_number = {row.number: row for row in rows(judged.replay, judged.recount.counts)}
    return {
        "trial": best.number,
        "weights_sha256": best.attempts[-1].weights,
        "lineage": [
            {
                "trial": row.number,
                "morphisms": encode(judged.replay.trials[row.number].trial.morphisms),
                "validation_error": row.error,
                "ops_per_training_example": row.operations,
                "parameters": row.parameters,
            }
            for row in line_of_descent(by_number, best.number)
        ],
    }


def _system(replay: Replay) -> dict[str, Any]:
    """The machine as the run saw it: what its hosts and devices are called, not what their owner calls
    them."""
    ranks = replay.devices
    devices = Counter(ready.device for ready in ranks.values())
    return {
        "hosts": len({ready.host for ready in ranks.values()}),
        "devices": [{"name": name, "number": num} for name, num in sorted(devices.items())],
        "num_devices": num_devices(replay),
        "groups": num_groups(replay),
        "format": replay.opened.config.training.format,
        "software": software(replay),
        "started": replay.legs[0].began.started if replay.legs else None,
    }
