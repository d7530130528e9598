"""Submissions: an honest one is VALID, and of a changed one every change is caught; the system's description,
and peaks that the operator of a list adds."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from aiperf.errors import AiperfError
from aiperf.hardware.peak import listed
from aiperf.journal.run_files import RunFiles
from aiperf.rules.rule import Outcome
from analysis.exports.result import result
from analysis.readings.judgement import Judged, examine
from analysis.submissions import unpacking, verify
from analysis.submissions.canonical import canonical, parse
from analysis.submissions.peaks import read_peaks
from analysis.submissions.schema import check
from analysis.submissions.signature import make_key
from analysis.submissions.system import contradictions, from_this_machine, largest
from analysis.submissions.verify import Checked, checked
from tests.aiperf.rules.forged import found
from tests.analysis.exports.test_result import leaves, with_leaf
from tests.analysis.packages import Contents, changed, contents, described, make, packed, resealed
from tests.journals import CIFAR, Machine, Scene, resized, told, write_run
from tests.tables import ComesTo

RESULT, JOURNAL, CONFIG, MORE = (
    f"runs/{name}"
    for name in ("short/result.json", "short/journal.jsonl", "short/config.toml", "more/journal.jsonl")
)
MANIFEST, SEAL, SYSTEM = "manifest.json", "seal.json", "system.json"


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> RunFiles:
    """Half a minute of two groups: every change of what lies beside it is packed and checked anew."""
    return write_run(tmp_path_factory.mktemp("runs") / "short", resized(CIFAR, 0.5), Machine(groups=2))


@pytest.fixture(scope="module")
def judged(short: RunFiles) -> Judged:
    return examine(short)


@pytest.fixture(scope="module")
def package(short: RunFiles, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("package") / "result.tar.gz", short)


@pytest.fixture(scope="module")
def files(package: Path) -> Contents:
    return contents(package)


@pytest.fixture
def one_count(judged: Judged, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal is as it was: it is counted once for all changes of what lies beside it."""
    stated = result(judged)
    monkeypatch.setattr(verify, "examine", lambda *given: judged)
    monkeypatch.setattr(verify, "result", lambda judged: stated)


def refused(files: Contents, folder: Path) -> str:
    """All reasons why a package with these files is not VALID."""
    try:
        with checked(packed(folder / "p.tar.gz", files)) as found:
            assert not found.valid
            reasons = [*found.reasons, *(reason for run in found.runs for reason in run.reasons)]
            return "\n".join(f"{reason.where}: {reason.text}" for reason in reasons)
    except AiperfError as error:
        return f"refused: {error}"


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


def flips(value: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The value with one field changed, for each of its fields."""
    for path in leaves(value):
        leaf = value
        for step in path:
            leaf = leaf[step]
        yield path, with_leaf(value, path, other(leaf))


def test_an_honest_package_is_valid(package: Path, short: RunFiles, tmp_path: Path) -> None:
    with checked(package) as found:
        assert found.valid
        assert (found.reasons, [run.reasons for run in found.runs]) == ([], [[]])
        assert [run.name for run in found.runs] == ["short"]
        assert found.contact.organisation == "Example University"
        assert found.system["division"] == "open"
        assert found.signed_by is None
    assert make(tmp_path / "again.tar.gz", short).read_bytes() == package.read_bytes()
    with checked(make(tmp_path / "two.tar.gz", short, short)) as found:
        assert found.valid
        assert [run.name for run in found.runs] == ["short", "short-2"]


def test_the_ranks_own_logs_go_with_the_journal(tmp_path: Path) -> None:
    run = write_run(tmp_path / "simulated", told(Scene(minutes=0.1)))
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
    assert "energy.joules is" in refused(resealed({**files, host: half}), tmp_path)


@pytest.mark.usefixtures("one_count")
@pytest.mark.parametrize("name", [MANIFEST, SEAL, SYSTEM])
def test_every_field_that_is_flipped_is_caught(name: str, files: Contents, tmp_path: Path) -> None:
    for _, flipped in flips(parse(files[name])):
        refused({**files, name: canonical(flipped)}, tmp_path)


@pytest.mark.usefixtures("one_count")
def test_a_forger_who_seals_again_is_caught_by_the_journal(
    judged: Judged, files: Contents, tmp_path: Path
) -> None:
    """Each figure of a result, by what the journal gives; one in a package with all checksums computed
    again. The findings are the validator's own."""
    forged = dict(flips(parse(files[RESULT])))
    for path, flipped in forged.items():
        if path[:2] not in (("verdict", "findings"), ("verdict", "validated")):
            assert list(verify.differences(flipped, result(judged))), path
    assert list(verify.differences({"verdict": {"answer": "SIMULATED"}}, {"verdict": {}}))
    better = resealed({**files, RESULT: canonical(forged["score", "ops_per_second"])})
    assert f"{RESULT}: score.ops_per_second is " in refused(better, tmp_path)


def test_a_journal_is_under_its_checksum_and_sealed_again_must_still_be_true(
    files: Contents, tmp_path: Path
) -> None:
    data = files[JOURNAL]
    for place in (0, len(data) // 3, len(data) - 2):
        flipped = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        refused({**files, JOURNAL: flipped}, tmp_path)
    edited = data.replace(b'"correct":', b'"correct":1', 1)
    assert "result.json" in refused(resealed({**files, JOURNAL: edited}), tmp_path)


Forge = Callable[[Contents], Contents]


def without(name: str) -> Forge:
    return lambda files: {key: data for key, data in files.items() if key != name}


def swapped(name: str, data: bytes) -> Forge:
    return lambda files: {**files, name: data}


def sealed(forge: Forge) -> Forge:
    return lambda files: resealed(forge(files))


def edited(name: str, **values: Any) -> Forge:
    return lambda files: changed(files, name, lambda value: {**value, **values})


def hidden(files: Contents) -> Contents:
    """A run's checksum is right, but nothing would ever read it."""
    stated = {"bytes": 3, "sha256": sha256(b"{}\n").hexdigest()}
    more = {**files, MORE: b"{}\n"}
    return resealed(changed(more, MANIFEST, lambda m: {**m, "files": {**m["files"], MORE: stated}}))


@pytest.mark.usefixtures("one_count")
def test_a_forgery_is_refused_with_its_reason(
    files: Contents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
) -> None:
    monkeypatch.setattr(unpacking, "LARGEST_BYTES", 100_000)

    def forged(forge: Forge) -> list[str]:
        return refused(forge(files), tmp_path).replace(f"{tmp_path}/", "").splitlines()

    comes_to_what_was_read("forged_packages.txt", {**globals(), "forged": forged})


FIELDS = (b'"examples":', b'"steps":', b'"seconds":', b'"end":', b'"of":', b'"forward":[')
GIGANTIC = (b"1e999", b"9" * 5000, b"9" * 400, b"99999999999999999999", b"-1", b"NaN")


# No reader takes any but -1, wherever it stands: tests/aiperf/journal/test_file.py.
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
    reasons = refused(resealed({**files, JOURNAL: b"".join(lines[:kept])}), tmp_path)
    assert all(len(line) < 1000 for line in reasons.splitlines())


@pytest.mark.usefixtures("one_count")
def test_a_signature_says_who_and_holds_everything(short: RunFiles, tmp_path: Path) -> None:
    """A forger without the key changes what only the site could vouch for, and seals again."""
    make_key(tmp_path / "site.key")
    path = make(tmp_path / "signed.tar.gz", short, key=tmp_path / "site.key")
    files = contents(path)
    seal = parse(files[SEAL])
    with checked(path) as found:
        assert found.valid
        assert found.signed_by == seal["public_key"]
    for name in ("submitter", "cooling"):
        forged = sealed(edited(SYSTEM, **{name: "another"}))(files)
        assert "the signature does not match the manifest" in refused(forged, tmp_path)
    another = edited(SEAL, public_key=make_key(tmp_path / "other.key"))(files)
    assert "the signature does not match the manifest" in refused(another, tmp_path)
    unsigned = {**files, SEAL: canonical({"manifest_sha256": seal["manifest_sha256"]})}
    with checked(packed(tmp_path / "p", unsigned)) as found:
        assert found.signed_by is None


ABACUS = """
["Abacus 9"]
bf16 = 300
fp32 = 20.5
memory_gib = 80
source = "Abacus 9 data sheet, 2026, table 2"
"""


def test_a_wrong_file_is_one_line(here: Path, comes_to_what_was_read: ComesTo) -> None:
    path = Path("peaks.toml")

    def read(text: str) -> object:
        path.write_text(text, encoding="utf-8")
        return read_peaks(path)

    comes_to_what_was_read("refused_peaks.txt", {"read": read, "ABACUS": ABACUS})
    with pytest.raises(AiperfError, match=r"^peaks\.toml.*not valid TOML"):
        read("[")


def test_an_added_peak_bounds_the_runs_of_a_list_and_changes_no_claim(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", resized(CIFAR, 0.5), Machine(device="Abacus 9"))
    package, given = make(tmp_path / "package.tar.gz", run), tmp_path / "peaks.toml"
    given.write_text(ABACUS.replace("Abacus 9", "abacus-9", 1), encoding="utf-8")

    def judged(**further: object) -> Checked:
        with checked(package, **further) as submission:  # type: ignore[arg-type]
            (only,) = submission.runs
            return only

    before, after = judged(), judged(peaks=read_peaks(given))
    assert before.reasons == after.reasons == []
    assert found(before.judged.verdict, "speed").outcome is Outcome.UNKNOWN
    assert found(after.judged.verdict, "speed").outcome is Outcome.PASSED
    assert (before.judged.score.mfu, listed("Abacus 9")) == (None, None)
    assert after.judged.score.mfu is not None


NAME = "AMD EPYC 7763 64-Core Processor"
CORE = f"processor\t: {{0}}\nmodel name\t: {NAME}\nphysical id\t: {{0}}\ncpu cores\t: 64\n"
CACHED = ("level", "type", "size")
CACHE = "sys/devices/system/cpu/cpu0/cache/index"


# As Linux shows one.
MACHINE = {
    "proc/cpuinfo": "\n".join(CORE.format(number) for number in range(2)),
    "proc/meminfo": "MemTotal:       527806468 kB\nMemFree: 1 kB\n",
    "etc/os-release": 'NAME="Debian"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n',
    "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": "3529052\n",
    **{f"{CACHE}0/{name}": text for name, text in zip(CACHED, ("1", "Data", "32K"))},
    **{f"{CACHE}3/{name}": text for name, text in zip(CACHED, ("3", "Unified", "32768K"))},
}


def test_a_host_of_the_run_tells_of_itself(
    judged: Judged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that took no part says nothing, and one that hides everything is no error."""
    root = tmp_path / "open"
    for name, text in MACHINE.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    assert from_this_machine(judged.replay, root) == {}
    monkeypatch.setattr(socket, "gethostname", lambda: "node0002")
    assert set(from_this_machine(judged.replay, tmp_path)) == {"host_processor_vcpu_count"}
    found = from_this_machine(judged.replay, root)
    found.pop("host_processor_vcpu_count")
    assert found == {
        "host_processor_model_name": NAME,
        "host_processors_per_node": "2",
        "host_processor_core_count": "64",
        "host_memory_capacity": "503.4 GiB",
        "operating_system": "Debian GNU/Linux 12 (bookworm)",
        "host_processor_frequency": "3529 MHz",
        "host_processor_caches": "L1d 32K, L3 32768K",
    }


def test_the_journal_is_believed_before_the_description_which_is_complete(judged: Judged) -> None:
    good = described(judged.files)
    assert contradictions(good, [judged]) == []
    assert contradictions({**good, "number_of_nodes": "400"}, [judged]) == [
        "number_of_nodes is '400', the journal says '2'"
    ]
    assert largest([judged.replay, judged.replay]) is judged.replay
    check("system-1", good, "it")
    for field in ("submitter", "status", "accelerator_model_name"):
        with pytest.raises(AiperfError, match=field):
            check("system-1", {**good, field: ""}, "it")
