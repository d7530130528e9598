"""The sub-commands that make what leaves the machine, as a person types them."""

from __future__ import annotations

import json
import os
import pty
import shutil
import socket
import struct
import subprocess
import sys
import tarfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from aiperf.commands.looking import watching
from aiperf.commands.looking.serving import LivePage, make_server
from aiperf.errors import AiperfError
from aiperf.files import RunFiles
from tests.aiperf.commands.typed import Typed
from tests.journals import Scene, told, write_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFiles:
    return write_run(tmp_path_factory.mktemp("runs") / "simulated", told(Scene()))


@pytest.fixture
def described(typed: Typed, run: RunFiles, tmp_path: Path) -> Path:
    """A description as a person would complete it."""
    assert typed("package", run.directory, "--print-system") == 0
    system = json.loads(typed.out)
    system |= {"submitter": "Example University", "status": "Preview", "system_name": "Testbed"}
    (tmp_path / "system.json").write_text(json.dumps(system))
    return tmp_path / "system.json"


def test_report_writes_one_page(typed: Typed, run: RunFiles) -> None:
    assert typed("report", run.directory) == 0
    assert typed.out == f"{run.report}\n"
    assert run.report.read_text().startswith("<!doctype html>")


@pytest.mark.usefixtures("undrawn")
def test_a_report_takes_name_and_price_from_the_site_file(
    typed: Typed, run: RunFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    site = 'name = "Cluster X"\nowner = "Example University"\nprice = "30EUR/node-hour"\n'
    (tmp_path / "site.toml").write_text(site)
    assert typed("report", run.directory, "-o", "r.html") == 0
    page = Path("r.html").read_text()
    assert "<h1>Cluster X</h1>" in page
    assert "node-hours at 30 EUR per node-hour" in page
    assert typed("report", run.directory, "-o", "r.html", "--price", "7/node-hour") == 0
    assert "node-hours at 7 per node-hour" in Path("r.html").read_text()
    assert typed("report", run.directory, "--json", "--price", "7/node-hour") == 2
    assert typed.err.startswith("aiperf-hpc: --price is only for the page, not for --json")


@pytest.mark.usefixtures("undrawn")
def test_a_report_that_cannot_be_written_is_one_line(typed: Typed, run: RunFiles, tmp_path: Path) -> None:
    assert typed("report", run.directory, "-o", tmp_path / "absent" / "r.html") == 1
    assert typed.err == (
        f"aiperf-hpc: {tmp_path}/absent/r.html cannot be written: No such file or directory; choose another "
        f"path\n"
    )


def test_package_asks_a_person_for_what_it_cannot_know(run: RunFiles, tmp_path: Path) -> None:
    """At a real terminal: a number that is none is asked for again; Return leaves out what may be."""
    terminal, end = pty.openpty()
    archive = tmp_path / "asked.tar.gz"
    command = [sys.executable, "-m", "aiperf", "package", str(run.directory), "-o", str(archive)]
    command += ["--person", "A. Person", "--address", "person@example.org"]
    answers = ["Example University", "9", "4", "Testbed", *[""] * 60]
    os.write(terminal, "".join(f"{answer}\n" for answer in answers).encode())
    asked = subprocess.run(command, stdin=end, capture_output=True, text=True, timeout=100)
    os.close(terminal)
    os.close(end)
    assert asked.returncode == 0, asked.stderr
    assert "  3  Research, Development, or Internal (RDI)" in asked.stderr
    assert "9 is not in the range 1<=x<=4" in asked.stderr
    with tarfile.open(archive) as packed:
        (name,) = [name for name in packed.getnames() if name.endswith("system.json")]
        told = packed.extractfile(name)
        assert told is not None
        system = json.loads(told.read())
    chosen = [system[name] for name in ("submitter", "status", "system_name")]
    assert chosen == ["Example University", "Preview", "Testbed"]


def test_export_writes_a_file(typed: Typed, run: RunFiles, tmp_path: Path) -> None:
    assert typed("export", run.directory, "--csv", "-o", tmp_path / "x") == 0
    assert typed.out == f"{tmp_path}/x\n"
    assert (tmp_path / "x").read_text().startswith("trial,parent,")


def test_export_of_nothing_says_what_there_is(typed: Typed, run: RunFiles) -> None:
    assert typed("export", run.directory) == 2
    assert "--csv, --mllog, --openmetrics, --dawnbench or --mlperf-inference" in typed.err


def test_export_of_two_formats_is_refused(typed: Typed, run: RunFiles) -> None:
    assert typed("export", run.directory, "--csv", "--mllog") == 2
    assert typed.err.startswith("aiperf-hpc: --csv and --mllog are given; choose one")


def test_a_template_says_what_to_complete_and_what_may_stand_there(typed: Typed, run: RunFiles) -> None:
    assert typed("package", run.directory, "--print-system") == 0
    lacking = [name for name in ("submitter", "status", "system_name") if not json.loads(typed.out)[name]]
    told = typed.err.splitlines()
    assert [line.split(": ")[1] for line in told] == lacking == ["submitter", "status", "system_name"]
    assert told[1].endswith("Research, Development, or Internal (RDI); Preview.")


def test_package_says_what_it_lacks(typed: Typed, run: RunFiles, tmp_path: Path) -> None:
    assert typed("package", run.directory, "-o", tmp_path / "p.tar.gz") == 1
    assert "lacks submitter, status, system_name; add them to a file" in typed.err
    (tmp_path / "bad.json").write_text('{"submiter": "x"}')
    assert typed("package", run.directory, "--system", tmp_path / "bad.json") == 1
    assert "unknown field 'submiter'; known: submitter, division," in typed.err
    (tmp_path / "bad.json").write_text('{"submitter": "x", "submitter": "y"}')
    assert typed("package", run.directory, "--system", tmp_path / "bad.json") == 1
    assert "is not valid JSON: submitter appears twice" in typed.err
    assert not (tmp_path / "p.tar.gz").exists()


@pytest.mark.parametrize(
    ("fields", "options", "told"),
    [
        ({"cooling": None}, (), 'cooling is null, not text; use "" for unknown'),
        ({"system_name": "  "}, (), "lacks system_name"),
        ({"status": "Sold"}, (), "status: 'Sold' is not one of"),
        ({"system_name": "\ud800"}, (), "surrogates not allowed"),
        ({}, ("--licence", ""), "the manifest: licence"),
        ({}, ("--key", "no.key"), "no.key: No such file"),
        ({}, ("-o", "/absent/p.tar.gz"), "give a file in an existing folder with -o"),
        ({}, ("-o", "."), "give a file in an existing folder with -o"),
    ],
)
def test_what_can_be_known_before_the_work_is_told_before_it(
    fields: dict[str, object],
    options: tuple[str, ...],
    told: str,
    typed: Typed,
    run: RunFiles,
    described: Path,
) -> None:
    described.write_text(json.dumps(json.loads(described.read_text()) | fields))
    output = ("-o", described.parent / "p.tar.gz", *options)
    assert typed("package", run.directory, "--system", described, "--address", "a@b", *output) == 1
    assert told in typed.err
    assert "counting" not in typed.err
    assert typed.err.count("\n") == 1


def test_a_description_that_the_journal_contradicts_is_not_packed(
    typed: Typed, run: RunFiles, described: Path, tmp_path: Path
) -> None:
    described.write_text(json.dumps(json.loads(described.read_text()) | {"number_of_nodes": 7}))
    options = ("-o", tmp_path / "p.tar.gz", "--system", described, "--address", "a@b")
    assert typed("package", run.directory, *options) == 1
    assert "number_of_nodes is '7', the journal says '2'" in typed.err
    assert not (tmp_path / "p.tar.gz").exists()


def test_a_package_is_made_signed_and_validated(
    typed: Typed, run: RunFiles, described: Path, tmp_path: Path
) -> None:
    assert typed("key", tmp_path / "site.key") == 0
    public = typed.out.strip()
    package = tmp_path / "p.tar.gz"
    options = ("--system", described, "--address", "a@example.org", "--key", tmp_path / "site.key")
    assert typed("package", run.directory, "-o", package, *options) == 0
    assert typed("validate", package) == 0
    assert typed.out.rstrip().endswith("package VALID")
    assert f"signed by {public}" in typed.out
    data = package.read_bytes()
    package.write_bytes(data[:-20] + b"x" + data[-19:])
    assert typed("validate", package) == 2
    assert typed.err.count("\n") == 1


@pytest.mark.usefixtures("undrawn")
def test_rank_writes_a_site(typed: Typed, run: RunFiles, described: Path, tmp_path: Path) -> None:
    folder = tmp_path / "packages"
    folder.mkdir()
    assert typed("rank", folder) == 1
    assert "no package (*.tar.gz)" in typed.err
    options = ("--system", described, "--address", "a@example.org")
    typed("package", run.directory, "-o", folder / "a.tar.gz", *options)
    (folder / "b.tar.gz").write_bytes(b"garbage")
    assert typed("rank", folder, "-o", tmp_path / "site") == 0
    assert typed.out == f"1 ranked, 1 not: {tmp_path}/site/index.html\n"
    assert {path.name for path in (tmp_path / "site").iterdir()} == {
        "index.html",
        "ranking.csv",
        "ranking.json",
        "example-university-testbed-simulated.html",
    }


def test_scaling_refuses_and_names(typed: Typed, run: RunFiles, tmp_path: Path) -> None:
    one = write_run(tmp_path / "one", told(Scene(groups=1)))
    assert typed("scaling", one.directory, run.directory, "-o", tmp_path / "study") == 0
    assert typed.out.startswith("| run | nodes | devices | sustained OPS |")
    assert (tmp_path / "study" / "scaling.png").stat().st_size > 1000
    other = write_run(tmp_path / "other", told(Scene(groups=1, epochs=5)))
    assert typed("scaling", other.directory, run.directory, "-o", tmp_path / "study") == 1
    assert "training.epochs is (20,) there and (5,) here" in typed.err


def test_compare_prints_and_writes(typed: Typed, run: RunFiles, tmp_path: Path) -> None:
    assert typed("compare", run.directory, run.directory, "-o", tmp_path / "c.html") == 0
    assert typed.out.startswith("The second run is as fast as the first.")
    assert (tmp_path / "c.html").read_text().startswith("<!doctype html>")


def test_validate_is_kept_for_the_report(typed: Typed, run: RunFiles) -> None:
    assert typed("validate", run.directory) == 0
    assert json.loads(run.validation.read_text())["lines"] > 0


def test_status_watches_until_the_end(
    typed: Typed, run: RunFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A journal that another thread writes; the terminal shows its last state and the command returns."""
    monkeypatch.setattr(watching, "LEAST_SECONDS", 0.01)
    growing = RunFiles(tmp_path / "growing")
    growing.directory.mkdir()
    lines = run.journal.read_bytes().splitlines(keepends=True)
    growing.journal.write_bytes(b"".join(lines[:10]))

    def write() -> None:
        for place in range(10, len(lines), 50):
            with growing.journal.open("ab") as file:
                file.write(b"".join(lines[place : place + 50]))
            time.sleep(0.005)

    writer = threading.Thread(target=write)
    writer.start()
    assert typed("status", growing.directory, "--watch") == 0
    writer.join()
    assert "ended: deadline" in typed.out
    assert "credited so far" in typed.out


@pytest.fixture(scope="module")
def server(run: RunFiles) -> Iterator[ThreadingHTTPServer]:
    with make_server(LivePage(run), 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def fetched(server: ThreadingHTTPServer, path: str = "/", host: str = "") -> tuple[int, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{server.server_port}{path}")
    if host:
        request.add_header("Host", host)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_serve_shows_the_run_on_loopback_only(server: ThreadingHTTPServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    status, text = fetched(server)
    assert status == 200
    assert "sustained OPS" in text
    assert "connect-src &#39;self&#39;" in text
    assert fetched(server, "/metrics")[1].rstrip().endswith("# EOF")
    assert fetched(server, "/../../etc/passwd")[0] == 404


def test_serve_answers_to_its_own_name_only(server: ThreadingHTTPServer) -> None:
    """At any port: a tunnel may begin at another."""
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example:8321", ":8321"):
        assert fetched(server, host=host) == (403, "open this page as 127.0.0.1 or localhost or [::1]\n"), (
            host
        )
    for host in ("127.0.0.1:9000", "localhost:1", "[::1]:9000", "localhost"):
        assert fetched(server, host=host)[0] == 200, host


def test_a_browser_that_turns_away_is_worth_no_line(
    server: ThreadingHTTPServer, capfd: pytest.CaptureFixture[str]
) -> None:
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", server.server_port)) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
    assert fetched(server)[0] == 200
    assert capfd.readouterr().err == ""


def test_a_journal_that_is_gone_is_told_in_a_line(run: RunFiles, tmp_path: Path) -> None:
    gone = RunFiles(tmp_path / "gone")
    shutil.copytree(run.directory, gone.directory)
    live = LivePage(gone)
    live.html()
    gone.journal.unlink()
    with pytest.raises(AiperfError, match=r"journal\.jsonl cannot be read: No such file"):
        live.metrics()


def test_a_port_that_is_taken_is_one_line(server: ThreadingHTTPServer, run: RunFiles) -> None:
    with pytest.raises(AiperfError, match="choose another with --port"):
        make_server(LivePage(run), server.server_port)


def test_a_run_that_is_not_there_is_told_at_once(typed: Typed, tmp_path: Path) -> None:
    for command in ("serve", "report"):
        assert typed(command, tmp_path) == 1
        assert "no journal at" in typed.err


WITHOUT = """\
import sys
for name in {names!r}:
    sys.modules[name] = None  # an import raises
from aiperf.start import main
sys.exit(main())
"""


def test_a_missing_extra_is_named(run: RunFiles) -> None:
    command = [sys.executable, "-c", WITHOUT.format(names=["jinja2"]), "report", str(run.directory)]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert answer.returncode == 1
    assert answer.stderr == (
        "aiperf-hpc: jinja2 is not installed; remedy: pip install '.[report]' in a checkout of aiperf-hpc\n"
    )


def test_what_reads_a_journal_needs_no_extra(run: RunFiles) -> None:
    names = ["jinja2", "matplotlib", "prometheus_client", "cryptography", "jsonschema", "torch"]
    command = [sys.executable, "-c", WITHOUT.format(names=names), "validate", str(run.directory)]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (answer.returncode, answer.stderr) == (0, "")
