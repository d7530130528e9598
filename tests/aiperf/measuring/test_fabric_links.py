"""The fabric between hosts: network namespaces whose links have a known speed, and what libraries report."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from aiperf.config import with_overrides
from aiperf.errors import GroupBroken
from aiperf.host.child_process import answer_file, put
from aiperf.measuring import fabric
from aiperf.score.fabric import FORWARD, coupled_share, expected_share, gradient_bytes, reduce_seconds
from aiperf.tasks.language.task import LANGUAGE
from aiperf.training import worker_process
from aiperf.training.fabric import take_part
from aiperf.wire.fabric import assembled
from aiperf.wire.layout import Disband, Place, layout
from aiperf.wire.messages import FabricMeeting, JoinFabric, Quit, Setup, ToGroup, pack, unpack
from aiperf.wire.reports import Fabric, FabricPart, FromGroup
from nas.record import encode
from tests.aiperf.presets import resolved_preset
from tests.mpi.switch import CABLE, Switch, switch
from tests.tables import ComesTo

# As NCCL 2.22 prints it, from NVIDIA/nccl#1189 and #1814.
REPORT = Path(__file__).with_name("nccl_report.log").read_text(encoding="utf-8")


def test_transports_are_those_that_nccl_reports_or_the_interface_that_gloo_uses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comes_to_what_was_read: ComesTo
) -> None:
    monkeypatch.setattr(fabric, "NETWORKS", tmp_path)
    (tmp_path / "eth0").mkdir()

    def used(interface: str, speed: str) -> str:
        (tmp_path / "eth0" / "speed").write_text(speed)
        return fabric.gloo_transport({"GLOO_SOCKET_IFNAME": interface})

    comes_to_what_was_read("transports.txt", {**vars(fabric), "used": used, "REPORT": REPORT})


def test_rdma_ports_count_if_they_are_active(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fabric, "RDMA", tmp_path)
    assert fabric.rdma_ports() == 0
    for number, state in enumerate(("4: ACTIVE\n", "1: DOWN\n")):
        port = tmp_path / f"mlx5_{number}" / "ports" / "1"
        port.mkdir(parents=True)
        (port / "state").write_text(state)
    assert fabric.rdma_ports() == 1


def test_nccl_prints_its_report_where_it_is_read() -> None:
    environment = {"NCCL_DEBUG": "WARN", "NCCL_DEBUG_FILE": "/scratch/nccl.%h", "NCCL_NET": "IB"}
    fabric.ask_for_report(environment)
    assert environment == {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,P2P,SHM", "NCCL_NET": "IB"}


def test_a_process_whose_rank_has_ended_meets_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux ends it with its parent only from when it has asked for that, seconds after its start."""
    monkeypatch.setattr(fabric, "die_with_parent", lambda: None)
    monkeypatch.setattr(os, "_exit", sys.exit)
    monkeypatch.setattr(fabric, "bind_place", lambda *where: pytest.fail("it begins to measure"))
    place, join = Place(1, (1,), 0, 1), JoinFabric("127.0.0.1", 1, "5ec7e7")
    with answer_file() as file:
        put(str(file.fileno()), {"place": encode(place), "join": encode(join), "parent": os.getpid()})
        with pytest.raises(SystemExit):
            fabric.measure(str(file.fileno()), "cpu", "0", "-1")


@pytest.mark.parametrize("message", [Quit(), Disband()])
def test_a_run_that_ends_before_the_ranks_have_met_ends_its_workers(message: ToGroup) -> None:
    told = list[FromGroup]()
    setup = Setup(resolved_preset("digits"), {}, "", fabric_seconds=60.0)
    with pytest.raises(GroupBroken, match=f"{type(message).__name__} came before the fabric was measured"):
        take_part(setup, Place(1, (1, 2), 0, 2), "cpu", told.append, lambda: message)
    (meeting,) = told
    assert isinstance(meeting, FabricMeeting)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((meeting.host, meeting.port), 10)


def test_a_run_that_ends_before_a_group_has_met_ends_its_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """With a line that says why, and no word to the master."""
    ours, theirs = socket.socketpair()
    master, place = Connection(ours.detach()), Place(2, (1, 2), 1, 2)
    words = ["--socket", str(theirs.fileno()), "--device", "cpu", "--place", json.dumps(encode(place))]
    for message in (Setup(resolved_preset("digits"), {}, str(tmp_path)), Quit()):
        master.send_bytes(pack(message))
    for name in ("die_with_parent", "outlive"):
        monkeypatch.setattr(worker_process, name, lambda: None)
    monkeypatch.setattr(os, "_exit", sys.exit)
    monkeypatch.setattr(sys, "argv", ["worker", *words])
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    with master, pytest.raises(SystemExit):
        worker_process.main()
    theirs.detach()
    assert "Quit came before the group had met" in capfd.readouterr().err


# What a worker does with its master: messages as hexadecimal lines.
WORKER = """
import json, sys
from aiperf.proposing import plan
from aiperf.training import worker_process
from aiperf.training.fabric import take_part
from aiperf.wire.layout import Place
from aiperf.wire.messages import Setup, ToGroup, pack, unpack
from nas.record import decode

plan.COUPLED_SECONDS = 120.0  # the machine may be busy with other tests

def receive():
    return unpack(ToGroup, bytes.fromhex(sys.stdin.readline()))

def send(message):
    print(pack(message).hex(), flush=True)

take_part(receive(), decode(Place, json.loads(sys.argv[1])), "cpu", send, receive)
"""


@contextmanager
def shaped(megabits: Sequence[float]) -> Iterator[Switch]:
    """Hosts node0, node1, … with links of this speed."""
    with switch() as hosts:
        for number, each in enumerate(megabits):
            hosts.add(f"node{number}", f"10.78.0.{number + 1}")
            hosts.shape(f"node{number}", each)
        yield hosts


def start(hosts: Switch, name: str, *words: str) -> subprocess.Popen[str]:
    inside = ("unshare", "--uts", "sh", "-ec", 'hostname "$0"; exec "$@"', name)
    return subprocess.Popen(
        ["ip", "netns", "exec", hosts.space(name), *inside, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "GLOO_SOCKET_IFNAME": CABLE, "OMP_NUM_THREADS": "1"},
    )


def measured(hosts: Switch, number: int, seconds: float, cut: int | None = None) -> Fabric:
    """The fabric as a master hears of it; the link of host `cut` is taken down before they meet."""
    names = [f"node{each}" for each in range(number)]
    places = layout([names[0], *names])
    config = with_overrides(resolved_preset("text"), {"training.format": "fp32"})  # its control is small
    setup = Setup(config, {}, "", fabric_seconds=seconds)
    with ExitStack() as stack:
        workers = []
        for host, place in enumerate(places):
            words = (sys.executable, "-c", WORKER, json.dumps(encode(place)))
            workers.append(stack.enter_context(start(hosts, names[host], *words)))
            stack.callback(workers[-1].kill)
            _say(workers[-1], setup)
        meeting, *others = [_heard(worker) for worker in workers]
        assert isinstance(meeting, FabricMeeting)
        assert others == [FabricMeeting(rank) for rank in range(2, number + 1)]
        if cut is not None:
            hosts.cut(names[cut])
        for worker in workers:
            _say(worker, JoinFabric(meeting.host, meeting.port, "5ec7e7"))
        parts = [_heard(worker) for worker in workers]
    assert all(isinstance(part, FabricPart) for part in parts)
    return assembled(parts, range(1, number + 1))  # type: ignore[arg-type]


def _say(worker: subprocess.Popen[str], message: Setup | JoinFabric) -> None:
    assert worker.stdin is not None
    worker.stdin.write(pack(message).hex() + "\n")
    worker.stdin.flush()


def _heard(worker: subprocess.Popen[str]) -> FromGroup:
    assert worker.stdout is not None
    heard: FromGroup = unpack(FromGroup, bytes.fromhex(worker.stdout.readline()))
    return heard


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("tc"), reason="root and tc make shaped links")
@pytest.mark.timeout(300)
def test_a_slow_link_has_the_figure_that_was_set_and_one_that_is_down_ends_in_time() -> None:
    slow = 5e6  # bytes per second of 40 Mbit/s
    with shaped([400, 400, 40, 400]) as hosts:
        found = measured(hosts, 4, 60.0)
        assert found.whole, found
        assert [node.host for node in found.nodes] == ["node0", "node1", "node2", "node3"]
        of_node2, others = [found.rounds[0][0], found.rounds[1][1]], [found.rounds[0][1], found.rounds[1][0]]
        # The link bounds the figure from above; from below, so may other programs.
        assert all(0.5 * slow < rate < 1.2 * slow for rate in of_node2), found.rounds
        assert min(others) > 2 * max(of_node2), found.rounds
        assert found.over_all
        assert next(iter(found.transports)).startswith("sockets on cable")
        assert not [node for node in found.nodes if node.within]
        # Long enough to import torch on a busy machine, before which nobody knows whose link is down.
        broken = measured(hosts, 2, 20.0, cut=1)
    assert not broken.whole
    assert "no answer in 20 s" in broken.nodes[1].reason
    assert broken.coupled is None


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("tc"), reason="root and tc make shaped links")
@pytest.mark.timeout(600)
def test_with_links_at_a_tenth_the_coupled_share_falls_as_the_formula_says() -> None:
    """What a coupled step takes besides is measured with the fast links: it depends on the processor, which
    other programs share. They may interrupt the all-reduce, too, so the formula is given the rate that was
    set: two ranks send their gradients once each."""
    control, rest, shares = LANGUAGE.control.smaller, 0.0, list[float]()
    assert control is not None
    with shaped([100, 100]) as hosts:
        for megabits in (100, 10):
            for name in hosts.ports:
                hosts.shape(name, megabits)
            found = measured(hosts, 2, 120.0)
            share, seconds = coupled_share(found), gradient_bytes(control) / (megabits * 1e6 / 8)
            assert found.coupled is not None
            assert share is not None, found.coupled.reason
            assert 0.8 * seconds < (reduce_seconds(found, gradient_bytes(control)) or 0.0) < 2 * seconds
            step = found.ranks * found.coupled.batch_size / found.coupled.uncoupled_per_second
            if shares:
                assert share == pytest.approx(expected_share(step, seconds, rest), rel=0.2), (found, rest)
            rest = step / share - FORWARD * step - seconds
            shares.append(share)
    assert shares[1] < 0.5 * shares[0]
