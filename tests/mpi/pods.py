"""Pods on one machine, as the MPI Operator, Kubeflow Trainer or Kubernetes makes them of a manifest: each has
a network, a name, a process table, and files under /etc, /root and /tmp of its own, and its first process is
that of the container.

What is not here are the operators themselves: this does what the first one's `mpi_job_controller.go` and the
second one's `mpi.go` do for a job. Nor is Kubernetes' controller of jobs: a test starts pods again where a
rule of the manifest says so.
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

from tests.launch.golden import documents
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
chmod 1777 /tmp
mount --bind /mnt "$DATA"
cp "$SHARED/hosts" /etc/hosts
eval "$MOUNTS"
mount -t tmpfs -o mode=1777 tmpfs /run
cd "$WORKDIR"
exec "$@"
"""
OF_OPERATOR = """\
install -D "$SHARED/hostfile" /etc/mpi/hostfile
rm -rf /root/.ssh
install -d -m 700 /root/.ssh
install -m 600 "$SHARED/id_rsa" "$SHARED/id_rsa.pub" "$SHARED/authorized_keys" /root/.ssh
"""
# Keys that others can read, as Trainer mounts them.
OF_TRAINER = """\
[[ $POD != *-launcher-* ]] || install -D "$SHARED/hostfile" /etc/mpi/hostfile
rm -rf /root/.ssh
install -d "$KEYS"
install -m 640 "$SHARED/id_rsa" "$SHARED/id_rsa.pub" "$SHARED/authorized_keys" "$KEYS"
"""
# The program may be in root's folder.
OF_INDEXED_JOB = """\
install -D -m 0440 "$SHARED/secret" "$SECRET"
mount --bind "$CLAIM" "$WORKDIR"
chmod go=rx /root
"""
USER = 12345
"""A user whom /etc/passwd does not name."""


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

    @property
    def pods(self) -> list[str]:
        return [*self.workers, self.launcher]

    def start(self, pod: str) -> None:
        """Starts a pod with the command of its container."""
        kind = "Launcher" if pod == self.launcher else "Worker"
        template = self.manifest["spec"]["mpiReplicaSpecs"][kind]["template"]
        self.begin(pod, template, MOUNTS=OF_OPERATOR, HOME="/root")

    def begin(self, pod: str, template: Mapping[str, Any], *before: str, **variables: str) -> None:
        """Starts a pod of this template; `before`: what becomes the container's command."""
        (container,) = template["spec"]["containers"]
        arguments = [text.replace("$$", "$") for text in container["args"]]
        space = ("ip", "netns", "exec", self.switch.space(pod))
        apart = ("unshare", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
        words = [*space, *apart, "bash", "-c", BEGIN, "pod", *before, *container["command"], *arguments]
        own = self.directory / pod
        own.mkdir(exist_ok=True)
        environment = {
            "POD": pod,
            "OWN": str(own),
            "DATA": str(self.directory.parent),
            "SHARED": str(self.directory),
            "WORKDIR": container["workingDir"],
            "PATH": f"{OPEN_MPI.folder}:{os.environ['PATH']}",
            "AIPERF_TEST_MARK": self.switch.mark,
            # What has no value of its own is the label with the job's name.
            **{each["name"]: each.get("value", self.job) for each in container["env"]},
            **variables,
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


@dataclass
class TrainerPods(Pods):
    """The pods of a TrainJob, with names as JobSet gives them."""

    runtime: Mapping[str, Any] = field(default_factory=dict)
    """What its TrainingRuntime specifies."""

    @property
    def workers(self) -> list[str]:
        number = self.manifest["spec"]["trainer"]["numNodes"]
        return [f"{self.job}-node-0-{index}" for index in range(number)]

    @property
    def launcher(self) -> str:
        return f"{self.job}-launcher-0-0"

    def start(self, pod: str) -> None:
        """Starts a pod; only a container with a certain name gets what Trainer mounts."""
        jobs = {each["name"]: each["template"] for each in self.runtime["template"]["spec"]["replicatedJobs"]}
        template = jobs["launcher" if pod == self.launcher else "node"]["spec"]["template"]
        (container,) = template["spec"]["containers"]
        mounts = OF_TRAINER if container["name"] == "node" else ""
        folder = self.runtime["mlPolicy"]["mpi"]["sshAuthMountPath"]
        self.begin(pod, template, MOUNTS=mounts, KEYS=folder, HOME="/root")


@dataclass
class IndexedPods(Pods):
    """The pods of an Indexed Job, as a user whom nobody knows, without a home."""

    claim: Path = Path()
    """What is mounted as their working directory."""

    @property
    def pods(self) -> list[str]:
        return [f"{self.job}-{index}" for index in range(self.manifest["spec"]["completions"])]

    def start(self, pod: str) -> None:
        """Starts a pod with the command of its container, and with what Kubernetes tells each of them."""
        template = self.manifest["spec"]["template"]
        (folder,) = (
            each["mountPath"]
            for each in template["spec"]["containers"][0]["volumeMounts"]
            if "readOnly" in each
        )
        self.begin(
            pod,
            template,
            *("setpriv", f"--reuid={USER}", "--regid=0", "--clear-groups", "env", "--unset=HOME"),
            MOUNTS=OF_INDEXED_JOB,
            SECRET=f"{folder}/secret",
            CLAIM=str(self.claim),
            TMPDIR="/run",
            KUBERNETES_SERVICE_HOST="10.96.0.1",
            JOB_COMPLETION_INDEX=pod.rpartition("-")[2],
        )

    def rank(self, pod: str, number: int) -> psutil.Process:
        """The process of a rank, as the pod's script started it."""
        for each in psutil.Process(self.processes[pod].pid).children(recursive=True):
            if each.environ().get("RANK") == str(number) and each.name().startswith(("aiperf", "python")):
                return each
        raise AssertionError(f"there is no rank {number}: {self.text(pod)}")

    def listening(self) -> list[str]:
        """Lines on the ports at which a process of any pod listens."""
        return [line for pod in self.pods for line in self.switch.listening(pod)]


@contextmanager
def pods(directory: Path, manifest: str) -> Iterator[Pods]:
    """Networks, names, the operator's host file and its key, for the job of a manifest."""
    found, shared = documents(manifest), directory / "shared"
    shared.mkdir()
    with switch() as joined:
        if "MPIJob" in found:
            wanted = found["MPIJob"]
            job, slots = wanted["metadata"]["generateName"] + "x7k2p", wanted["spec"]["slotsPerWorker"]
            made, domain, kind = Pods(job, joined, shared, wanted), f"{job}.default.svc", "rsa"
        else:
            wanted, runtime = found["TrainJob"], found["TrainingRuntime"]["spec"]
            job, slots = wanted["metadata"]["name"], runtime["mlPolicy"]["mpi"]["numProcPerNode"]
            made = TrainerPods(job, joined, shared, wanted, runtime=runtime)
            domain, kind = job, "ecdsa"
        # As a cluster's DNS answers: a worker by its full name only, the launcher by its short one.
        names = {pod: f"{pod}.{domain}" for pod in made.workers} | {made.launcher: made.launcher}
        (shared / "hostfile").write_text("".join(f"{names[pod]} slots={slots}\n" for pod in made.workers))
        subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", shared / "id_rsa"], check=True)
        (shared / "authorized_keys").write_bytes((shared / "id_rsa.pub").read_bytes())
        with _joined(made, names):
            yield made


@contextmanager
def indexed_pods(directory: Path, manifest: str) -> Iterator[IndexedPods]:
    """Networks, names, the secret and a claim, for the Indexed Job of a manifest."""
    found, shared = documents(manifest), directory / "shared"
    claim, job = directory / "claim", found["Job"]["metadata"]["name"]
    shared.mkdir()
    claim.mkdir()
    claim.chmod(0o770)
    (shared / "secret").write_text(found["Secret"]["stringData"]["secret"], encoding="utf-8")
    with switch() as joined:
        made = IndexedPods(job, joined, shared, found["Job"], claim=claim)
        # As a cluster's DNS answers: the service's name leads to all of its pods.
        with _joined(made, {pod: f"{pod} {pod}.{job} {job}" for pod in made.pods}):
            yield made


@contextmanager
def _joined(made: Pods, names: Mapping[str, str]) -> Iterator[None]:
    """Joins the pods to the switch, by these names; ends what is left of them."""
    addresses = {pod: f"10.78.0.{index}" for index, pod in enumerate(names, start=1)}
    hosts = [f"{address} {names[pod]}" for pod, address in addresses.items()]
    (made.directory / "hosts").write_text("\n".join(["127.0.0.1 localhost", *hosts]) + "\n")
    for pod, address in addresses.items():
        made.switch.add(pod, address)
    try:
        yield
    finally:
        for process in made.processes.values():
            process.kill()  # and with it, by --kill-child, all that the pod runs
            process.wait(60)
