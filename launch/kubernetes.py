"""Kubernetes: an MPIJob of the MPI Operator (kubeflow.org/v2beta1), whose launcher runs the batch script.

The operator gives the launcher a host file of the workers and a key for ssh. What it sets for Open MPI 4
(pkg/controller/mpi_job_controller.go, `ompiEnvVars`) means nothing to Open MPI 5, so the script sets it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from aiperf.host.programs import rows
from launch.job import Job
from launch.pods import AGAIN, NAME, Pod, dns_label, queue_label, refuse_other_site
from launch.scheduler import (
    COUNT,
    REMOVE_HOSTS,
    Answer,
    JobStates,
    Launcher,
    Scheduler,
    marked,
    submitted_id,
)
from launch.site import Site

PORT = 2222
"""Port of sshd in the pods: one that does not need root."""
SSH = "/root/.ssh"
"""Where the operator puts the key (`sshAuthMountPath`, by default)."""
SSH_OPTIONS = (
    "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR "
    "-o ConnectionAttempts=10 -o ConnectTimeout=10"
)
"""All pods have the operator's one key, which lies in a folder that nobody may write to. A pod whose node is
gone does not answer at all, and TCP would wait for minutes."""
HOSTS = "/etc/mpi/hostfile"
"""The operator's list of the workers: "NAME slots=N", one per line."""
ANSWER_SECONDS = 600
"""Most seconds in which all workers have to answer."""
LABEL = "training.kubeflow.org/job-name"
"""The label in which the operator gives each pod the name of its job."""


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


AS_ROOT = "{runAsUser: 0} # the key for ssh is in root's folder"
"""Security context of the pods."""
PINNING_ROOT = "{capabilities: {add: [IPC_LOCK]}} # RDMA pins memory"
"""Security context of a container with RDMA, whose libraries pin memory."""

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
    running: Container[object] = ("Running",)
    pending: Container[object] = ("<none>", "Created", "Suspended")
    waits = False
    resource, created = "mpijobs.kubeflow.org", r"mpijob\.kubeflow\.org"
    """What kubectl calls jobs of this kind, and a job that it has created, as a pattern."""
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
        """The manifest. Raises ConfigError if the site file has what pods cannot have, or lacks what they
        need."""
        refuse_other_site(site)
        return "\n".join([*title, *self.manifest(site, job, script)]) + "\n"

    def manifest(self, site: Site, job: Job, script: str) -> Iterator[str]:
        """The lines of the MPIJob, whose launcher carries out the script."""
        queue = queue_label(site)
        yield "apiVersion: kubeflow.org/v2beta1"
        yield "kind: MPIJob"
        yield "metadata:"
        yield f"  generateName: {dns_label(job.name)}-"
        if queue:
            yield f"  {queue}"
        yield "spec:"
        yield f"  slotsPerWorker: {site.devices.per_node}"
        yield "  runLauncherAsWorker: false # it has the master, and no device"
        yield "  launcherCreationPolicy: WaitForWorkersReady"
        yield "  runPolicy:"
        yield "    cleanPodPolicy: Running"
        yield "    backoffLimit: 0 # a run that failed would fail again"
        limit = f"activeDeadlineSeconds: {job.limit_seconds}"
        yield from (f"    {line}" for line in marked(limit, 1, "time limit"))
        if queue:
            yield "    suspend: true # until Kueue admits it"
        yield "  mpiReplicaSpecs:"
        yield "    Worker:"
        yield from (f"      {line}" for line in marked(f"replicas: {job.nodes}", 2, "number of nodes"))
        rights = PINNING_ROOT if site.kubernetes.rdma else ""
        yield from _replica(Pod("worker", WORKER, LABEL, AS_ROOT, rights), site)
        yield "    Launcher:"
        yield "      replicas: 1"
        yield from _replica(Pod("launcher", script, LABEL, AS_ROOT, has_devices=False), site)

    def launchers(self) -> Iterable[Launcher]:
        """Only an MPI's launcher reaches the workers."""
        return map(_launcher, ("mpiexec", "mpirun"))

    def rank_options(self, site: Site) -> list[str]:
        """The site's variables, for ranks that ssh starts, and its options."""
        return [*(f"-x {name}" for name in site.environment), *super().rank_options(site)]

    def host_lines(self) -> list[str]:
        """The operator starts the launcher after the workers, but not when a suspended job continues."""
        return [
            f'((nodes)) || {{ echo "{HOSTS} names no worker; the operator makes it" >&2; exit 1; }}',
            "# One rank per device, and before them, in this pod, the master, which has no device.",
            "hosts=$(mktemp)",
            f'{{ echo "$HOSTNAME"; {self.hosts} | head -n "$nodes" |',
            '    awk -v devices="$devices" \'{ for (i = 1; i <= devices; i++) print }\'; } >"$hosts"',
            REMOVE_HOSTS,
            "# After a preemption, the launcher may start before the workers.",
            'for host in $(uniq "$hosts" | tail -n +2); do',
            # ssh ends its own lines with a carriage return, too.
            '    until reason=$(ssh -o ConnectionAttempts=1 $PRTE_MCA_plm_ssh_args "$host" true 2>&1 |',
            "        tail -n1 | tr -d '\\r'); do",
            f"        [[ -z $warned ]] || exit {AGAIN}",
            f"        ((SECONDS < {ANSWER_SECONDS})) || {{",
            '            echo "$host does not answer: $reason; see kubectl describe pod ${host%%.*}" >&2',
            "            exit 1",
            "        }",
            '        [[ ${silent-} == "$host" ]] || echo "waiting for $host: $reason"',
            "        silent=$host",
            "        sleep 2",
            "    done",
            "done",
        ]

    def submit(self, after: Sequence[str] = ()) -> list[str]:
        """`kubectl create`, which gives an MPIJob a name of its own. It waits for no other job (`waits`)."""
        return ["kubectl", "create", "-f", "-"]

    def submitted(self, answer: str) -> str:
        """The name in a line such as: mpijob.kubeflow.org/aiperf-hpc-x2x9d created. Raises ValueError without
        one."""
        return submitted_id("kubectl", answer, rf"{self.created}/(\S+) created")

    def ask(self, jobs: Sequence[str]) -> list[str]:
        """The names of all jobs of this kind in the namespace, with the conditions that hold, the latest
        last. A job that is gone would be an error if it were named."""
        columns = 'NAME:.metadata.name,STATE:.status.conditions[?(@.status=="True")].type'
        return ["kubectl", "get", self.resource, "--no-headers", "-o", f"custom-columns={columns}"]

    def states(self, answer: str) -> JobStates:
        """The state by the latest condition."""
        told = rows(answer, r"([a-z0-9.-]+)\s+(?:\S+,)?(\w+|<none>)\s*")
        return JobStates({row[1]: self.state(row[2]) for row in told.found}, told.skipped)

    def seconds_left(self, environment: Mapping[str, str], now: float, answer: Answer) -> float | None:
        """Not known inside of a pod, which may not ask the cluster: the script states the length."""
        return None


def _replica(pod: Pod, site: Site) -> Iterator[str]:
    """The lines of the pods of one kind."""
    yield "      restartPolicy: Never"
    yield "      template:"
    yield "        spec:"
    yield from (f"{' ' * 10}{line}".rstrip() for line in pod.lines(site))
