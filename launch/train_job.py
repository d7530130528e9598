"""Kubernetes with Kubeflow Trainer: a TrainJob (trainer.kubeflow.org/v1alpha1), and its TrainingRuntime.

Trainer makes a JobSet of them: a job with the workers, and one with the launcher, which runs the batch
script. As the MPI Operator does, it gives the pods a key for ssh, and the launcher a host file of the
workers. What is different (mpi.go in Trainer's plugins, and Kubernetes' controller of jobs):

- Only containers named "node" get the key and the host file, in the launcher's pod as well.
- The key is readable for others than root (kubeflow/trainer 3262). OpenSSH refuses to use such a key.
- The pods belong to jobs. A worker that ends with 0 when its job is suspended counts as done, and would be
  missing when the job continues.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256

from launch.indexed_job import SUFFIX_DIGITS, IndexedJob
from launch.job import Job
from launch.kubernetes import AS_ROOT, PINNING_ROOT, SSH, WORKER, Kubernetes
from launch.pods import AGAIN, SECRET_FOLDER, Pod, dns_label, queue_label
from launch.scheduler import marked
from launch.site import Site

LABEL = "jobset.sigs.k8s.io/jobset-name"
"""The label in which each pod has the name of its JobSet, which is that of the TrainJob."""
CONTAINER = "node"
"""Name of all containers: those with another name are given no key and no host file."""
OWN_KEYS = f"install -D -m 600 -t {SSH} {SECRET_FOLDER}/* # OpenSSH uses no key that others can read"
"""Line of shell that gives root copies of the keys for its own use."""
LONGEST_NAME = 44
"""Characters of a job's name. JobSet adds -launcher-0-0 and six more for the name of a pod: 63 at most."""
NO_DEVICE = '- {name: NVIDIA_VISIBLE_DEVICES, value: ""} # none, whatever the image says'
"""Line of the launcher's environment: it gets no device, whatever the variable of its image says."""


class TrainJob(Kubernetes):
    """Kubernetes starts the pods of a run again that was stopped in time, as Kueue does with one that it
    preempted; nothing else starts one again."""

    title = "Kubernetes (Kubeflow Trainer)"
    option_help = "Write a TrainJob for Kubeflow Trainer, with its TrainingRuntime."
    resource, created = "trainjobs.trainer.kubeflow.org", r"trainjob\.trainer\.kubeflow\.org"
    # One that has its pods has no condition that holds until it ends.
    running, pending = ("<none>",), ("Suspended",)
    requeue = IndexedJob.requeue

    def manifest(self, site: Site, job: Job, script: str) -> Iterator[str]:
        """The lines of the TrainingRuntime, which must exist first, and of the TrainJob. Both have one name,
        which must be known before they are created."""
        own = _own_name(job, script)
        queue = queue_label(site)
        yield "apiVersion: trainer.kubeflow.org/v1alpha1"
        yield "kind: TrainingRuntime"
        yield f"metadata: {{name: {own}}}"
        yield "spec:"
        yield "  mlPolicy:"
        yield "    mpi:"
        yield "      mpiImplementation: OpenMPI"
        yield f"      numProcPerNode: {site.devices.per_node}"
        yield "      runLauncherAsNode: false # it has the master, and no device"
        yield f"      sshAuthMountPath: {SECRET_FOLDER}"
        yield "  template:"
        yield "    spec:"
        yield "      network: {publishNotReadyAddresses: true} # the launcher waits for sshd itself"
        yield "      successPolicy: {operator: All, targetReplicatedJobs: [launcher]}"
        yield "      replicatedJobs:"
        rights = PINNING_ROOT if site.kubernetes.rdma else ""
        worker = f"{OWN_KEYS}\n{WORKER}exit {AGAIN} # a pod that has succeeded would not come again\n"
        yield from _replicated("node", Pod(CONTAINER, worker, LABEL, AS_ROOT, rights), site)
        launcher = Pod(CONTAINER, script, LABEL, AS_ROOT, has_devices=False, variables=(NO_DEVICE,))
        yield from _replicated("launcher", launcher, site)
        yield "---"
        yield "apiVersion: trainer.kubeflow.org/v1alpha1"
        yield "kind: TrainJob"
        yield "metadata:"
        yield f"  name: {own}"
        if queue:
            yield f"  {queue}"
        yield "spec:"
        yield f"  runtimeRef: {{kind: TrainingRuntime, name: {own}}}"
        limit = f"activeDeadlineSeconds: {job.limit_seconds}"
        yield from (f"  {line}" for line in marked(limit, 1, "time limit"))
        yield "  trainer:"
        yield from (f"    {line}" for line in marked(f"numNodes: {job.nodes}", 2, "number of nodes"))
        if queue:
            yield "  suspend: true # until Kueue admits it"

    def host_lines(self) -> list[str]:
        """As under the MPI Operator, with a key that OpenSSH uses."""
        return [OWN_KEYS, *super().host_lines()]


def _own_name(job: Job, script: str) -> str:
    """The name of a job, which tells it from those of other requests: the runtime needs one that is known
    before."""
    suffix = sha256(f"{job.nodes}\n{script}".encode()).hexdigest()[:SUFFIX_DIGITS]
    return f"{dns_label(job.name)[: LONGEST_NAME - len(suffix) - 1].rstrip('-')}-{suffix}"


def _replicated(name: str, pod: Pod, site: Site) -> Iterator[str]:
    """The lines of one of the jobs."""
    yield f"        - name: {name}"
    yield "          replicas: 1"
    yield "          template:"
    if name == CONTAINER:
        yield "            metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}"
    yield "            spec:"
    yield "              backoffLimit: 0 # a run that failed would fail again"
    yield "              podFailurePolicy:"
    yield "                rules:"
    yield "                  # Stopped in time: the pod is started again, and the run continues."
    yield f"                  - {{action: Ignore, onExitCodes: {{operator: In, values: [{AGAIN}]}}}}"
    yield "              template:"
    yield "                spec:"
    yield "                  restartPolicy: Never"
    yield from (f"{' ' * 18}{line}".rstrip() for line in pod.lines(site))
