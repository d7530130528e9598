"""The pods of a job under Kubernetes, as lines of a manifest. Strings of the user are written as JSON, which
YAML includes. What a pod has is the same for all three forms of jobs; the forms differ in who starts it and
with which rights."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from aiperf.errors import ConfigError
from launch.job import WARNING_SECONDS
from launch.site import Site
from nas.frozen import frozen

NAME = "KUBERNETES_JOB"
"""Variable of each pod with the name of its job."""
AGAIN = 75
"""Exit code of a run that was stopped in time."""
SECRET_FOLDER, SECRET_FILE = "/etc/aiperf-hpc", "secret"
"""Where the secret of a run is mounted, and the name of its file."""


@frozen
class Pod:
    """What the pods of one kind have in common."""

    container: str
    """Name of the container."""
    script: str
    """What its bash carries out."""
    label: str
    """The label in which the pod has the name of its job."""
    security: str
    """Security context of the pod, in YAML."""
    container_security: str = ""
    """Security context of the container, in YAML; empty: none."""
    has_devices: bool = True
    """Whether it is given the devices of a node."""
    variables: tuple[str, ...] = ()
    """Further lines of its environment."""
    secret: str = ""
    """Name of the Secret whose file it has; empty: none."""

    def lines(self, site: Site) -> Iterator[str]:
        """The lines of its specification. They are indented from 0; the caller places them."""
        pods = site.kubernetes
        # The launcher's pod has none: the master trains nothing.
        resources = dict(_resources(site)) if self.has_devices else {}
        yield f"terminationGracePeriodSeconds: {WARNING_SECONDS} # for the end of a run that is warned"
        yield f"securityContext: {self.security}"
        yield "containers:"
        yield f"  - name: {self.container}"
        yield f"    image: {json.dumps(pods.image)}"
        yield f"    workingDir: {_quoted(pods.mount)}"
        yield "    env:"
        yield f"      - name: {NAME}"
        yield "        valueFrom:"
        yield f"          fieldRef: {{fieldPath: \"metadata.labels['{self.label}']\"}}"
        yield from (f"      {line}" for line in self.variables)
        if resources:
            yield f"    resources: {{limits: {json.dumps(resources)}}}"
        if self.container_security:
            yield f"    securityContext: {self.container_security}"
        yield "    volumeMounts:"
        yield f"      - {{name: work, mountPath: {_quoted(pods.mount)}}}"
        yield "      - {name: shared-memory, mountPath: /dev/shm}"
        if self.secret:
            yield f"      - {{name: secret, mountPath: {SECRET_FOLDER}, readOnly: true}}"
        yield '    command: ["bash", "-c"]'
        yield "    args:"
        yield "      - |"
        # Kubernetes takes $$ for one $ (Container v1 core, args).
        yield from (f"{' ' * 8}{line}".rstrip() for line in self.script.replace("$$", "$$$$").splitlines())
        yield "volumes:"
        yield f"  - {{name: work, persistentVolumeClaim: {{claimName: {json.dumps(pods.claim)}}}}}"
        memory = json.dumps(pods.shared_memory)
        yield f"  - {{name: shared-memory, emptyDir: {{medium: Memory, sizeLimit: {memory}}}}}"
        if self.secret:
            # It belongs to root, and the image's user is not root, but in its group.
            yield f"  - {{name: secret, secret: {{secretName: {self.secret}, defaultMode: 0440}}}}"


def refuse_other_site(site: Site) -> None:
    """Raises ConfigError for a site file without what pods need, or with what they cannot have."""
    for key, value in _meaningless(site):
        if value:
            raise ConfigError(
                f"{key} is set in the site file, but has no meaning under Kubernetes; remove it"
            )
    for key in ("image", "claim"):
        if not getattr(site.kubernetes, key):
            raise ConfigError(f"kubernetes.{key} is not set in the site file; Kubernetes needs it")


def dns_label(name: str) -> str:
    """The name of a job as Kubernetes allows it, short enough for what is added to it. It begins with a
    letter, as the names of services do (RFC 1035)."""
    label = re.sub(r"[^a-z0-9-]", "-", name.lower())
    return f"{'' if label[0].isalpha() else 'run-'}{label}"[:40].strip("-")


def queue_label(site: Site) -> str:
    """The label by which Kueue knows the queue of a job, as a line; empty without a queue."""
    queue = site.queue.partition
    return f"labels: {{kueue.x-k8s.io/queue-name: {json.dumps(queue)}}}" if queue else ""


def _meaningless(site: Site) -> Iterator[tuple[str, object]]:
    """What other schedulers need, and a pod cannot have."""
    yield "queue.account", site.queue.account
    yield "queue.options", site.queue.options
    yield "modules", site.modules
    yield "container.image", site.container.image
    yield "scratch.directory", site.scratch.directory


def _resources(site: Site) -> Iterator[tuple[str, str]]:
    """What one pod is given of its node."""
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
