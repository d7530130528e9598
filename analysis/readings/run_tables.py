"""What a run was, in tables of words: its machine, its configuration, its findings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from aiperf.config import EAGER, Config, load_preset, preset_names
from aiperf.journal.mark import mark_of, marked
from aiperf.journal.replay import Replay
from aiperf.rules.rule import Kind, Outcome
from aiperf.rules.verdict import Verdict
from aiperf.tasks.images.known_sets import PACKED
from aiperf.wording import bytes_text, counted, in_a_row, moment, plain
from analysis.table import Table
from nas.frozen import frozen

VALUES_SHOWN = 4
"""Most values shown of a name that differs between ranks, such as the cores that a rank is bound to."""
JOB = "job"
"""Name of the batch job's number in the surroundings. It differs between any two runs and changes nothing,
so it is not compared."""
SHA256 = re.compile("[0-9a-f]{64}")
"""A hash, of which twelve digits are shown: they tell two apart."""
_QUESTIONS = {Kind.INTEGRITY: "is it true?", Kind.ELIGIBILITY: "is it ranked?"}


def devices_text(replay: Replay) -> str:
    """ "8 × NVIDIA A100-SXM4-80GB on 4 hosts"; of a run that was not measured with its mark."""
    return marked(devices_and_hosts(replay), mark_of(replay.opened.origin))


def devices_and_hosts(replay: Replay) -> str:
    """The same without the mark, for callers that set it elsewhere."""
    by_rank = replay.counted_legs[-1].devices if replay.legs else {}
    if not by_rank:
        return "no rank was ready"
    kinds = Counter(ready.device for ready in by_rank.values())
    num_hosts = len({ready.host for ready in by_rank.values()})
    named = ", ".join(f"{num:,} × {kind}" for kind, num in sorted(kinds.items()))
    return f"{named} on {counted(num_hosts, 'host')}{_over_hosts_text(hosts_of_groups(replay))}"


def hosts_of_groups(replay: Replay) -> tuple[int, int]:
    """The least and the greatest number of hosts on which the ranks of a group lie, over all counted legs; 1
    each if no rank was ready."""
    numbers = {len(leg.hosts_of(group)) for leg in replay.counted_legs for group in range(leg.groups)} - {0}
    return min(numbers, default=1), max(numbers, default=1)


def _over_hosts_text(hosts: tuple[int, int]) -> str:
    """ ", each group over 2 of them"; empty if every group has one host."""
    least, most = hosts
    if most == 1:
        return ""
    return (
        f", each group over {most} of them" if least == most else f", groups over {least} to {most} of them"
    )


def packed_text(replay: Replay) -> str:
    """How images were decoded beforehand, "packed at 256² by Pillow 13.0.0, …"; empty if they were not.

    Anybody can write a journal, so its words are shortened here and stripped of control characters.
    """
    if replay.manifest.get("name") != PACKED:
        return ""
    packed = replay.manifest.get("packed")
    told = packed if isinstance(packed, Mapping) else {}
    digest, decoder = f"{told.get('sha256')!s:.12}", f"{told.get('decoder')!s:.80}"
    return plain(f"packed at {told.get('side')!s:.9}² by {decoder}, SHA-256 {digest}…")


def machine(replay: Replay) -> Table:
    """What all ranks have in common, and how the run was started."""
    rows = [["devices", devices_text(replay)]]
    for leg in replay.legs:
        ready = leg.devices
        name = "leg" if len(replay.legs) == 1 else f"leg {leg.index}"
        initialised = "" if leg.released is None else f", ready after {leg.released - leg.first:.0f} s"
        rows.append([name, f"began {moment(leg.began.started)}{initialised}"])
        rows.append([f"{name}'s command", " ".join(leg.began.command)])
        rows.append([f"{name}'s groups", _groups_text(leg.began.groups)])
        memory = sorted({one.memory_bytes for one in ready.values()})
        if memory:
            ends = dict.fromkeys((memory[0], memory[-1]))  # one value, if all devices have as much
            rows.append([f"{name}'s device memory", " to ".join(map(bytes_text, ends))])
    rows += [[name, value] for name, value in (software(replay) | surroundings(replay)).items()]
    rows.append(["aiperf-hpc", f"{replay.opened.program}, code {replay.opened.code_hash}"])
    return Table(("", ""), rows, (False, False))


def software(replay: Replay) -> dict[str, str]:
    """Versions of the software, by name."""
    return _of_ranks([ready.software for ready in replay.devices.values()])


def versions(replay: Replay) -> dict[str, str]:
    """As `software`, with the version and the code of this program."""
    return software(replay) | {"aiperf-hpc": replay.opened.program, "code": replay.opened.code_hash}


def environment(replay: Replay) -> dict[str, str]:
    """What two runs on one machine should have in common, by name: versions, threads, governor, variables."""
    found = versions(replay) | surroundings(replay)
    return {name: value for name, value in found.items() if name != JOB}


def surroundings(replay: Replay) -> dict[str, str]:
    """What the ranks computed in, by name: instruction set, governor, job, container, variables, and the
    threads that were chosen before the span."""
    chosen = {rank: ceiling.threads for leg in replay.counted_legs for rank, ceiling in leg.ceilings.items()}
    told = []
    for ready in replay.devices.values():
        threads = chosen.get(ready.rank)
        told.append({**ready.settings, **({"threads": str(threads)} if threads else {})})
    return _of_ranks(told)


@frozen
class StepsMade:
    """By which engine the steps of some trials were made, and why."""

    engine: str
    because: str
    instead_of: str
    """The engine that failed, as `because` says; empty if the first choice made them."""
    trials: int
    """Number of trials that began; one that began again counts again."""


def engines(replay: Replay) -> list[StepsMade]:
    """One for each engine and reason, the most frequent first; none where nothing chose an engine."""
    made: Counter[tuple[str, str, str]] = Counter()
    for attempt in replay.attempts:
        if attempt.began is None or not attempt.chosen:
            continue
        fallback = attempt.fallback
        if fallback is None:
            made[attempt.engine, attempt.chosen, ""] += 1
        else:
            made[EAGER, fallback.reason, fallback.engine] += 1
    return [StepsMade(*how, times) for how, times in made.most_common()]


def engines_text(replay: Replay) -> list[str]:
    """The same in words, a line each, and the numbers of threads on CPUs."""
    found = engines(replay)
    total = sum(made.trials for made in found)
    texts = []
    for made in found:
        how = (
            f", because {made.instead_of} failed ({made.because})"
            if made.instead_of
            else f" ({made.because})"
        )
        share = "" if len(found) == 1 else f": {made.trials:,} of {total:,} trials"
        texts.append(f"{made.engine}{how}{share}")
    threads = Counter(
        tuple(sorted(set(attempt.threads))) for attempt in replay.attempts if attempt.began is not None
    )
    del threads[()]  # of devices that are not CPUs, and of older journals
    return texts + ([_threads_text(threads)] if threads else [])


def _threads_text(trials: Mapping[tuple[int, ...], int]) -> str:
    """ "2 threads in 12 trials, 1 in 3": the number of trials by the numbers of threads of their ranks."""
    most = sorted(trials.items(), key=lambda item: (-item[1], item[0]))
    words = [f"{' or '.join(map(str, counts))} in {number:,}" for counts, number in most]
    first, number = most[0]
    unit = "thread" if first == (1,) else "threads"
    words[0] = f"{' or '.join(map(str, first))} {unit} in {counted(number, 'trial')}"
    return ", ".join(words)


def _of_ranks(told: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Each name with its value; if ranks differ, the most frequent values and how many ranks have each."""
    found = {}
    for name in dict.fromkeys(name for one in told for name in one):
        values = Counter(one.get(name, "absent") for one in told)
        shown = [
            f"{value} ({num:,} of {len(told):,} ranks)" for value, num in values.most_common(VALUES_SHOWN)
        ]
        more = [f"{len(values) - VALUES_SHOWN:,} more"] if len(values) > VALUES_SHOWN else []
        found[name] = next(iter(values)) if len(values) == 1 else ", ".join([*shown, *more])
    return found


def configuration(config: Config) -> Table:
    """All settings."""
    rows = [[name, setting_text(value)] for name, value in flat(asdict(config)).items()]
    return Table(("setting", "value"), rows, (False, False))


def changes(config: Config) -> Table:
    """The settings that are not those of the preset, beside the preset's."""
    own = flat(asdict(config))
    rows = [
        [name, setting_text(own[name]), setting_text(usual)]
        for name, usual in changed_settings(config).items()
    ]
    return Table(("setting", "value", "in the preset"), rows, (False, False, False))


def changed_settings(config: Config) -> dict[str, Any]:
    """The preset's values of the settings that were given otherwise."""
    if config.preset not in preset_names():
        return {}
    usual, own = flat(asdict(load_preset(config.preset))), flat(asdict(config))
    return {name: usual[name] for name in usual if name in own and own[name] != usual[name]}


def flat(record: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Nested tables by dotted key."""
    found: dict[str, Any] = {}
    for name, value in record.items():
        found |= flat(value, f"{path}{name}.") if isinstance(value, Mapping) else {path + name: value}
    return found


def setting_text(value: Any) -> str:
    """The value of a setting in words."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (tuple, list)):
        value = in_a_row(value)
    text = "none" if value == "" else str(value)
    return f"{text:.12}…" if SHA256.fullmatch(text) else text


def rules(verdict: Verdict) -> Table:
    """The findings, with what failed and what is unknown first."""
    order = {Outcome.FAILED: 0, Outcome.UNKNOWN: 1, Outcome.PASSED: 2}
    found = sorted(verdict.findings, key=lambda f: (order[f.outcome], f.kind is Kind.ELIGIBILITY))
    rows = [[f.rule, _QUESTIONS[f.kind], f.outcome.value, f.text] for f in found]
    return Table(("rule", "question", "outcome", "what was found"), rows, (False, False, False, False))


def verdict_word(verdict: Verdict, validated: bool) -> str:
    """The verdict in a word or two. A run whose operations nobody recounted is not yet called VALID."""
    return verdict.answer.value if validated or not verdict.valid else "NOT VALIDATED"


def verdict_and_class(verdict: Verdict, validated: bool) -> str:
    """The word with the class of a VALID run: "VALID, ranked"."""
    of_class = f", {verdict.class_text}" if verdict.class_text else ""
    return verdict_word(verdict, validated) + of_class


def verdict_text(verdict: Verdict, validated: bool) -> str:
    """One sentence after the word."""
    if not verdict.valid:
        return verdict.cause
    if not validated:
        return "The operations are as the journal states them; `aiperf-hpc validate` recounts them."
    unmet = [f.rule.removeprefix("ranked ") for f in verdict.unmet]
    if not unmet:
        return "Class ranked: every rule of a ranked result is met."
    rules = "the rule" if len(unmet) == 1 else "the rules"
    return f"Class smoke: a ranked result must also meet {rules} {listed(unmet)}."


def listed(words: Sequence[str]) -> str:
    """ "a, b and c"."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def num_groups(replay: Replay) -> int:
    """Groups of the run: the most that a leg had."""
    return max((leg.groups for leg in replay.counted_legs), default=0)


def _groups_text(groups: Sequence[Sequence[int]]) -> str:
    """ "4 of 2 ranks"."""
    sizes = Counter(len(group) for group in groups)
    return ", ".join(f"{num:,} of {size} rank{'s' * (size != 1)}" for size, num in sorted(sizes.items()))
