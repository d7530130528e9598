"""Kubernetes: an MPIJob of the MPI Operator (kubeflow.org/v2beta1), whose launcher runs the batch script.

The operator gives the launcher a host file of the workers and a key for ssh. What it sets for Open MPI 4
(pkg/controller/mpi_job_controller.go, `ompiEnvVars`) means nothing to Open MPI 5, so the script sets it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from aiperf.errors import ConfigError
from aiperf.host.programs import rows
from launch.job import WARNING_SECONDS, Job
from launch.scheduler import COUNT, Answer, JobStates, Launcher, Scheduler, marked, submitted_id
from launch.site import Site

PORT = 2222
"""Port of sshd in the pods: one that does not need root."""
SSH = "/root/.ssh"
"""Where the operator puts the key (`sshAuthMountPath`, by default)."""
SSH_OPTIONS = (
    "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o ConnectionAttempts=10"
)
"""All pods have the operator's one key, which lies in a folder that nobody may write to."""
HOSTS = "/etc/mpi/hostfile"
"""The operator's list of the workers: "NAME slots=N", one per line."""
ANSWER_SECONDS = 600
"""Most seconds in which all workers have to answer."""
NAME = "MPIJOB_NAME"
"""Variable with the name of the job, from the label that the operator gives its pods."""


def _launcher(name: str) -> Launcher:
    """Open MPI 5 from a pod: ssh passes no variables on, so each is named."""
    return Launcher(
        name,
        lambda mpi: [
            name,
            "--allow-run-as-root",
            "-n",
            COUNT,
            "--hostfile",
            '"$hosts"',
            "-x PATH",
            f"-x {NAME}",
        ],
        once_a_node=(),
        environment={
            "PRTE_MCA_hwloc_default_binding_policy": "none",
            "PRTE_MCA_prte_set_default_slots": "1",
            "PRTE_MCA_prte_keep_fqdn_hostnames": "1",
            "PRTE_MCA_plm_ssh_args": f'"-p {PORT} {SSH_OPTIONS}"',
        },
        why="Open MPI 5 reads none of the operator's variables.",
    )


WORKER = f"""\
# The ranks of this pod are started by ssh.
mkdir -p /run/sshd
/usr/sbin/sshd -De -f /dev/null -p {PORT} -h {SSH}/id_rsa -o StrictModes=no \\
    -o "SetEnv=PATH=$PATH LD_LIBRARY_PATH=${{LD_LIBRARY_PATH-}}" &
ended=
trap 'ended=1' TERM
wait
[[ -n $ended ]] || {{ echo "sshd has ended" >&2; exit 1; }}
# A preemption ends all pods at once: this one stays until its ranks have stopped.
while grep -qsxE 'prted|orted' /proc/[0-9]*/comm; do sleep 1; done
"""
"""The script of a worker's first process: sshd by itself would end at once, and the ranks with it."""


class Kubernetes(Scheduler):
    """Kueue starts a job again that it preempted, and the run continues; nothing else starts one again."""

    name, title = "Kubernetes", "Kubernetes (MPI Operator)"
    ending = "yaml"
    mark = account = partition = ""
    job_id = NAME
    hosts = f"cut -d' ' -f1 {HOSTS}"
    nodes = f"$(wc -l <{HOSTS})"
    running = ("Running",)
    pending = ("Created", "Suspended")
    waits = False
    requeue = (
        "# Kueue starts a job again that it preempted.",
        'echo "to continue another: write directory=$directory into the manifest, and create it again"',
    )

    def options(self, site: Site, job: Job) -> list[str]:
        """None: what a batch script has as directives stands in the manifest."""
        return []

    def directives(self, site: Site, job: Job) -> list[str]:
        return []

    def document(self, site: Site, job: Job, title: Sequence[str], script: str) -> str:
        """The manifest. Strings of the user are written as JSON, which YAML includes."""
        for key, value in _meaningless(site):
            if value:
                raise ConfigError(
                    f"{key} is set in the site file, but has no meaning under Kubernetes; remove it"
                )
        for key in ("image", "claim"):
            if not getattr(site.kubernetes, key):
                raise ConfigError(f"kubernetes.{key} is not set in the site file; Kubernetes needs it")
        return "\n".join([*title, *_manifest(site, job, script)]) + "\n"

    def launchers(self) -> Iterable[Launcher]:
        """Only an MPI's launcher reaches the workers."""
        return map(_launcher, ("mpiexec", "mpirun"))

    def rank_options(self, site: Site) -> list[str]:
        """The site's variables, for ranks that ssh starts."""
        return [f"-x {name}" for name in site.environment]

    def host_lines(self) -> list[str]:
        """The operator starts the launcher after the workers, but not when a suspended job continues."""
        return [
            "# One rank per device, and before them, in this pod, the master, which has no device.",
            "hosts=$(mktemp)",
            f'{{ echo "$HOSTNAME"; {self.hosts} | head -n "$nodes" |',
            '    awk -v devices="$devices" \'{ for (i = 1; i <= devices; i++) print }\'; } >"$hosts"',
            "# After a preemption, the launcher may start before the workers.",
            'for host in $(uniq "$hosts" | tail -n +2); do',
            '    until ssh $PRTE_MCA_plm_ssh_args "$host" true 2>/dev/null; do',
            f'        ((SECONDS < {ANSWER_SECONDS})) || {{ echo "$host does not answer" >&2; exit 1; }}',
            "        sleep 2",
            "    done",
            "done",
        ]

    def submit(self, after: Sequence[str] = ()) -> list[str]:
        """`kubectl create`, which gives the job a name of its own. It waits for no other job (`waits`)."""
        return ["kubectl", "create", "-f", "-"]

    def submitted(self, answer: str) -> str:
        return submitted_id("kubectl", answer, r"mpijob\.kubeflow\.org/(\S+) created")

    def ask(self, jobs: Sequence[str]) -> list[str]:
        """The names of all MPIJobs of the namespace, with the conditions that hold, the latest last."""
        columns = 'NAME:.metadata.name,STATE:.status.conditions[?(@.status=="True")].type'
        return ["kubectl", "get", "mpijobs.kubeflow.org", "--no-headers", "-o", f"custom-columns={columns}"]

    def states(self, answer: str) -> JobStates:
        """The state by the latest condition; a job that has none yet has just been created."""
        told = rows(answer, r"([a-z0-9.-]+)\s+(?:\S+,)?(\w+|<none>)\s*")
        states = {row[1]: row[2].replace("<none>", "Created") for row in told.found}
        return JobStates({job: self.state(state) for job, state in states.items()}, told.skipped)

    def seconds_left(self, environment: Mapping[str, str], now: float, answer: Answer) -> float | None:
        """Not known inside of a pod, which may not ask the cluster: the script states the length."""
        return None


def _meaningless(site: Site) -> Iterator[tuple[str, object]]:
    """What other schedulers need, and a pod cannot have."""
    yield "queue.account", site.queue.account
    yield "queue.options", site.queue.options
    yield "modules", site.modules
    yield "container.image", site.container.image
    yield "scratch.directory", site.scratch.directory


def _manifest(site: Site, job: Job, script: str) -> Iterator[str]:
    """The lines of the MPIJob."""
    queue = site.queue.partition
    yield "apiVersion: kubeflow.org/v2beta1"
    yield "kind: MPIJob"
    yield "metadata:"
    yield f"  generateName: {_dns_label(job.name)}-"
    if queue:
        yield f"  labels: {{kueue.x-k8s.io/queue-name: {json.dumps(queue)}}}"
    yield "spec:"
    yield f"  slotsPerWorker: {site.devices.per_node}"
    yield "  runLauncherAsWorker: false # it has the master, and no device"
    yield "  launcherCreationPolicy: WaitForWorkersReady"
    yield "  runPolicy:"
    yield "    cleanPodPolicy: Running"
    yield "    backoffLimit: 0 # a run that failed would fail again"
    yield from (
        f"    {line}" for line in marked(f"activeDeadlineSeconds: {job.limit_seconds}", 1, "time limit")
    )
    if queue:
        yield "    suspend: true # until Kueue admits it"
    yield "  mpiReplicaSpecs:"
    yield "    Worker:"
    yield from (f"      {line}" for line in marked(f"replicas: {job.nodes}", 2, "number of nodes"))
    yield from _pods(site, "worker", WORKER)
    yield "    Launcher:"
    yield "      replicas: 1"
    yield from _pods(site, "launcher", script)


def _pods(site: Site, who: str, script: str) -> Iterator[str]:
    """The pods of one kind. Only those of workers have devices."""
    pods, worker = site.kubernetes, who == "worker"
    resources = dict(_resources(site)) if worker else {}
    yield "      restartPolicy: Never"
    yield "      template:"
    yield "        spec:"
    yield f"          terminationGracePeriodSeconds: {WARNING_SECONDS} # for the end of a run that is warned"
    yield "          securityContext: {runAsUser: 0} # the key for ssh is in root's folder"
    yield "          containers:"
    yield f"            - name: {who}"
    yield f"              image: {json.dumps(pods.image)}"
    yield f"              workingDir: {_quoted(pods.mount)}"
    yield "              env:"
    yield f"                - name: {NAME}"
    yield "                  valueFrom:"
    yield "                    fieldRef: {fieldPath: \"metadata.labels['training.kubeflow.org/job-name']\"}"
    if resources:
        yield f"              resources: {{limits: {json.dumps(resources)}}}"
    if worker and pods.rdma:
        yield "              securityContext: {capabilities: {add: [IPC_LOCK]}} # RDMA pins memory"
    yield "              volumeMounts:"
    yield f"                - {{name: work, mountPath: {_quoted(pods.mount)}}}"
    yield "                - {name: shared-memory, mountPath: /dev/shm}"
    yield '              command: ["bash", "-c"]'
    yield "              args:"
    yield "                - |"
    # Kubernetes takes $$ for one $ (Container v1 core, args).
    yield from (f"{' ' * 18}{line}".rstrip() for line in script.replace("$$", "$$$$").splitlines())
    yield "          volumes:"
    yield f"            - {{name: work, persistentVolumeClaim: {{claimName: {json.dumps(pods.claim)}}}}}"
    memory = json.dumps(pods.shared_memory)
    yield f"            - {{name: shared-memory, emptyDir: {{medium: Memory, sizeLimit: {memory}}}}}"


def _resources(site: Site) -> Iterator[tuple[str, str]]:
    """What one worker is given of its node."""
    devices = site.devices
    if devices.request != "none":
        yield "nvidia.com/gpu" if devices.request == "gpus" else devices.request, str(devices.per_node)
    if devices.cores_per_node:
        yield "cpu", str(devices.cores_per_node)
    if site.kubernetes.rdma:
        yield site.kubernetes.rdma, "1"


def _quoted(text: str) -> str:
    """The text as JSON. YAML knows no pairs of surrogates, so no character is written as one."""
    return json.dumps(text, ensure_ascii=False)


def _dns_label(name: str) -> str:
    """The name of a job as Kubernetes allows it, short enough for what is added to it. It begins with a
    letter, as the operator demands because the names of its services do (`validateMPIJobName`)."""
    label = re.sub(r"[^a-z0-9-]", "-", name.lower())
    return f"{'' if label[0].isalpha() else 'run-'}{label}"[:40].strip("-")
