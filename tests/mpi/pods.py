"""Pods on one machine, as the MPI Operator makes them of a manifest: each has a network, a name, a process
table, and files under /etc, /root and /tmp of its own, and its first process is that of the container.

What is not here is the operator itself: this does what its `mpi_job_controller.go` does for a job.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import yaml

from tests.mpi.jobs import OPEN_MPI
from tests.mpi.switch import Switch, switch

# POD: makes what the kubelet mounts, then becomes the first process of the container.
BEGIN = """\
set -e
hostname "$POD"
mount --bind "$DATA" /mnt
mount -t tmpfs tmpfs "$OWN" # an overlay does not lie on every file system
# /tmp too: the daemon of mpiexec names its folder there by its process number, which two pods may have alike.
for folder in etc root tmp; do
    mkdir -p "$OWN/$folder" "$OWN/work-$folder"
    mount -t overlay overlay -o "lowerdir=/$folder,upperdir=$OWN/$folder,workdir=$OWN/work-$folder" "/$folder"
done
mount --bind /mnt "$DATA"
cp "$SHARED/hosts" /etc/hosts
install -D "$SHARED/hostfile" /etc/mpi/hostfile
rm -rf /root/.ssh
install -d -m 700 /root/.ssh
install -m 600 "$SHARED/id_rsa" "$SHARED/id_rsa.pub" "$SHARED/authorized_keys" /root/.ssh
mount -t tmpfs tmpfs /run
cd "$WORKDIR"
exec "$@"
"""


@dataclass
class Pods:
    """The pods of one job."""

    job: str
    switch: Switch
    directory: Path
    """What the pods share: host file, names and key; and a folder for each."""
    manifest: Mapping[str, Any]
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def workers(self) -> list[str]:
        number = self.manifest["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"]
        return [f"{self.job}-worker-{index}" for index in range(number)]

    @property
    def launcher(self) -> str:
        return f"{self.job}-launcher"

    def start(self, pod: str) -> None:
        """Starts a pod with the command of its container."""
        kind = "Launcher" if pod == self.launcher else "Worker"
        (container,) = self.manifest["spec"]["mpiReplicaSpecs"][kind]["template"]["spec"]["containers"]
        arguments = [text.replace("$$", "$") for text in container["args"]]
        words = [
            "ip",
            "netns",
            "exec",
            self.switch.space(pod),
            "unshare",
            "--uts",
            "--mount",
            "--pid",
            "--fork",
        ]
        words += [
            "--kill-child",
            "--mount-proc",
            "bash",
            "-c",
            BEGIN,
            "pod",
            *container["command"],
            *arguments,
        ]
        own = self.directory / pod
        own.mkdir(exist_ok=True)
        environment = {
            "POD": pod,
            "OWN": str(own),
            "DATA": str(self.directory.parent),
            "SHARED": str(self.directory),
            "WORKDIR": container["workingDir"],
            "HOME": "/root",
            "PATH": f"{OPEN_MPI.folder}:{os.environ['PATH']}",
            "AIPERF_TEST_MARK": self.switch.mark,
            **{each["name"]: self.job for each in container["env"]},  # all are its label
        }
        with (self.directory / f"{pod}.out").open("ab") as output:
            self.processes[pod] = subprocess.Popen(
                words, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def text(self, pod: str) -> str:
        """What a pod has printed."""
        return (self.directory / f"{pod}.out").read_text(encoding="utf-8", errors="replace")

    def terminate(self, pod: str) -> None:
        """SIGTERM to the first process of the container, as the kubelet sends it."""
        (first,) = psutil.Process(self.processes[pod].pid).children()
        first.send_signal(signal.SIGTERM)

    def end(self, pod: str, seconds: float = 300.0) -> int:
        """Waits until a pod has ended: its exit code."""
        try:
            return self.processes[pod].wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{pod} has not ended in {seconds} s: {self.text(pod)}") from None


@contextmanager
def pods(directory: Path, manifest: str) -> Iterator[Pods]:
    """Networks, names, the operator's host file and its key, for the job of a manifest."""
    wanted, shared = yaml.safe_load(manifest), directory / "shared"
    shared.mkdir()
    job = wanted["metadata"]["generateName"] + "x7k2p"
    with switch() as joined:
        made = Pods(job, joined, shared, wanted)
        # As a cluster's DNS answers: a worker by its full name only, the launcher by its short one.
        names = {pod: f"{pod}.{job}.default.svc" for pod in made.workers} | {made.launcher: made.launcher}
        addresses = {pod: f"10.78.0.{index}" for index, pod in enumerate(names, start=1)}
        hosts = [f"{address} {names[pod]}" for pod, address in addresses.items()]
        (shared / "hosts").write_text("\n".join(["127.0.0.1 localhost", *hosts]) + "\n")
        slots = wanted["spec"]["slotsPerWorker"]
        (shared / "hostfile").write_text("".join(f"{names[pod]} slots={slots}\n" for pod in made.workers))
        subprocess.run(["ssh-keygen", "-q", "-t", "rsa", "-N", "", "-f", shared / "id_rsa"], check=True)
        (shared / "authorized_keys").write_bytes((shared / "id_rsa.pub").read_bytes())
        for pod, address in addresses.items():
            joined.add(pod, address)
        try:
            yield made
        finally:
            for process in made.processes.values():
                process.kill()  # and with it, by --kill-child, all that the pod runs
                process.wait(60)
