"""A submission checked by whoever has it and nothing else: archive, checksums, journals, results, rules."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from aiperf import toml
from aiperf.config import from_toml
from aiperf.errors import AiperfError, JournalError
from analysis.exports.result import FORM as RESULT_FORM
from analysis.exports.result import result
from analysis.readings.facts import flat
from analysis.readings.judged import Judged, examine
from analysis.submissions.archive import read_archive
from analysis.submissions.canonical import CanonicalError, parse
from analysis.submissions.package import FORM, Contact, PackageFiles
from analysis.submissions.schema import SchemaError, check
from analysis.submissions.signature import SignatureError, verify
from analysis.submissions.system import contradictions
from nas.bounded import file_digest, read_bytes, read_text

NOT_OF_THE_JOURNAL = frozenset({"verdict"})
"""Parts of a result that depend on who validates; only its two answers are compared."""
RELATIVE_ERROR = 1e-9
"""Between two machines' sums of the same numbers; integers are compared exactly."""
SHOWN = 5
LARGEST_BYTES = 32 << 20
"""Of a file that is taken in whole: a manifest of all files that an archive may hold has two thirds of it."""


@dataclass(frozen=True)
class Reason:
    """Why a submission is INVALID."""

    where: str
    text: str


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
    """Against the package as a whole."""
    runs: Sequence[Checked]

    @property
    def valid(self) -> bool:
        return not self.reasons and all(run.valid for run in self.runs)


@contextmanager
def checked(path: Path, show: Callable[[str], object] = lambda text: None) -> Iterator[Submission]:
    """Everything is computed again. `show` is told what is being done.

    Raises AiperfError where the package cannot be read at all: no archive, a hostile one, no manifest of
    this version, no journal. What can be read but is wrong stands in the reasons.
    """
    with tempfile.TemporaryDirectory(prefix="aiperf-hpc-") as temporary:
        names = read_archive(path, Path(temporary))
        files = PackageFiles(Path(temporary))
        manifest = _parsed(files.manifest, "manifest.json", names)
        _refuse_other_form(manifest, FORM, path)
        check("package-1", manifest, f"{path}: manifest.json")
        reasons = [*_checksums(files, manifest, names)]
        signed_by, seal_reasons = _sealed(files, names)
        system = _parsed(files.system, "system.json", names)
        check("system-1", system, f"{path}: system.json")
        runs = []
        for name in manifest["runs"]:
            show(f"{path.name}, {name}: counting every architecture again")
            runs.append(_run(files, name, names))
        told = contradictions(system, [run.judged for run in runs])
        reasons += [Reason("system.json", text) for text in told]
        yield Submission(
            manifest_sha256=file_digest(files.manifest),
            created=manifest["created"],
            licence=manifest["licence"],
            contact=Contact(**manifest["contact"]),
            system=system,
            signed_by=signed_by,
            reasons=[*reasons, *seal_reasons],
            runs=runs,
        )


def _parsed(path: Path, name: str, names: Sequence[str]) -> Any:
    if name not in names:
        raise AiperfError(f"the package lacks {name}; it was not made by `aiperf-hpc package`")
    try:
        return parse(read_bytes(path, LARGEST_BYTES))
    except CanonicalError as error:
        raise AiperfError(f"{name}: {error}") from None
    except OSError as error:
        raise AiperfError(f"{name}: {error.strerror}") from None


def _refuse_other_form(value: Any, form: str, path: Path) -> None:
    own = value.get("form") if isinstance(value, dict) else None
    if own != form:
        raise AiperfError(
            f"{path} is of the form {own!r:.80}, this program reads {form!r}; take the version that made it"
        )


def _checksums(files: PackageFiles, manifest: Mapping[str, Any], names: Sequence[str]) -> Iterator[Reason]:
    stated, held = manifest["files"], set(names) - {"manifest.json", "seal.json"}
    for name in sorted(held - stated.keys()):
        yield Reason(name, "it is not in the manifest")
    for name in sorted(stated.keys() - held):
        yield Reason(name[:200], "the manifest names it, and it is not there")
    of_runs = tuple(f"runs/{name}/" for name in manifest["runs"])
    for name in sorted(name for name in held if name.startswith("runs/") and not name.startswith(of_runs)):
        yield Reason(name, "it is of a run that the manifest does not name, and nobody looked at it")
    for name in sorted(held & stated.keys()):
        path = files.folder / name
        if path.stat().st_size != stated[name]["bytes"] or file_digest(path) != stated[name]["sha256"]:
            yield Reason(name, "it is not the file whose checksum is in the manifest")


def _sealed(files: PackageFiles, names: Sequence[str]) -> tuple[str | None, list[Reason]]:
    seal, manifest = _parsed(files.seal, "seal.json", names), read_bytes(files.manifest, LARGEST_BYTES)
    if not isinstance(seal, dict) or seal.keys() - {
        "manifest_sha256",
        "algorithm",
        "public_key",
        "signature",
    }:
        return None, [Reason("seal.json", "it is no seal")]
    if seal.get("manifest_sha256") != sha256(manifest).hexdigest():
        return None, [Reason("manifest.json", "it is not the one that was sealed")]
    if len(seal) == 1:
        return None, []
    try:
        return verify(manifest, seal), []
    except SignatureError as error:
        return None, [Reason("seal.json", str(error))]


def _run(files: PackageFiles, name: str, names: Sequence[str]) -> Checked:
    run = files.run(name)
    if f"runs/{name}/journal.jsonl" not in names:
        raise AiperfError(f"the package names the run {name} and holds no journal of it")
    try:
        judged = examine(run)
    except JournalError as error:
        # The file's own place is of no use to the reader.
        raise AiperfError(str(error).replace(f"{files.folder}/", "")) from None
    found: list[Reason] = []
    where = f"runs/{name}"
    try:
        claimed = _parsed(run.result, f"{where}/result.json", names)
        _refuse_other_form(claimed, RESULT_FORM, Path(f"{where}/result.json"))
        check("result-1", claimed, "it")
        found += [Reason(f"{where}/result.json", text) for text in _differences(claimed, result(judged))]
    except (AiperfError, SchemaError) as error:
        found.append(Reason(f"{where}/result.json", str(error)))
    try:
        stated = from_toml(read_text(run.config, toml.LARGEST_BYTES), where="it")
        if stated != judged.replay.opened.config:
            found.append(Reason(f"{where}/config.toml", "it is not the configuration in the journal"))
    except (AiperfError, OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        found.append(Reason(f"{where}/config.toml", f"it cannot be read: {why}"))
    return Checked(name, judged, found)


def _differences(claimed: Mapping[str, Any], own: Mapping[str, Any]) -> Iterator[str]:
    """What a result claims otherwise than its journal says."""
    answers = [("verdict.valid", "valid"), ("verdict.class", "class")]
    for path, answer in answers:
        if claimed["verdict"][answer] != own["verdict"][answer]:
            yield f"{path} is {claimed['verdict'][answer]!r}, the journal gives {own['verdict'][answer]!r}"
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
