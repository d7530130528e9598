"""A submission: journals, results, configurations and the system description in one archive.

A package holds all that a validator needs and nothing that the journal hides, unless its owner wants the
names in it. It is gathered in a temporary folder and judged there: what the ranking will say of it is known
before it is sent. The manifest has the hash of every file, the seal that of the manifest and, with a key, its
signature.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from aiperf import __version__
from aiperf.config import to_toml
from aiperf.errors import AiperfError
from aiperf.journal.names import Names
from aiperf.journal.notary import NotaryFileError, answers
from aiperf.journal.replay import Replay
from aiperf.journal.run_files import RunFiles
from aiperf.journal.spot_checks import chosen_in
from aiperf.rules.ending import shortfall
from aiperf.score.credit import credit
from aiperf.wording import counted
from analysis.exports.result import result
from analysis.readings.energy import Level, kept_power
from analysis.readings.judgement import Judged, examine, read_run
from analysis.readings.run_tables import listed
from analysis.submissions.archive import FORM, PackageFiles, refuse_existing, write_archive
from analysis.submissions.canonical import canonical
from analysis.submissions.schema import check
from analysis.submissions.signature import sign
from analysis.submissions.system import contradictions
from nas.bounded import LONGEST_LINE, file_digest, lines, opened
from nas.frozen import frozen

COUNTED: Mapping[str, str] = {
    r"journal\.jsonl": "journal",
    r"logs/.*": "rank log",
    r"telemetry/.*": "telemetry file",
    r"power/.*": "record of a site's meters",
    r"notary/.*": "notary file",
    r"weights/.*": "network",
}
"""What a package has of its runs, by the names of the files, in the singular."""
LEFT_OUT = "the names of hosts, users, paths, devices, images, jobs and addresses, and process numbers"
"""What the private file of a run holds, as messages to users name it."""


@frozen
class Contact:
    """Whom to ask about a submission."""

    organisation: str
    person: str
    address: str
    """An address of any kind, such as one for mail."""


def write_package(
    output: Path,
    runs: Sequence[RunFiles],
    system: Mapping[str, str],
    contact: Contact,
    licence: str,
    created: str,
    key: Path | None,
    show: Callable[[str], object],
    with_weights: bool = False,
    redact: bool = False,
) -> list[Judged]:
    """Writes the archive; returns the runs as they are seen from the archive alone.

    `created`: time of day, UTC, ISO 8601. `key`: file of a private key to sign with. `show` receives
    what is being done. `with_weights`: also of each run the network that was tested. `redact`: without the
    names that the journals hide. Raises AiperfError for what cannot be read or written, or is not a valid
    description of these runs; what can be checked before the long work is.
    """
    _refuse(output, system, contact, licence, created, key)
    with tempfile.TemporaryDirectory(prefix="aiperf-hpc-") as temporary:
        files = PackageFiles(Path(temporary))
        # A directory's name may tell a user or a project, so a redacted package has the run's id instead.
        names = _names([_published_id(run) if redact else run.directory.resolve().name for run in runs])
        judged = []
        for name, run in zip(names, runs):
            show(f"{run.directory}: recounting all operations")
            judged.append(_gather(run, files.run(name), with_weights))
            if not redact:
                _copy_names(run, files.run(name), judged[-1].replay.opened.salt_sha256)
        if wrong := contradictions(system, judged):
            raise AiperfError(f"the system description: {'; '.join(wrong)}")
        files.system.write_bytes(canonical(dict(system)))
        manifest = canonical(_manifest(files.held(), names, contact, licence, created))
        files.manifest.write_bytes(manifest)
        seal: dict[str, Any] = {"manifest_sha256": sha256(manifest).hexdigest()}
        if key is not None:
            seal |= sign(manifest, key)
        files.seal.write_bytes(canonical(seal))
        write_archive(output, files.held())
        show(published_text(output, files.held(), all(one.replay.opened.salt_sha256 for one in judged)))
    return judged


def published_text(output: Path, held: Mapping[str, Path], hides: bool) -> str:
    """One line on what a package publishes and what it leaves out."""
    names = [name.split("/", 2)[-1] for name in held]
    numbers = {what: sum(bool(re.fullmatch(form, name)) for name in names) for form, what in COUNTED.items()}
    counts = [counted(number, what) for what, number in numbers.items() if number]
    text = f"{output} publishes {listed(['the system description', 'the contact', *counts])}"
    if "private.jsonl" in names:
        return f"{text}, with {LEFT_OUT}; --redact leaves those out"
    return f"{text}; left out: {LEFT_OUT}" if hides else f"{text}, with the names of hosts, paths and jobs"


def refuse_unfinished(replay: Replay, run: RunFiles) -> None:
    """Raises AiperfError for a run without a result: there is nothing to submit."""
    found = shortfall(replay, credit(replay).any, run.directory)
    if found is not None:
        raise AiperfError(f"{run.directory} cannot be submitted: {found.answer.value}: {found.text}")


def _gather(run: RunFiles, target: RunFiles, with_weights: bool) -> Judged:
    """Copies what a validator needs, and judges the copy: nothing else will be at hand."""
    witnesses = run.witness("x", 0).parent, target.witness("x", 0).parent
    recorded = run.telemetry_directory, target.telemetry_directory
    try:
        target.directory.mkdir(parents=True)
        shutil.copyfile(run.journal, target.journal)
        for (source, folder), kind, copy in (
            (witnesses, "*.steps.jsonl", shutil.copyfile),
            (recorded, "*.jsonl", _copy_telemetry),
        ):
            for file in sorted(source.glob(kind)):
                folder.mkdir(exist_ok=True)
                copy(file, folder / file.name)
        _copy_answers(run, target)
        _copy_power(run, target)
        _copy_spot_checked(run, target)
        if with_weights:
            _copy_weights(run, target)
    except OSError as error:
        raise AiperfError(f"{error.filename}: {error.strerror}; give a run directory") from None
    judged = examine(target)
    target.config.write_text(to_toml(judged.replay.opened.config), encoding="utf-8")
    target.result.write_bytes(canonical(result(judged)))
    return judged


def _copy_answers(run: RunFiles, target: RunFiles) -> None:
    """What a notary signed for each leg: hashes, numbers and times, and nothing else that was put there."""
    for path in sorted(run.notary_directory.glob("*.answers.jsonl")):
        found = list[str]()
        with suppress(NotaryFileError):
            found += (answer.line() for answer in answers(path))
        if path.name.partition(".")[0].isdecimal() and found:
            target.notary_directory.mkdir(exist_ok=True)
            (target.notary_directory / path.name).write_text("".join(found), encoding="utf-8")


def _copy_power(run: RunFiles, target: RunFiles) -> None:
    """What the site's own meters measured, with names as the journal hides them, also in a file that was put
    there by hand. Raises AiperfError for one that is not a record of power."""
    for level in Level:
        if (path := run.power(level.name)).exists():
            target.power(level.name).parent.mkdir(exist_ok=True)
            text = kept_power(run, read_run(run), level, path)
            target.power(level.name).write_text(text, encoding="utf-8")


def _copy_spot_checked(run: RunFiles, target: RunFiles) -> None:
    """The weights that the answers chose. Of others, the answer came after the run, or not at all."""
    held = set(run.spot_checked())
    for each in chosen_in(target, read_run(target)) if held else ():
        trial = each.ending.trial
        if trial in held:
            target.weights_directory.mkdir(exist_ok=True)
            shutil.copyfile(run.spot_weights(trial), target.spot_weights(trial))


def _copy_telemetry(source: Path, target: Path) -> None:
    """Without the reasons why a sensor was not read, which may have paths of the site in them."""
    with opened(source) as read, target.open("wb") as write:
        for raw in lines(read):
            # One that is still being written, or that has a hole, whose end is never reached.
            if not raw.endswith(b"\n"):
                break
            write.write(_without_reasons(raw) if b'"unknown"' in raw else raw)


def _without_reasons(raw: bytes) -> bytes:
    """A line of telemetry without the texts of errors; nothing for a line that is not JSON."""
    try:
        record = json.loads(raw)
    except (ValueError, RecursionError):
        return b""
    parts = [record]
    while parts:  # by no sensor's name, so that a new one is not forgotten here
        part = parts.pop()
        if isinstance(part, dict):
            part.pop("unknown", None)
            parts += part.values()
        elif isinstance(part, list):
            parts += part
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def _copy_names(run: RunFiles, target: RunFiles, published: str) -> None:
    """The private file, if it is there and fits, once the run is judged: what is judged is what the journal
    says without it."""
    if published and Names.at(run.private, published).salt:
        shutil.copyfile(run.private, target.private)


def _published_id(run: RunFiles) -> str:
    """The run's name as its journal has it, with whatever it hides. Raises AiperfError for a journal that
    hides no names: they cannot be taken out of its chain."""
    with opened(run.journal) as file:
        first = json.loads(file.readline(LONGEST_LINE))
    if not first.get("salt_sha256"):
        raise AiperfError(
            f"{run.journal} was written by a version that recorded names in the clear, and its chain holds "
            "them; omit --redact, or run again"
        )
    return str(first["run_id"])


def _copy_weights(run: RunFiles, target: RunFiles) -> None:
    """The network that was tested, which anybody can evaluate again. Raises AiperfError if there is none."""
    tested = read_run(target).tested
    if tested is None:
        raise AiperfError(f"{run.directory}: no network was tested; omit --with-weights")
    target.weights_directory.mkdir(exist_ok=True)
    shutil.copyfile(run.weights(tested.trial), target.weights(tested.trial))


def _refuse(
    output: Path, system: Mapping[str, str], contact: Contact, licence: str, created: str, key: Path | None
) -> None:
    """Raises AiperfError for what is wrong whatever the run is."""
    if output.is_dir() or not output.absolute().parent.is_dir():
        raise AiperfError(f"{output} cannot be written; give a file in an existing folder with -o")
    refuse_existing(output)
    check("system-1", dict(system), "the system description")
    canonical([system, _manifest({}, ["run"], contact, licence, created)])
    if key is not None:
        sign(b"", key)


def _manifest(
    held: Mapping[str, Path], names: Sequence[str], contact: Contact, licence: str, created: str
) -> dict[str, Any]:
    """The content of manifest.json. Raises AiperfError if it is not valid by its schema."""
    manifest = {
        "form": FORM,
        "program": __version__,
        "created": created,
        "licence": licence,
        "contact": vars(contact),
        "runs": list(names),
        "files": {
            name: {"bytes": path.stat().st_size, "sha256": file_digest(path)} for name, path in held.items()
        },
    }
    check("package-1", manifest, "the manifest")
    return manifest


def _names(runs: Sequence[str]) -> list[str]:
    """Folder names that any file system takes, each once."""
    names: list[str] = []
    for run in runs:
        plain = re.sub(r"[^A-Za-z0-9._-]", "-", run).lstrip(".-_")[:80] or "run"
        name, number = plain, 2
        while name in names:
            name, number = f"{plain}-{number}", number + 1
        names.append(name)
    return names
