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


@dataclass(frozen=True)
class Start:
    """How a pod is started."""

    template: Mapping[str, Any]
    """The pod's, with its container."""
    variables: Mapping[str, str]
    """For what is mounted before its command, MOUNTS, and for the command."""
    before: tuple[str, ...] = ()
    """What becomes the container's command."""


@dataclass
class Pods:
    """The pods of one job."""

    job: str
    switch: Switch
    directory: Path
    """What the pods share: host file, names and key; and a folder for each."""
    starts: Mapping[str, Start]
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def pods(self) -> list[str]:
        """The launcher is the last one."""
        return list(self.starts)

    @property
    def workers(self) -> list[str]:
        return self.pods[:-1]

    @property
    def launcher(self) -> str:
        return self.pods[-1]

    def start(self, pod: str) -> None:
        """Starts a pod with the command of its container."""
        start = self.starts[pod]
        (container,) = start.template["spec"]["containers"]
        arguments = [text.replace("$$", "$") for text in container["args"]]
        space = ("ip", "netns", "exec", self.switch.space(pod))
        apart = ("unshare", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
        words = [*space, *apart, "bash", "-c", BEGIN, "pod", *start.before, *container["command"], *arguments]
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
            **start.variables,
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
    if "MPIJob" in found:
        job, spec = found["MPIJob"]["metadata"]["generateName"] + "x7k2p", found["MPIJob"]["spec"]
        kinds, slots = spec["mpiReplicaSpecs"], spec["slotsPerWorker"]
        starts = [
            Start(kinds[kind]["template"], {"MOUNTS": OF_OPERATOR, "HOME": "/root"})
            for kind in ("Worker", "Launcher")
        ]
        workers = [f"{job}-worker-{index}" for index in range(kinds["Worker"]["replicas"])]
        launcher, domain, key = f"{job}-launcher", f"{job}.default.svc", "rsa"
    else:
        job, runtime = found["TrainJob"]["metadata"]["name"], found["TrainingRuntime"]["spec"]
        mpi, spec = runtime["mlPolicy"]["mpi"], runtime["template"]["spec"]
        slots = mpi["numProcPerNode"]
        templates = {each["name"]: each["template"]["spec"]["template"] for each in spec["replicatedJobs"]}
        starts = [_of_trainer(templates[kind], mpi["sshAuthMountPath"]) for kind in ("node", "launcher")]
        # Names as JobSet gives them.
        workers = [
            f"{job}-node-0-{index}" for index in range(found["TrainJob"]["spec"]["trainer"]["numNodes"])
        ]
        launcher, domain, key = f"{job}-launcher-0-0", job, "ecdsa"
    of_worker, of_launcher = starts
    # As a cluster's DNS answers: a worker by its full name only, the launcher by its short one.
    names = {pod: f"{pod}.{domain}" for pod in workers} | {launcher: launcher}
    (shared / "hostfile").write_text("".join(f"{names[pod]} slots={slots}\n" for pod in workers))
    subprocess.run(["ssh-keygen", "-q", "-t", key, "-N", "", "-f", shared / "id_rsa"], check=True)
    (shared / "authorized_keys").write_bytes((shared / "id_rsa.pub").read_bytes())
    with _joined(job, shared, dict.fromkeys(workers, of_worker) | {launcher: of_launcher}, names) as made:
        yield made


def _of_trainer(template: Mapping[str, Any], folder: str) -> Start:
    """Only a container with a certain name gets what Trainer mounts."""
    (container,) = template["spec"]["containers"]
    mounts = OF_TRAINER if container["name"] == "node" else ""
    return Start(template, {"MOUNTS": mounts, "KEYS": folder, "HOME": "/root"})


@contextmanager
def indexed_pods(directory: Path, manifest: str) -> Iterator[Pods]:
    """Networks, names, the secret and a claim, which is mounted as the working directory, for the Indexed Job
    of a manifest. Its pods run as a user whom nobody knows, without a home."""
    found, shared, claim = documents(manifest), directory / "shared", directory / "claim"
    job, spec = found["Job"]["metadata"]["name"], found["Job"]["spec"]
    shared.mkdir()
    claim.mkdir()
    claim.chmod(0o770)
    (shared / "secret").write_text(found["Secret"]["stringData"]["secret"], encoding="utf-8")
    (container,) = spec["template"]["spec"]["containers"]
    (folder,) = (each["mountPath"] for each in container["volumeMounts"] if "readOnly" in each)
    mounted = {"MOUNTS": OF_INDEXED_JOB, "SECRET": f"{folder}/secret", "CLAIM": str(claim), "TMPDIR": "/run"}
    before = ("setpriv", f"--reuid={USER}", "--regid=0", "--clear-groups", "env", "--unset=HOME")
    starts = {}
    for index in range(spec["completions"]):
        # What Kubernetes tells each of them.
        told = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "JOB_COMPLETION_INDEX": str(index)}
        starts[f"{job}-{index}"] = Start(spec["template"], mounted | told, before)
    # As a cluster's DNS answers: the service's name leads to all of its pods.
    with _joined(job, shared, starts, {pod: f"{pod} {pod}.{job} {job}" for pod in starts}) as made:
        yield made


@contextmanager
def _joined(
    job: str, directory: Path, starts: Mapping[str, Start], names: Mapping[str, str]
) -> Iterator[Pods]:
    """Joins the pods to a switch, by these names; ends what is left of them."""
    addresses = {pod: f"10.78.0.{index}" for index, pod in enumerate(names, start=1)}
    hosts = [f"{address} {names[pod]}" for pod, address in addresses.items()]
    (directory / "hosts").write_text("\n".join(["127.0.0.1 localhost", *hosts]) + "\n")
    with switch() as joined:
        for pod, address in addresses.items():
            joined.add(pod, address)
        made = Pods(job, joined, directory, starts)
        try:
            yield made
        finally:
            for process in made.processes.values():
                process.kill()  # and with it, by --kill-child, all that the pod runs
                process.wait(60)
