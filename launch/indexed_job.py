"""Kubernetes without MPI: an Indexed Job (batch/v1) with a pod for each node, whose ranks meet over TCP.

Every pod carries out the same script and starts its own ranks, the first one the master as well. A headless
service gives the pods names, and a Secret gives them the secret of the run. Who may try again is decided by
exit codes: all pods of a run that was stopped in time end with 75, and Kubernetes then starts all of them
again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from hashlib import sha256

from launch.job import Job
from launch.kubernetes import ANSWER_SECONDS, Kubernetes
from launch.pods import AGAIN, NAME, SECRET_FILE, SECRET_FOLDER, Pod, dns_label, queue_label
from launch.scheduler import Launcher, marked
from launch.site import Site

LABEL = "batch.kubernetes.io/job-name"
"""The label in which Kubernetes gives each pod the name of its job."""
NODES = "KUBERNETES_NODES"
"""Variable of each pod with the number of nodes."""
PORT = 29400
"""Port at which the master listens until all ranks have connected."""
NEVER_AGAIN = (1, 2, 3, 4)
"""Exit codes of a run, or of a script, that would fail again."""
LOST = 69
"""Exit code of a pod that has lost a rank, in words of sysexits.h a service that is unavailable. The other
pods continue."""
LAST_SECONDS = 60
"""Most seconds for which the other pods wait for the end of the first one."""
SUFFIX_DIGITS = 5
"""Length of what makes the name of a job its own, as that of the names that Kubernetes generates."""
NOT_ROOT = "{runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}"
"""Security context of the pod."""
CONFINED = "{allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}"
"""Security contexts as Kubernetes' profile "restricted" demands them."""
PINNING = "{allowPrivilegeEscalation: false, capabilities: {drop: [ALL], add: [IPC_LOCK]}} # RDMA pins memory"
"""Security context of a container with RDMA, whose libraries pin memory."""

# START COMMAND…: the exit code is that of the master, in other pods that of the last rank which failed.
START = f"""\
start='
own=() master= warned= code=0
trap "warned=1; [[ -z \\$master ]] || kill -USR1 \\$master" USR1
for ((rank = index * devices + 1; rank <= (index + 1) * devices; rank++)); do
    RANK=$rank "$@" &
    own+=($!)
done
((index)) || {{ RANK=0 "$@" & master=$!; own=($!); }}
[[ -z $warned || -z $master ]] || kill -USR1 "$master" # it was warned before $master was known
for process in "${{own[@]}}"; do
    wait "$process"
    ended=$?
    while ((ended > 128)) && kill -0 "$process" 2>/dev/null; do
        wait "$process"
        ended=$?
    done
    ((ended <= 128)) || {{ wait "$process"; ended=$?; }} # it ended right after a warning
    ((ended == 0)) || code=$((index ? {LOST} : ended))
done
exit "$code"'"""
"""Shell that starts the ranks of a pod and waits for them."""


class IndexedJob(Kubernetes):
    """Kubernetes starts the pods of a run again that was stopped in time, as Kueue does with one that it
    preempted; nothing else starts one again."""

    title = "Kubernetes (Indexed Job, without MPI)"
    resource, created = "jobs.batch", r"job\.batch"
    has_mpi = False
    option_help = "Write an Indexed Job whose ranks meet over TCP, with a secret of its own."
    hosts = ""
    nodes = f"${NODES}"
    # A job that has its pods has no condition until it ends.
    running, pending = ("<none>",), ("Suspended",)
    done = (
        "# The first pod completes the job. If a pod is lost, the others must not end before it, because",
        "# Kubernetes looks for lost pods first (syncJob), and would take the job for failed.",
        f"((index == 0)) || {{ sleep {LAST_SECONDS} & wait $!; }}",
    )
    requeue = (
        "# Kubernetes starts all pods again after this code, except at the time limit.",
        'echo "to continue it later: kubectl delete -f FILE and kubectl create -f FILE, with this manifest"',
    )

    def manifest(self, site: Site, job: Job, script: str) -> Iterator[str]:
        """The lines of the Secret, of the service and of the Job. Service and Secret come first, because pods
        need both."""
        assert job.secret, "ranks without MPI need a secret"
        own = f"{dns_label(job.name)}-{sha256(job.secret.encode()).hexdigest()[:SUFFIX_DIGITS]}"
        queue = queue_label(site)
        yield "apiVersion: v1"
        yield "kind: Secret"
        yield f"metadata: {{name: {own}}}"
        yield "immutable: true"
        yield f"stringData: {{{SECRET_FILE}: {json.dumps(job.secret)}}} # by which the ranks know each other"
        yield "---"
        yield "apiVersion: v1"
        yield "kind: Service"
        yield f"metadata: {{name: {own}}}"
        yield "spec:"
        yield "  clusterIP: None # it gives the pods names"
        yield f"  selector: {{{LABEL}: {own}}}"
        yield "---"
        yield "apiVersion: batch/v1"
        yield "kind: Job"
        yield "metadata:"
        yield f"  name: {own}"
        if queue:
            yield f"  {queue}"
        yield "spec:"
        yield "  completionMode: Indexed"
        limit = f"activeDeadlineSeconds: {job.limit_seconds}"
        yield from (f"  {line}" for line in marked(limit, 1, "time limit"))
        yield from (f"  {line}" for line in marked(f"completions: &nodes {job.nodes}", 2, "number of nodes"))
        yield "  parallelism: *nodes"
        if queue:
            yield "  suspend: true # until Kueue admits it"
        yield "  backoffLimitPerIndex: 0 # a pod that died is not replaced, and the others continue"
        yield "  podFailurePolicy:"
        yield "    rules:"
        yield "      # Stopped in time: all pods are started again, and the run continues."
        yield f"      - {{action: Ignore, onExitCodes: {{operator: In, values: [{AGAIN}]}}}}"
        yield "      # A run that failed would fail again."
        never = ", ".join(map(str, NEVER_AGAIN))
        yield f"      - {{action: FailJob, onExitCodes: {{operator: In, values: [{never}]}}}}"
        yield '  successPolicy: {rules: [{succeededIndexes: "0"}]} # the first pod has the master'
        yield "  template:"
        yield "    spec:"
        yield "      restartPolicy: Never"
        yield f"      subdomain: {own}"
        nodes = marked(f'- {{name: {NODES}, value: "{job.nodes}"}}', 2, "the same number again")
        rights = PINNING if site.kubernetes.rdma else CONFINED
        pod = Pod("ranks", script, LABEL, NOT_ROOT, rights, variables=tuple(nodes), secret=own)
        yield from (f"      {line}".rstrip() for line in pod.lines(site))

    def launchers(self) -> Iterable[Launcher]:
        """Each pod starts its ranks itself."""
        why = "The ranks meet at a port of the first pod, and know each other by the secret of the run."
        place = {"MASTER_PORT": str(PORT), "AIPERF_SECRET_FILE": f"{SECRET_FOLDER}/{SECRET_FILE}"}
        words = ['bash -c "$start" start']
        return [Launcher("kubectl", lambda mpi: words, once_a_node=(), environment=place, why=why)]

    def chosen_launcher(self, mpi: object) -> Launcher:
        """The one that there is, whatever MPI the site has."""
        (only,) = self.launchers()
        return only

    def rank_options(self, site: Site) -> list[str]:
        """None: each pod starts its ranks itself."""
        return []

    def cores(self, site: Site) -> list[str]:
        """None: nothing in the words of its launcher reads `$cores`."""
        return []

    def host_lines(self) -> list[str]:
        """Only pods that run have an address, so that no rank waits for one whose image is on its way."""
        return [
            "# The first pod has the master, at an address that no old answer of the DNS can hide.",
            "index=$JOB_COMPLETION_INDEX",
            f"master=${NAME}-0.${NAME}",
            "((index)) || master=$HOSTNAME",
            "export index devices MASTER_ADDR=$master WORLD_SIZE=$((nodes * devices + 1))",
            "# Wait until all pods run.",
            f"until (($(getent ahosts \"${NAME}\" | awk '{{ print $1 }}' | sort -u | wc -l) >= nodes)); do",
            f"    ((SECONDS < {ANSWER_SECONDS})) ||",
            '        { echo "not all $nodes pods have started; see them: kubectl get pods" >&2; exit 1; }',
            f"    [[ -z $warned ]] || exit {AGAIN}",
            "    sleep 2",
            "done",
            "# One rank per device, and in the first pod the master, which has no device, and is warned.",
            *START.splitlines(),
        ]
