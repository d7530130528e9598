"""The image: built by buildah from packaging/Containerfile, and a run in it over a root that is read-only."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from launch.kubernetes import PORT, SSH_OPTIONS, WORKER
from tests.house.tree import ROOT
from tests.packaging.recipes import DEFINITION, FOLDER, cloned, header, interpreter, lines, said, tool

pytestmark = [pytest.mark.recipes, pytest.mark.slow, pytest.mark.torch, pytest.mark.timeout(3000)]

PYTHON = "3.11"
"""Version of Python in Debian bookworm."""
# ROOT USER WORK CACHE COMMAND…: as a runtime starts a container whose root is read-only; without a network.
START = """\
set -e
root=$1 user=$2 work=$3 cache=$4
shift 4
ip link set lo up
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
mount --bind "$work" "$root/work"
mount --bind "$cache" "$root/cache"
for folder in tmp run root; do mount -t tmpfs -o mode=1777 tmpfs "$root/$folder"; done
chmod 700 "$root/root"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
exec chroot --userspec="$user" "$root" "$@"
"""
# WORKER: the script of a worker's pod of the MPI Operator; and what a launcher does with it.
BY_SSH = f"""\
set -e
mkdir -p /root/.ssh
ssh-keygen -q -t ecdsa -N "" -f /root/.ssh/id_rsa
cp /root/.ssh/id_rsa.pub /root/.ssh/authorized_keys
bash -c "$1" &
ssh -p {PORT} {SSH_OPTIONS} 127.0.0.1 aiperf-hpc --version
kill $!
wait $!
"""


class Image:
    """The image, in a storage of its own, and a container of it."""

    def __init__(self, folder: Path, wheels: Path) -> None:
        self.folder = folder
        base, clone = folder / "debian.tar", cloned(folder / "clone")
        keys = header(DEFINITION)
        said(tool("mmdebstrap"), "--variant=minbase", keys["OSVersion"], base, keys["MirrorURL"])
        scratch = self.buildah("from", "scratch")
        self.buildah("add", "--quiet", scratch, base, "/")
        (named,) = [line.split()[1] for line in lines(FOLDER / "Containerfile") if line.startswith("FROM ")]
        self.buildah("commit", "--quiet", scratch, f"docker.io/library/{named}")
        settings = folder / "pip.conf"
        settings.write_text("[global]\nno-index = true\nfind-links = /mnt\n")
        mounts = ("--volume", f"{wheels}:/mnt:ro", "--volume", f"{settings}:/etc/pip.conf:ro")
        how = ("--isolation", "chroot", "--network", "host", "--pull=never", *mounts)
        self.buildah("build", *how, "--tag", "aiperf-hpc", "--file", FOLDER / "Containerfile", clone)
        inspected = json.loads(self.buildah("inspect", "--type", "image", "aiperf-hpc"))
        self.config = inspected["OCIv1"]["config"]
        self.root = self.buildah("mount", self.buildah("from", "--pull=never", "aiperf-hpc"))
        for name in ("work", "cache"):
            (folder / name).mkdir()
            (folder / name).chmod(0o1777)

    def buildah(self, *words: object) -> str:
        storage = ("--root", self.folder / "storage", "--runroot", self.folder / "runroot")
        return said(tool("buildah"), *storage, *words, seconds=2400).strip()

    def starts(self, user: str, *command: str) -> subprocess.CompletedProcess[str]:
        """What a command says in the container, in the image's environment and folder."""
        inside = ["env", "--ignore-environment", f"--chdir={self.config['WorkingDir']}", *self.config["Env"]]
        volumes = (self.folder / "work", self.folder / "cache")
        apart = ("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", START, "sh")
        words = [*apart, self.root, user, *volumes, *inside, *command]
        return subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=600)

    def runs(self, *arguments: str) -> str:
        """What the program prints, as the image's user."""
        answer = self.starts(self.config["User"], *self.config["Entrypoint"], *arguments)
        assert answer.returncode == 0, answer.stdout + answer.stderr
        return answer.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that the build asks pip for; torch as `make` would choose it without an accelerator."""
    folder = tmp_path_factory.mktemp("wheels")
    python = interpreter(PYTHON)
    choose = (sys.executable, ROOT / ".ci/choose_torch.py", python)
    torch = said(*choose, environment=os.environ | {"ACCELERATOR": "none"}).strip()
    download = (python, "-m", "pip", "download", "-q", "-d", folder)
    said(*download, "--require-hashes", "-r", FOLDER / "lock.txt")
    said(*download, "-c", ROOT / "constraints.txt", torch, "setuptools>=77")
    return folder


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory, wheels: Path) -> Iterator[Image]:
    """Removed afterwards: several GB."""
    made = Image(tmp_path_factory.mktemp("image"), wheels)
    yield made
    made.buildah("rm", "--all")
    made.buildah("rmi", "--all", "--force")


def test_a_run_is_fused_and_valid_without_root_and_over_a_root_that_is_read_only(image: Image) -> None:
    assert set(image.config["Volumes"]) == {"/work", "/cache"}
    assert not image.config["User"].startswith("0")
    short = ("run", "--device", "cpu", "--minutes", "0.1", "--set", "training.validate_every_examples=500")
    # Stated, because a busy machine would not measure which step is faster.
    short += ("--step", "fused")
    assert re.search(r"^verdict +VALID", image.runs(*short), re.MULTILINE)
    (journal,) = (image.folder / "work/runs").rglob("journal.jsonl")
    assert '"engine":"fused"' in journal.read_text(encoding="utf-8")
    assert list((image.folder / "cache").rglob("kernels-*.so")), "no compiled steps in the volume"
    answer = image.starts(image.config["User"], "touch", "/opt/aiperf-hpc/file")
    assert "Read-only file system" in answer.stderr


def test_a_pod_of_the_operator_is_reached_by_ssh(image: Image) -> None:
    answer = image.starts("0:0", "bash", "-c", BY_SSH, "bash", WORKER)
    assert answer.returncode == 0, answer.stderr
    assert re.fullmatch(r"aiperf-hpc, version \S+\n", answer.stdout)
