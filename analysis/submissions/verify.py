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
from aiperf.hardware.device_names import folded_name
from aiperf.hardware.peak import Peak, further_peaks
from aiperf.journal.names import Names
from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from aiperf.journal.spot_checks import chosen_in
from aiperf.rules.ending import Answer
from aiperf.rules.rule import Finding
from analysis.exports.result import FORM as RESULT_FORM
from analysis.exports.result import result
from analysis.readings.judgement import Judged, examine
from analysis.readings.run_tables import flat
from analysis.submissions.archive import PackageFiles
from analysis.submissions.package import Contact
from analysis.submissions.schema import check
from analysis.submissions.system import contradictions
from analysis.submissions.unpacking import Reason, parsed, refuse_other_form, system_in, unpacked
from nas.bounded import file_digest, read_text
from nas.frozen import frozen

RELATIVE_ERROR = 1e-9
"""Largest relative difference between two machines' sums of the same numbers; integers are compared
exactly."""
NO_PEAKS: Mapping[str, Peak] = {}
"""A list adds no devices."""
SHOWN = 5
"""Most wrong fields of a result that are named."""
NOT_TESTED = "these are the weights of a network that was neither tested nor chosen for a spot check"
"""Why a file of weights is not accepted: nobody evaluates it, and packages are kept for years."""


@frozen
class Checked:
    """One run of a submission."""

    name: str
    """Its folder in the package."""
    judged: Judged
    reasons: Sequence[Reason]
    """What contradicts the journal."""

    @property
    def valid(self) -> bool:
        """Whether nothing contradicts the run."""
        return self.judged.verdict.valid and not self.reasons


@frozen
class Submission:
    """A package that could be read. Its runs lie in a folder that is gone after `checked` is left."""

    manifest_sha256: str
    """Hash of the manifest, which names the package."""
    created: str
    """When it was packed, by the submitter's clock: ISO 8601, UTC."""
    licence: str
    """Licence of the data, as the submitter states it."""
    contact: Contact
    system: Mapping[str, str]
    """The description of the system by field."""
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
        """Whether nothing is wrong with the package, and all of its runs are valid."""
        return self.answer is Answer.VALID


@dataclass
class Findings:
    """The findings on all journals that this process has judged, so that the proposals of none are repeated
    twice: with the peaks of a list, for the page of a median, and in a copy."""

    by_journal: dict[tuple[str, int], Sequence[Finding]] = field(default_factory=dict)
    """By the last hash of the chain, which all lines decide, and the number of lines."""

    def of(self, replay: Replay) -> Sequence[Finding]:
        """The findings on this journal, if it was judged before; otherwise empty."""
        # A journal whose chain is broken can end with any hash.
        known = self.by_journal.get((replay.last_chain, replay.lines), ())
        return () if replay.broken else known

    def note(self, judged: Judged) -> None:
        """Remembers the findings on a journal."""
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
        system = system_in(files, names, path)
        findings, runs = findings or Findings(), []
        for name in manifest["runs"]:
            show(f"{path.name}, {name}: recounting all operations")
            runs.append(_run(files, name, names, peaks, show, findings))
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
    """One run of a package, judged from its journal alone. Raises AiperfError if the journal is missing or
    cannot be read."""
    run = files.run(name)
    where = f"runs/{name}"
    if f"{where}/journal.jsonl" not in names:
        raise AiperfError(f"the package names the run {name} but has no journal of it")
    try:
        judged = _examined_without_names(run, show, findings)
        findings.note(judged)
    except JournalError as error:
        # The file's own place is of no use to the reader.
        text = str(error).replace(f"{files.folder}/", "")
        raise AiperfError(text if where in text else f"{where}: {text}") from None
    if (short := judged.verdict.shortfall) is not None:
        told = replace(short, remedy=short.remedy.replace(f"{files.folder}/", ""))
        judged = replace(judged, verdict=replace(judged.verdict, shortfall=told))
    reasons = [
        *(Reason(f"{where}/result.json", text) for text in _wrong_result(run, where, names, judged)),
        *(Reason(f"{where}/config.toml", text) for text in _wrong_config(run, judged)),
        *(Reason(f"{where}/weights/{path.name}", NOT_TESTED) for path in _needless(judged)),
    ]
    devices = {folded_name(ready.device) for ready in judged.replay.devices.values()}
    # What a package claims was compared above without the peaks that the list adds, as it was packed.
    if not devices.isdisjoint(map(folded_name, peaks)):
        with further_peaks(peaks):
            judged = examine(run, show, findings.of)
    return Checked(name, judged, reasons)


def _wrong_result(run: RunFiles, where: str, names: Sequence[str], judged: Judged) -> Iterator[str]:
    """What is wrong with the result that a package claims for a run."""
    try:
        claimed = parsed(run.result, f"{where}/result.json", names)
        refuse_other_form(claimed, RESULT_FORM, Path(f"{where}/result.json"))
        check("result-1", claimed, "it")
        yield from differences(claimed, result(judged))
    except AiperfError as error:
        yield str(error)


def _wrong_config(run: RunFiles, judged: Judged) -> Iterator[str]:
    """What is wrong with the configuration next to a journal, which has the true one."""
    try:
        if from_toml(read_text(run.config, toml.LARGEST_BYTES), where="it") != judged.replay.opened.config:
            yield "it is not the configuration in the journal"
    except (AiperfError, OSError) as error:
        yield f"it cannot be read: {error.strerror if isinstance(error, OSError) else error}"


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


def differences(claimed: Mapping[str, Any], own: Mapping[str, Any]) -> Iterator[str]:
    """Where a claimed result contradicts the one from its journal. The findings of a verdict depend on who
    validates, so only its answers are compared."""
    for answer in ("valid", "class", "answer"):
        said, found = (one["verdict"].get(answer) for one in (claimed, own))
        if said != found:
            yield f"verdict.{answer} is {said!r}, the journal gives {found!r}"
    told, true = (
        flat({name: value for name, value in one.items() if name != "verdict"}) for one in (claimed, own)
    )
    wrong = [name for name in sorted(told.keys() | true.keys()) if not _same(told.get(name), true.get(name))]
    for name in wrong[:SHOWN]:
        yield f"{name} is {told.get(name)!r:.80}, the journal gives {true.get(name)!r:.80}"
    if len(wrong) > SHOWN:
        yield f"and {len(wrong) - SHOWN} more fields"


def _same(claimed: Any, own: Any) -> bool:
    """Whether two values of results are equal; floats may differ as the sums of two machines do."""
    if isinstance(claimed, float) and isinstance(own, float):
        return math.isclose(claimed, own, rel_tol=RELATIVE_ERROR, abs_tol=1e-12)
    if isinstance(claimed, (list, tuple)) and isinstance(own, (list, tuple)):
        return len(claimed) == len(own) and all(map(_same, claimed, own))
    if isinstance(claimed, dict) and isinstance(own, dict):
        return claimed.keys() == own.keys() and all(_same(claimed[key], own[key]) for key in own)
    return type(claimed) is type(own) and claimed == own
