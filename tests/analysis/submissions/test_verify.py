"""Submissions: an honest one is VALID, and of a changed one every change is caught."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from aiperf.errors import AiperfError
from aiperf.files import RunFiles
from analysis.exports.result import result
from analysis.readings.judged import Judged, examine
from analysis.submissions import opening, verify
from analysis.submissions.canonical import canonical, parse
from analysis.submissions.signature import make_key
from analysis.submissions.verify import checked
from tests import journals
from tests.analysis.exports.test_result import leaves, with_leaf
from tests.analysis.packages import Contents, changed, contents, make, packed, resealed
from tests.journals import CIFAR, Machine, Scene, resized, told, write_run

RESULT = "runs/short/result.json"
JOURNAL = "runs/short/journal.jsonl"
HIDDEN = "it belongs to a run that is not in the manifest, and was not checked"


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> RunFiles:
    """A minute of two groups: every change of what lies beside it is packed and checked anew."""
    return write_run(tmp_path_factory.mktemp("runs") / "short", resized(CIFAR, 1.0), Machine(groups=2))


@pytest.fixture(scope="module")
def judged(short: RunFiles) -> Judged:
    return examine(short)


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("key") / "site.key"
    make_key(path)
    return path


@pytest.fixture(scope="module")
def package(short: RunFiles, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("package") / "result.tar.gz", short)


@pytest.fixture(scope="module")
def files(package: Path) -> Contents:
    return contents(package)


@pytest.fixture
def one_count(judged: Judged, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal is as it was: it is counted once for all changes of what lies beside it."""
    monkeypatch.setattr(verify, "examine", lambda files: judged)


def verdict(path: Path) -> tuple[bool, str]:
    """VALID or not, and all reasons; refused is not VALID."""
    try:
        with checked(path) as found:
            reasons = [*found.reasons, *(reason for run in found.runs for reason in run.reasons)]
            return found.valid, "\n".join(f"{reason.where}: {reason.text}" for reason in reasons)
    except AiperfError as error:
        return False, f"refused: {error}"


def other(value: Any) -> Any:
    """Something else of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value * 1.001 + 1e-3
    if isinstance(value, str):
        return ("0" if value[:1] != "0" else "1") + value[1:]
    return 1.0


def test_an_honest_package_is_valid(package: Path) -> None:
    with checked(package) as found:
        assert found.valid
        assert (found.reasons, [run.reasons for run in found.runs]) == ([], [[]])
        assert [run.name for run in found.runs] == ["short"]
        assert found.contact.organisation == "Example University"
        assert found.system["division"] == "open"
        assert found.signed_by is None


def test_the_same_run_gives_the_same_package(package: Path, short: RunFiles, tmp_path: Path) -> None:
    assert make(tmp_path / "again.tar.gz", short).read_bytes() == package.read_bytes()


def test_the_ranks_own_logs_go_with_the_journal(tmp_path: Path) -> None:
    run = journals.write_run(tmp_path / "simulated", told(Scene()))
    with checked(make(tmp_path / "p.tar.gz", run)) as found:
        assert found.valid
        assert found.runs[0].judged.verdict == examine(run).verdict
    assert sum("steps.jsonl" in name for name in contents(tmp_path / "p.tar.gz")) == 2


def test_energy_goes_with_the_journal_and_is_computed_again(tmp_path: Path) -> None:
    machine = Machine(groups=2, devices_per_group=2, watts=300.0)
    run = write_run(tmp_path / "measured", resized(CIFAR, 0.5), machine)
    package = make(tmp_path / "p.tar.gz", run)
    files = contents(package)
    energy = parse(files["runs/measured/result.json"])["energy"]
    with checked(package) as found:
        assert found.valid
        score = found.runs[0].judged.score
        assert energy["joules"] == pytest.approx(4 * 300.0 * score.span_seconds, rel=1e-9)
        assert energy["ops_per_joule"] == pytest.approx(score.ops_per_second / (4 * 300.0), rel=1e-9)
    host = next(name for name in files if "/telemetry/" in name)
    half = files[host].replace(b"300.0", b"150.0")
    valid, reasons = verdict(packed(tmp_path / "half", resealed({**files, host: half})))
    assert not valid
    assert "energy.joules is" in reasons


@pytest.mark.parametrize("nonsense", ["-300.0", "1e400", "9" * 400, "NaN", '"300"', "true", "[]"])
def test_nonsense_in_place_of_power_is_no_energy(nonsense: str, tmp_path: Path) -> None:
    run = write_run(
        tmp_path / "run", resized(CIFAR, 0.2), Machine(groups=1, devices_per_group=1, watts=300.0)
    )
    (path,) = run.telemetry_directory.iterdir()
    path.write_text(path.read_text().replace("300.0", nonsense))
    energy = result(examine(run))["energy"]
    assert energy["joules"] is energy["ops_per_joule"] is None
    assert energy["unknown_because"].startswith("no power of ")


@pytest.mark.usefixtures("one_count")
@pytest.mark.parametrize("name", ["manifest.json", "seal.json", "system.json", RESULT])
def test_every_field_that_is_flipped_is_caught(name: str, files: Contents, tmp_path: Path) -> None:
    value = parse(files[name])
    missed = []
    for path in leaves(value):
        leaf = value
        for step in path:
            leaf = leaf[step]
        flipped = {**files, name: canonical(with_leaf(value, path, other(leaf)))}
        if verdict(packed(tmp_path / "p.tar.gz", flipped))[0]:
            missed.append(path)
    assert missed == []


@pytest.mark.usefixtures("one_count")
def test_a_forger_who_seals_again_is_caught_by_the_journal(files: Contents, tmp_path: Path) -> None:
    """Each figure of a result, with all checksums computed again. The findings are the validator's own."""
    value = parse(files[RESULT])
    missed = []
    for path in leaves(value):
        if path[:2] in (("verdict", "findings"), ("verdict", "validated")):
            continue
        leaf = value
        for step in path:
            leaf = leaf[step]
        forged = resealed({**files, RESULT: canonical(with_leaf(value, path, other(leaf)))})
        if verdict(packed(tmp_path / "p.tar.gz", forged))[0]:
            missed.append(path)
    assert missed == []


def test_every_byte_of_a_journal_is_under_its_checksum(files: Contents, tmp_path: Path) -> None:
    data = files[JOURNAL]
    for place in (0, len(data) // 3, len(data) - 2):
        flipped = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        assert not verdict(packed(tmp_path / "p.tar.gz", {**files, JOURNAL: flipped}))[0]


def test_a_journal_that_is_sealed_again_must_still_be_true(files: Contents, tmp_path: Path) -> None:
    edited = files[JOURNAL].replace(b'"correct":', b'"correct":1', 1)
    valid, reasons = verdict(packed(tmp_path / "p.tar.gz", resealed({**files, JOURNAL: edited})))
    assert not valid
    assert "result.json" in reasons


@pytest.mark.usefixtures("one_count")
def test_a_configuration_beside_the_journal_is_that_in_it(files: Contents, tmp_path: Path) -> None:
    name = "runs/short/config.toml"
    other_config = files[name].replace(b"random_seed = 1", b"random_seed = 2")
    valid, reasons = verdict(packed(tmp_path / "p.tar.gz", resealed({**files, name: other_config})))
    assert (valid, reasons) == (False, f"{name}: it is not the configuration in the journal")


@pytest.mark.usefixtures("one_count")
@pytest.mark.parametrize(
    "field", ["number_of_nodes", "accelerators_per_node", "accelerator_model_name", "framework"]
)
def test_a_description_must_agree_with_the_journal(field: str, files: Contents, tmp_path: Path) -> None:
    forged = resealed(changed(files, "system.json", lambda system: {**system, field: "512"}))
    valid, reasons = verdict(packed(tmp_path / "p.tar.gz", forged))
    assert not valid
    assert reasons.startswith(f"system.json: {field} is '512', the journal says ")


@pytest.mark.usefixtures("one_count")
@pytest.mark.parametrize("name", ["manifest.json", "seal.json", "system.json", RESULT, JOURNAL])
def test_a_file_that_is_missing_or_added_is_named(name: str, files: Contents, tmp_path: Path) -> None:
    without = {key: data for key, data in files.items() if key != name}
    valid, reasons = verdict(packed(tmp_path / "p.tar.gz", without))
    assert not valid
    assert name in reasons or "short" in reasons
    unstated = "runs/more/journal.jsonl"
    more = {**files, unstated: b"{}\n"}
    assert verdict(packed(tmp_path / "p.tar.gz", more)) == (
        False,
        f"{unstated}: it is not in the manifest\n{unstated}: {HIDDEN}",
    )


@pytest.mark.usefixtures("one_count")
def test_no_run_is_hidden_behind_the_manifest(files: Contents, tmp_path: Path) -> None:
    """Its checksum is right, but nothing would ever read it."""
    name = "runs/more/journal.jsonl"
    stated = {"bytes": 3, "sha256": sha256(b"{}\n").hexdigest()}
    more = changed(
        {**files, name: b"{}\n"}, "manifest.json", lambda m: {**m, "files": {**m["files"], name: stated}}
    )
    assert verdict(packed(tmp_path / "p.tar.gz", resealed(more))) == (
        False,
        f"{name}: {HIDDEN}",
    )


@pytest.mark.usefixtures("one_count")
def test_a_smoke_run_is_not_called_closed(files: Contents, tmp_path: Path) -> None:
    forged = resealed(changed(files, "system.json", lambda system: {**system, "division": "closed"}))
    assert verdict(packed(tmp_path / "p.tar.gz", forged)) == (
        False,
        "system.json: division is 'closed', but a run is not of the class ranked",
    )


@pytest.mark.usefixtures("one_count")
def test_another_version_is_told_apart(files: Contents, tmp_path: Path) -> None:
    newer = changed(files, "manifest.json", lambda value: {**value, "form": "aiperf-hpc/package/2"})
    assert "use the version that created it" in verdict(packed(tmp_path / "p", newer))[1]
    newer = changed(files, RESULT, lambda value: {**value, "form": "aiperf-hpc/result/2"})
    assert "use the version that created it" in verdict(packed(tmp_path / "p", resealed(newer)))[1]
    for nonsense in ([], "x", None, {"form": ["aiperf-hpc/package/1"]}):
        assert not verdict(packed(tmp_path / "p", changed(files, "manifest.json", lambda _, n=nonsense: n)))[
            0
        ]


@pytest.mark.usefixtures("one_count")
def test_what_would_fill_the_memory_is_not_parsed(
    files: Contents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "LARGEST_BYTES", 10_000)
    large = {**files, "manifest.json": b"[" + b"[]," * 5000 + b"[]]\n"}
    assert verdict(packed(tmp_path / "p", large)) == (
        False,
        "refused: manifest.json: it has 15,005 bytes; the limit is 10,000",
    )
    name = "runs/short/config.toml"
    for config in (b"a = " + b"[" * 9000, b"a = " + b"9" * 9000, b"#" * 70_000):
        valid, reasons = verdict(packed(tmp_path / "p", resealed({**files, name: config})))
        assert not valid
        assert f"{name}: it cannot be read: it" in reasons


FIELDS = (b'"examples":', b'"steps":', b'"seconds":', b'"end":', b'"of":', b'"forward":[')
GIGANTIC = (b"1e999", b"9" * 5000, b"9" * 400, b"99999999999999999999", b"-1", b"NaN")


# No reader takes any but -1, wherever it stands: tests/aiperf/journal/test_strict.py.
@pytest.mark.parametrize(
    ("field", "number"), [(FIELDS[0], each) for each in GIGANTIC] + [(each, b"-1") for each in FIELDS[1:]]
)
def test_a_gigantic_number_in_a_journal_is_refused_or_contradicted(
    field: bytes, number: bytes, files: Contents, tmp_path: Path
) -> None:
    """Twenty lines are enough: the run has begun, and nothing else is wrong with them."""
    lines = files[JOURNAL].splitlines(keepends=True)
    kept = next(i for i, line in enumerate(lines) if b'"Closed"' in line) + 1
    place = max(i for i in range(kept) if field in lines[i])
    head, tail = lines[place].split(field, 1)
    comma = min(i for i in (tail.find(b","), tail.find(b"}"), tail.find(b"]")) if i >= 0)
    lines[place] = head + field + number + tail[comma:]
    valid, reasons = verdict(packed(tmp_path / "p", resealed({**files, JOURNAL: b"".join(lines[:kept])})))
    assert not valid
    assert all(len(line) < 1000 for line in reasons.splitlines())


def test_a_signature_says_who_and_holds_everything(
    short: RunFiles, judged: Judged, key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forger without the key changes what only the site could vouch for, and seals again."""
    path = make(tmp_path / "signed.tar.gz", short, key=key)
    files = contents(path)
    monkeypatch.setattr(verify, "examine", lambda files: judged)
    with checked(path) as found:
        assert found.valid
        assert found.signed_by == parse(files["seal.json"])["public_key"]
    system = parse(files["system.json"])
    for name in system:
        forged = resealed(changed(files, "system.json", lambda value, n=name: {**value, n: other(value[n])}))
        valid, reasons = verdict(packed(tmp_path / "p", forged))
        assert not valid
        assert "the signature does not match the manifest" in reasons or "system.json" in reasons
    unsigned = {
        **files,
        "seal.json": canonical({"manifest_sha256": parse(files["seal.json"])["manifest_sha256"]}),
    }
    with checked(packed(tmp_path / "p", unsigned)) as found:
        assert found.signed_by is None


def test_another_key_does_not_fit(short: RunFiles, key: Path, tmp_path: Path) -> None:
    files = contents(make(tmp_path / "signed.tar.gz", short, key=key))
    public = make_key(tmp_path / "other.key")
    forged = changed(files, "seal.json", lambda seal: {**seal, "public_key": public})
    assert "the signature does not match the manifest" in verdict(packed(tmp_path / "p", forged))[1]


def test_several_runs_go_into_one_package(short: RunFiles, tmp_path: Path) -> None:
    with checked(make(tmp_path / "p.tar.gz", short, short)) as found:
        assert [one.name for one in found.runs] == ["short", "short-2"]
        assert found.valid
