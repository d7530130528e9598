"""Site files and prices: what they may hold, how a wrong one is refused, a first one made from answers."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from aiperf.errors import ConfigError
from launch import SCHEDULERS, site, site_draft
from launch.job import Job
from launch.price import parse_price
from launch.script import script_text
from launch.site import Mpi, load_site, site_from_toml
from launch.site_draft import MARK, site_text
from launch.slurm import SRUN
from tests.launch import golden
from tests.tables import ComesTo

SINFO = """\
debug|4|64|(null)|30:00|up
batch*|400|128|(null)|1-00:00:00|up
gpu|64|128+|gpu:a100:8(S:0-1),nvme:1|2-00:00:00|up
old|8|16|gpu:4|infinite|down
npu|32|192|npu:16|1-00:00:00|up
"""


def test_what_is_read_and_what_is_refused(comes_to_what_was_read: ComesTo) -> None:
    """Sites, prices, jobs and their numbers, and what a scheduler does not have."""
    modules = {**vars(site), **vars(site_draft), **vars(golden)}
    names = {"parse_price": parse_price, "replace": replace, "shlex": shlex, "SRUN": SRUN}
    comes_to_what_was_read("outcomes.txt", {**modules, **names, "SINFO": SINFO, "DRAFTS": DRAFTS})
    with pytest.raises(ConfigError, match=r"^s: ."):
        site_from_toml("modules = ", "s")


@pytest.mark.parametrize(
    "text",
    [
        """setup = ["test -e 'a b' || exit 1 # don't ask", "(($#)) && x=$((1 << 2))", "cat <<<$x"]""",
        """mpi = { options = ["--mca btl ^openib", '--bind "$PWD:/a b"', "-x ${NAME}", "'a;b'"] }""",
        "queue = { account = 'a.b-c@d', partition = 'p,q', options = ['--constraint=\"[a|b]\"'] }",
        "container = { image = '~/my images/a.sif', options = ['--bind', '\"$PWD\"'] }",
        "scratch = { directory = '/local/$USER/a b', stage = 'tar -xf \"/a b.tar\" | cat; ls' }",
        "environment = { A = '$(id) `id` \"; x', B = 'Größe' }",
    ],
)
def test_what_stays_in_its_place_is_taken(text: str) -> None:
    for scheduler in (SCHEDULERS[name] for name in ("slurm", "pbs", "lsf")):
        script = script_text(scheduler, replace(site_from_toml(text, "s"), mpi=Mpi("mpirun")), Job(2, 1))
        assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
        head = script[: script.index("\n\n")]
        assert all(line.startswith("#") for line in head.splitlines())


def test_a_site_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    with pytest.raises(ConfigError, match="aiperf-hpc launch init-site"):
        load_site(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="byte 0 is not valid UTF-8; give a site file"):
        load_site(path)


GPU = "gpu*|4|64|{}|1-00:00:00|up"
DRAFTS: Mapping[str, Mapping[str, str]] = {
    "several partitions and accounts": {
        "sinfo": SINFO,
        "mpi": "MPI plugin types are...\n\tnone\n\tpmi2\n\tpmix\nspecific pmix plugin versions: pmix_v4",
        "accounts": "physics|ada\nchemistry|ada\nphysics|bob",
        "modules": "Currently Loaded Modulefiles:\ngcc/13.2\nopenmpi/5.0.3",
    },
    "all": {
        "sinfo": GPU.format("gpu:a100:8"),
        "mpi": "pmix",
        "accounts": "physics|ada",
        "modules": "gcc/13.2",
    },
    "a login node": {"devices": "GPU 0: NVIDIA T4 (UUID: GPU-5a)\n"},
    "one kind by socket": {"sinfo": GPU.format("gpu:a100:4(S:0),gpu:a100:4(S:1),shard:16")},
    "two kinds": {"sinfo": GPU.format("gpu:a100:4,gpu:h100:2")},
    "two resources": {"sinfo": GPU.format("gpu:4,npu:2")},
    "two kinds of nodes": {"sinfo": f"{GPU.format('gpu:a100:4')}\n{GPU.format('gpu:h100:8')}"},
    "no numbers": {"sinfo": GPU.format("gpu:\u00b2,gpu:" + "9" * 5000)},
    "more than answers": {
        "sinfo": "CLUSTER: big\ngpu*|1.2K|64|gpu:a100:4|1-00:00:00|up\nM\ufffd|1|1|(null)|1:00|up\n|",
        "accounts": "M\ufffdller|root\nphysics|ada\n \nsacctmgr: a notice",
        "modules": f"Welcome\n{MARK}\nCurrently Loaded Modulefiles:\ngcc/13.2\n{MARK}\nbye",
    },
}
"""What the commands of a machine print."""


def test_first_sites_are_as_they_were_read(as_it_was_read: Callable[[str, str], None]) -> None:
    """The first site file of a machine that says nothing, then what is different in those of others."""
    usual, shown = site_text({}, "ada", "true"), list[str]()
    for name, said in DRAFTS.items():
        lines = site_text(said, "ada", "true").splitlines()
        shown += [f"## {name}", *(line for line in lines if line not in usual.splitlines())]
    as_it_was_read("\n".join([usual, *shown, ""]), "drafts.txt")


@pytest.mark.parametrize("name", DRAFTS)
def test_a_first_site_can_be_read(name: str) -> None:
    site = site_from_toml(site_text(DRAFTS[name], "ada", 'source "/a b/bin/activate"'), "s")
    assert site.setup == ('source "/a b/bin/activate"',)
