"""Packages for tests: made, taken apart, changed, and put together again by an honest hand or a forger's."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from aiperf.journal.run_files import RunFiles
from analysis.readings.judgement import read_run
from analysis.submissions.canonical import canonical, parse
from analysis.submissions.keys import Register
from analysis.submissions.package import Contact, write_package
from analysis.submissions.ranking import rank
from analysis.submissions.standing import Standing
from analysis.submissions.system import fields, from_journal

CONTACT = Contact("Example University", "A. Person", "person@example.org")
CREATED = "2026-05-04T10:00:00+00:00"
Contents = dict[str, bytes]
Pages = dict[str, str]
Record = dict[str, Any]
"""A line of a journal."""


def described(run: RunFiles, **given: str) -> dict[str, str]:
    """A system's description for tests, as complete as it must be."""
    own = {"submitter": "Example University", "status": "Preview", "system_name": "Testbed", "cooling": "air"}
    own["division"] = "open"
    return dict.fromkeys(fields(), "") | from_journal(read_run(run)) | own | given


def make(path: Path, *runs: RunFiles, key: Path | None = None, redact: bool = False, **given: str) -> Path:
    system = described(runs[0], **given)
    write_package(path, runs, system, CONTACT, "CC-BY-4.0", CREATED, key, lambda text: None, redact=redact)
    return path


def ranked(*packages: Path, register: Register | None = None, **asked: Any) -> tuple[Standing, Pages]:
    """The ranking of these packages, and its files by name. `asked`: as `rank` takes it."""
    pages: Pages = {}
    return rank(packages, register or {}, pages.__setitem__, lambda text: None, **asked), pages


def contents(path: Path) -> Contents:
    with tarfile.open(path) as tar:
        found = {}
        for member in tar:
            file = tar.extractfile(member)
            assert file is not None
            found[member.name] = file.read()
        return found


def packed(path: Path, files: Mapping[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz", compresslevel=1) as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def changed(files: Contents, name: str, change: Callable[[Any], Any]) -> Contents:
    """One JSON file is another; nothing else follows."""
    return {**files, name: canonical(change(parse(files[name])))}


def resealed(files: Contents, skip: Sequence[str] = ()) -> Contents:
    """The forger's work: checksums and seal computed again; a signature is kept, as nobody can make it."""
    manifest = parse(files["manifest.json"])
    for name in manifest["files"]:
        if name in files and name not in skip:
            data = files[name]
            manifest["files"][name] = {"bytes": len(data), "sha256": sha256(data).hexdigest()}
    sealed = canonical(manifest)
    seal = parse(files["seal.json"]) | {"manifest_sha256": sha256(sealed).hexdigest()}
    return {**files, "manifest.json": sealed, "seal.json": canonical(seal)}


def records_of(run: RunFiles) -> list[Record]:
    return [json.loads(line) for line in run.journal.read_text().splitlines()]


def rechained(records: list[Record]) -> str:
    chain, lines = "", []
    for record in records:
        text = json.dumps({k: v for k, v in record.items() if k != "chain"}, separators=(",", ":"))
        chain = sha256((chain + text).encode()).hexdigest()
        lines.append(f'{text[:-1]},"chain":"{chain}"}}\n')
    return "".join(lines)


def written(records: list[Record], directory: Path) -> RunFiles:
    """A run whose journal has these lines, with a chain that a forger computed."""
    files = RunFiles(directory)
    directory.mkdir(exist_ok=True)
    files.journal.write_text(rechained(records))
    return files
