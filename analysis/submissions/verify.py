"""A submission checked by whoever has it and nothing else: archive, checksums, journals, results, rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aiperf import toml
from aiperf.config import from_toml
from aiperf.errors import AiperfError, JournalError
from aiperf.files import RunFiles
from aiperf.hardware.device_names import folded_name
from aiperf.hardware.peak import Peak, further_peaks
from aiperf.journal.replay import Replay
from aiperf.journal.spot_checks import chosen_in
from aiperf.names import Names
from aiperf.rules.ending import Answer
from aiperf.rules.rule import Finding
from analysis.exports.result import FORM as RESULT_FORM
from analysis.exports.result import result
from analysis.readings.judgement import Judged, examine
from analysis.readings.run_tables import flat
from analysis.submissions.package import Contact, PackageFiles
from analysis.submissions.schema import SchemaError, check
from analysis.submissions.system import contradictions
from analysis.submissions.unpacking import Reason, parsed, refuse_other_form, unpacked
from nas.bounded import file_digest, read_text

NOT_OF_THE_JOURNAL = frozenset({"verdict"})
"""Parts of a result that depend on who validates; only its two answers are compared."""
RELATIVE_ERROR = 1e-9
"""Largest relative difference between two machines' sums of the same numbers; integers are compared
exactly."""
NO_PEAKS: Mapping[str, Peak] = {}
SHOWN = 5
_NOT_TESTED = "these are the weights of a network that was neither tested nor chosen for a spot check"


@dataclass(frozen=True)
class Checked:
    """One run of a submission."""

    name: str
    judged: Judged
    reasons: Sequence[Reason]

    @property
    def valid(self) -> bool:
        return self.judged.verdict.valid and not self.reasons


@dataclass(frozen=True)
class Submission:
    """A package that could be read. Its runs lie in a folder that is gone after `checked` is left."""

    manifest_sha256: str
    created: str
    licence: str
    contact: Contact
    system: Mapping[str, str]
    signed_by: str | None
    """The public key, where there is a signature and it fits."""
    reasons: Sequence[Reason]
    """Reasons against the package as a whole."""
    runs: Sequence[Checked]

    @property
    def answer(self) -> Answer:
        """The answer on its worst run; INVALID also for what is wrong with the package."""
        if self.reasons or any(run.reasons for run in self.runs):
            return Answer.INVALID
        answers = {run.judged.verdict.answer for run in self.runs}
        worst_first = (Answer.INVALID, Answer.SIMULATED, Answer.NO_RESULT, Answer.INCOMPLETE)
        return next((answer for answer in worst_first if answer in answers), Answer.VALID)

    @property
    def valid(self) -> bool:
        return self.answer is Answer.VALID


@dataclass
class Findings:
    """The findings on all journals that this process has judged, so that the proposals of none are repeated
    twice: with the peaks of a list, for the page of a median, and in a copy."""

    by_journal: dict[tuple[str, int], Sequence[Finding]] = field(default_factory=dict)
    """By the last hash of the chain, which all lines decide, and the number of lines."""

    def of(self, replay: Replay) -> Sequence[Finding]:
        # A journal whose chain is broken can end with any hash.
        known = self.by_journal.get((replay.last_chain, replay.lines), ())
        return () if replay.broken else known

    def note(self, judged: Judged) -> None:
        replay = judged.replay
        if not replay.broken:
            self.by_journal[replay.last_chain, replay.lines] = judged.verdict.findings


@contextmanager
def checked(
    path: Path,
    show: Callable[[str], object] = lambda text: None,
    peaks: Mapping[str, Peak] = NO_PEAKS,
    findings: Findings | None = None,
) -> Iterator[Submission]:
    """Everything is computed again. `show` receives what is being done. `peaks`: devices that a list adds to
    those that this program lists, by name. What a package claims is compared without them. `findings`: those
    of the packages before.

    Raises AiperfError where the package cannot be read at all: no archive, a hostile one, no manifest of
    this version, no journal. What can be read but is wrong stands in the reasons.
    """
    with unpacked(path) as found:
        files, manifest, names = found.files, found.manifest, found.names
        system = parsed(files.system, "system.json", names)
        check("system-1", system, f"{path}: system.json")
        runs = []
        for name in manifest["runs"]:
            show(f"{path.name}, {name}: recounting all operations")
            runs.append(_run(files, name, names, peaks, show, Findings() if findings is None else findings))
        told = contradictions(system, [run.judged for run in runs])
        reasons = [*found.reasons, *(Reason("system.json", text) for text in told)]
        yield Submission(
            manifest_sha256=file_digest(files.manifest),
            created=manifest["created"],
            licence=manifest["licence"],
            contact=Contact(**manifest["contact"]),
            system=system,
            signed_by=found.signed_by,
            reasons=reasons,
            runs=runs,
        )


def _run(
    files: PackageFiles,
    name: str,
    names: Sequence[str],
    peaks: Mapping[str, Peak],
    show: Callable[[str], object],
    findings: Findings,
) -> Checked:
    run = files.run(name)
    if f"runs/{name}/journal.jsonl" not in names:
        raise AiperfError(f"the package names the run {name} but has no journal of it")
    try:
        judged = _examined_without_names(run, show, findings)
        findings.note(judged)
    except JournalError as error:
        # The file's own place is of no use to the reader.
        text = str(error).replace(f"{files.folder}/", "")
        raise AiperfError(text if f"runs/{name}" in text else f"runs/{name}: {text}") from None
    if (short := judged.verdict.shortfall) is not None:
        told = replace(short, remedy=short.remedy.replace(f"{files.folder}/", ""))
        judged = replace(judged, verdict=replace(judged.verdict, shortfall=told))
    found: list[Reason] = []
    where = f"runs/{name}"
    try:
        claimed = parsed(run.result, f"{where}/result.json", names)
        refuse_other_form(claimed, RESULT_FORM, Path(f"{where}/result.json"))
        check("result-1", claimed, "it")
        found += [Reason(f"{where}/result.json", text) for text in _differences(claimed, result(judged))]
    except (AiperfError, SchemaError) as error:
        found.append(Reason(f"{where}/result.json", str(error)))
    try:
        stated = from_toml(read_text(run.config, toml.LARGEST_BYTES), where="it")
        if stated != judged.replay.opened.config:
            found.append(Reason(f"{where}/config.toml", "it is not the configuration in the journal"))
    except (AiperfError, OSError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        found.append(Reason(f"{where}/config.toml", f"it cannot be read: {why}"))
    found += [Reason(f"{where}/weights/{path.name}", _NOT_TESTED) for path in _needless(judged)]
    devices = {folded_name(ready.device) for ready in judged.replay.devices.values()}
    if not devices.isdisjoint(map(folded_name, peaks)):
        with further_peaks(peaks):
            judged = examine(run, show, findings.of)
    return Checked(name, judged, found)


def _examined_without_names(run: RunFiles, show: Callable[[str], object], findings: Findings) -> Judged:
    """The private file of a package is not read to judge it, so no name in it can change a verdict; that it
    does not fit is reported."""
    aside = run.private.with_suffix(".aside")
    there_is_one = run.private.exists()
    if there_is_one:
        run.private.rename(aside)
    try:
        judged = examine(run, show, findings.of)
    finally:
        if there_is_one:
            aside.rename(run.private)
    if there_is_one and judged.replay.opened.salt_sha256:
        Names.at(run.private, judged.replay.opened.salt_sha256)
    return judged


def _needless(judged: Judged) -> Iterator[Path]:
    """Weights that nobody evaluates again."""
    tested, files = judged.replay.tested, judged.files
    needed = set() if tested is None else {files.weights(tested.trial)}
    if files.spot_checked():
        needed |= {files.spot_weights(each.ending.trial) for each in chosen_in(files, judged.replay)}
    return (path for path in sorted(files.weights_directory.glob("*")) if path not in needed)


def _differences(claimed: Mapping[str, Any], own: Mapping[str, Any]) -> Iterator[str]:
    """Where a claimed result contradicts the one from its journal."""
    for answer in ("valid", "class", "answer"):
        said, found = (one["verdict"].get(answer) for one in (claimed, own))
        if said != found:
            yield f"verdict.{answer} is {said!r}, the journal gives {found!r}"
    told = flat({name: value for name, value in claimed.items() if name not in NOT_OF_THE_JOURNAL})
    true = flat({name: value for name, value in own.items() if name not in NOT_OF_THE_JOURNAL})
    wrong = [name for name in sorted(told.keys() | true.keys()) if not _same(told.get(name), true.get(name))]
    for name in wrong[:SHOWN]:
        yield f"{name} is {told.get(name)!r:.80}, the journal gives {true.get(name)!r:.80}"
    if len(wrong) > SHOWN:
        yield f"and {len(wrong) - SHOWN} more fields"


def _same(claimed: Any, own: Any) -> bool:
    if isinstance(claimed, float) and isinstance(own, float):
        return math.isclose(claimed, own, rel_tol=RELATIVE_ERROR, abs_tol=1e-12)
    if isinstance(claimed, (list, tuple)) and isinstance(own, (list, tuple)):
        return len(claimed) == len(own) and all(map(_same, claimed, own))
    if isinstance(claimed, dict) and isinstance(own, dict):
        return claimed.keys() == own.keys() and all(_same(claimed[key], own[key]) for key in own)
    return type(claimed) is type(own) and claimed == own
