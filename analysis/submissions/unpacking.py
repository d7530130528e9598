"""A package opened: unpacked into a folder of its own, its checksums and its seal compared."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from aiperf.errors import AiperfError
from aiperf.journal.run_files import RunFiles
from aiperf.os_error import unreadable
from analysis.submissions.archive import FORM, PackageFiles, read_archive
from analysis.submissions.canonical import CanonicalError, parse
from analysis.submissions.schema import check
from analysis.submissions.signature import SignatureError, verify
from nas.bounded import file_digest, read_bytes
from nas.frozen import frozen

LARGEST_BYTES = 32 << 20
"""Largest file that is read whole. A manifest of as many files as an archive may hold has two thirds of
it."""
SEAL_KEYS = {"manifest_sha256", "algorithm", "public_key", "signature"}
"""All that a seal may hold; without a signature it has the hash alone."""


@frozen
class Reason:
    """Why a submission is INVALID."""

    where: str
    """The file, or the run."""
    text: str


@frozen
class Unpacked:
    """What an archive held. Its files are gone after `unpacked` is left."""

    files: PackageFiles
    names: Sequence[str]
    """Names of all files as the archive has them."""
    manifest: Mapping[str, Any]
    signed_by: str | None
    """The public key, where there is a signature and it fits."""
    reasons: Sequence[Reason]
    """Reasons against the package as a whole."""


@contextmanager
def unpacked(path: Path) -> Iterator[Unpacked]:
    """Raises AiperfError for a file that is not an archive, a hostile archive, and one without a manifest of
    this version."""
    with tempfile.TemporaryDirectory(prefix="aiperf-hpc-") as temporary:
        names = read_archive(path, Path(temporary))
        files = PackageFiles(Path(temporary))
        manifest = parsed(files.manifest, "manifest.json", names)
        refuse_other_form(manifest, FORM, path)
        check("package-1", manifest, f"{path}: manifest.json")
        reasons = [*_checksums(files, manifest, names)]
        signed_by, seal_reasons = _sealed(files, names)
        yield Unpacked(files, names, manifest, signed_by, [*reasons, *seal_reasons])


@contextmanager
def opened_run(path: Path) -> Iterator[RunFiles]:
    """The run of a package, in a folder that is removed afterwards; PACKAGE/NAME is one of several runs.

    Raises AiperfError if the package was changed after it was sealed. Errors name its files as parts of the
    package.
    """
    package, wanted = (path.parent, path.name) if path.parent.is_file() else (path, "")
    with unpacked(package) as found:
        if found.reasons:
            reason = found.reasons[0]
            raise AiperfError(f"{package} was changed after it was sealed: {reason.where}: {reason.text}")
        name = _chosen(found.manifest["runs"], wanted, package)
        if f"runs/{name}/journal.jsonl" not in found.names:
            raise AiperfError(f"{package} names the run {name} but has no journal of it")
        try:
            yield found.files.run(name)
        except AiperfError as error:
            # The folder's own place is of no use to the reader.
            raise AiperfError(str(error).replace(str(found.files.folder), str(package))) from None


def system_of(files: RunFiles, path: Path) -> Mapping[str, str]:
    """The description of the system in the opened package that a run is part of."""
    folder = files.directory.parents[1]
    return system_in(PackageFiles(folder), [one.name for one in folder.iterdir()], path)


def system_in(files: PackageFiles, names: Sequence[str], path: Path) -> Mapping[str, str]:
    """The description of the system in an unpacked package with these files. Raises AiperfError if it is
    missing or not valid."""
    system: Mapping[str, str] = parsed(files.system, "system.json", names)
    check("system-1", system, f"{path}: system.json")
    return system


def _chosen(names: Sequence[str], wanted: str, package: Path) -> str:
    """The name of the run that is meant. Raises AiperfError, which lists the runs, if it is not clear."""
    if wanted in names:
        return wanted
    if wanted or len(names) > 1:
        raise AiperfError(
            f"{package} contains the runs {', '.join(names)}; give one of them, such as {package}/{names[0]}"
        )
    return names[0]


def parsed(path: Path, name: str, names: Sequence[str]) -> Any:
    """The value in a file of a package that holds files of these names. Raises AiperfError if `name` is not
    one of them, or the file is not in the canonical form."""
    if name not in names:
        raise AiperfError(f"the package lacks {name}; it was not created by `aiperf-hpc package`")
    try:
        return parse(read_bytes(path, LARGEST_BYTES))
    except CanonicalError as error:
        raise AiperfError(f"{name}: {error}") from None
    except OSError as error:
        raise AiperfError(unreadable(error, name, "give a whole package")) from None


def refuse_other_form(value: Any, form: str, path: Path) -> None:
    """Raises AiperfError for a manifest or a result of another version."""
    own = value.get("form") if isinstance(value, dict) else None
    if own != form:
        raise AiperfError(
            f"{path} has format {own!r:.80}, but this program reads {form!r}; use the version that created it"
        )


def _checksums(files: PackageFiles, manifest: Mapping[str, Any], names: Sequence[str]) -> Iterator[Reason]:
    """Where the files of a package are not those of its manifest."""
    stated, held = manifest["files"], set(names) - {"manifest.json", "seal.json"}
    for name in sorted(held - stated.keys()):
        yield Reason(name, "it is not in the manifest")
    for name in sorted(stated.keys() - held):
        yield Reason(name[:200], "it is in the manifest but missing")
    of_runs = tuple(f"runs/{name}/" for name in manifest["runs"])
    for name in sorted(name for name in held if name.startswith("runs/") and not name.startswith(of_runs)):
        yield Reason(name, "it belongs to a run that is not in the manifest, and was not checked")
    for name in sorted(held & stated.keys()):
        path = files.folder / name
        if path.stat().st_size != stated[name]["bytes"] or file_digest(path) != stated[name]["sha256"]:
            yield Reason(name, "its checksum differs from the manifest")


def _sealed(files: PackageFiles, names: Sequence[str]) -> tuple[str | None, list[Reason]]:
    """The key that signed the package, None without one, and what is wrong with the seal."""
    seal, manifest = parsed(files.seal, "seal.json", names), read_bytes(files.manifest, LARGEST_BYTES)
    if not isinstance(seal, dict) or not seal.keys() <= SEAL_KEYS:
        return None, [Reason("seal.json", "it is not a seal")]
    if seal.get("manifest_sha256") != sha256(manifest).hexdigest():
        return None, [Reason("manifest.json", "it is not the one that was sealed")]
    if len(seal) == 1:
        return None, []
    try:
        return verify(manifest, seal), []
    except SignatureError as error:
        return None, [Reason("seal.json", str(error))]
