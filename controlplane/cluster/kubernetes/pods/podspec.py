"""Builds a sandbox's pod from its spec. Pure: no I/O, no clock.

The *target* has the user's unmodified image; its main process is a static binary that only waits, which the *sidecar*
puts on a shared volume. So the sidecar is the first container, since the kubelet starts them in order. Commands run in
the target's mount namespace.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from controlplane.cluster.kubernetes.marks import (
    ANNOTATION_RECORD,
    ANNOTATION_START_BY,
    FINALIZER,
    KEPT,
    LABEL_INSTALLATION,
    LABEL_SANDBOX,
    LABEL_SHARD,
    MOVABLE,
    SIDECAR,
    SIDECAR_PORT,
    TARGET,
)
from controlplane.cluster.kubernetes.nodes import resources
from controlplane.cluster.kubernetes.nodes.devices import DeviceClaims
from controlplane.cluster.kubernetes.nodes.lazy import LazyImages, not_on, pull_policy
from controlplane.cluster.kubernetes.pods import claims, direct, mounts, scratch
from controlplane.cluster.kubernetes.pods.shard import shard_of
from controlplane.cluster.protocol import Boot
from controlplane.egress import NO_NETWORKS, DirectNetworks
from controlplane.model import SandboxSpec
from controlplane.model.base import MIB

# No policy lets a sandbox reach a resolver. At the cluster's one, behind such a policy, a lookup hangs for 20 s; on
# loopback, where nothing listens, it fails in milliseconds.
_NO_NAMES: Final = {
    "dnsPolicy": "None",
    "dnsConfig": {
        "nameservers": ["127.0.0.1"],
        "options": [{"name": "timeout", "value": "1"}, {"name": "attempts", "value": "1"}],
    },
}
SHARED_DIR: Final = "/.rollbox"
TARGET_COMMAND: Final = f"{SHARED_DIR}/target"
SIDECAR_COMMAND: Final = "/rollbox-sidecar"

# Under gVisor these capabilities apply to the sandbox's own kernel only.
CAPABILITIES: Final = ("SYS_ADMIN", "SYS_CHROOT", "SYS_PTRACE")
# Only this one is dropped: the spawner gives commands the target's capabilities, so the sidecar needs all of those too.
# Without NET_RAW no command can forge packets.
DROPPED: Final = ("NET_RAW",)

SHARED_BYTES: Final = 8 * MIB
# Most nodes that a pod's affinity avoids; if more nodes are full, the scheduler's own scoring is good enough.
MOST_AVOIDED: Final = 64

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PodDefaults:
    """What all sandboxes of an installation have in common.

    Attributes:
        ready_url: the URL for readiness pushes; its host is an IP address, since a sandbox has no DNS.
        commands_in_sidecar: whether commands count for the limits of the sidecar's container, as under runc, and not
            for those of the pod, as under gVisor.
        pids_limit: the default limit of processes in a sandbox; None: they cannot be limited.
        lazy: the nodes' lazy pulling; None: they have none.
        scheduler: places them; empty: the cluster's default.
        egress: settings of each sidecar about egress; empty: it is not installed.
        networks: direct ones that sandboxes may have.
        devices: how sandboxes get devices; None: they get none.
    """

    namespace: str
    installation: str
    sidecar_image: str
    ready_url: str
    runtime_class: str
    dns_shards: int
    priority_class: str = ""
    node_selector: Mapping[str, str] | None = None
    tolerations: Sequence[Mapping[str, object]] = ()
    image_pull_secrets: Sequence[str] = ()
    commands_in_sidecar: bool = False
    pids_limit: int | None = None
    lazy: LazyImages | None = None
    scheduler: str = ""
    egress: tuple[tuple[str, str], ...] = ()
    networks: DirectNetworks = NO_NETWORKS
    devices: DeviceClaims | None = None

    def runtime_class_of(self, spec: SandboxSpec, lazily: LazyImages | None) -> str:
        """The RuntimeClass of a sandbox; ``lazily``: how its node mounts the image lazily."""
        plain = claims.runtime_class(self.devices, spec) or self.runtime_class
        return lazily.runtime_class if lazily else plain


def selector(installation: str) -> str:
    """A selector for an installation's sandboxes; not for pods that only have the labels of its network policies."""
    return f"{LABEL_INSTALLATION}={installation},{LABEL_SANDBOX}"


def policy_labels(installation: str) -> Json:
    """The labels by which network policies select sandboxes."""
    return {"app.kubernetes.io/name": "rollbox-sandbox", LABEL_INSTALLATION: installation}


def pod(
    sandbox_id: str,
    spec: SandboxSpec,
    boot: Boot,
    defaults: PodDefaults,
    start_by_ms: int,
    *,
    lazily: LazyImages | None = None,
    near: Sequence[tuple[str, int]] = (),
    confined: Json | None = None,
) -> Json:
    """The manifest of one sandbox.

    Args:
        sandbox_id: the pod's name.
        spec: what the create requested.
        boot: the parameters of the start.
        defaults: what all sandboxes of the installation have in common.
        start_by_ms: the start's deadline (Unix time), for every replica that watches the pod.
        lazily: how its node mounts the image lazily; None: the node fetches it whole.
        near: nodes that it prefers for its image, with weights from 1 to 100.
        confined: a required node affinity; None: it may come to every node.
    """
    shard = shard_of(sandbox_id, defaults.dns_shards)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": sandbox_id,
            "namespace": defaults.namespace,
            "labels": {
                **policy_labels(defaults.installation),
                "app.kubernetes.io/managed-by": "rollbox",
                LABEL_SANDBOX: "true",
                LABEL_SHARD: str(shard),
                **direct.labels(spec.network),
            },
            "annotations": {
                ANNOTATION_RECORD: boot.record,
                ANNOTATION_START_BY: str(start_by_ms),
                **(MOVABLE if boot.unclaimed else KEPT),
                **(lazily.annotations() if lazily else {}),
                **mounts.annotations(boot.mounts),
            },
            "finalizers": [FINALIZER],
        },
        "spec": {
            "hostname": sandbox_id,
            "subdomain": f"shard-{shard}",
            "runtimeClassName": defaults.runtime_class_of(spec, lazily),
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "shareProcessNamespace": True,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            **direct.resolving(defaults.networks, spec.network, _NO_NAMES),
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [_sidecar(sandbox_id, spec, boot, defaults), _target(spec, boot, defaults, lazily)],
            "volumes": [
                {"name": "rollbox", "emptyDir": {"medium": "Memory", "sizeLimit": str(SHARED_BYTES)}},
                *mounts.volumes(boot.mounts, defaults.installation),
            ],
            **claims.of_pod(defaults.devices, spec),
            **_placement(spec, defaults, _affinity(boot.avoid[:MOST_AVOIDED], near, confined)),
        },
    }


def _sidecar(sandbox_id: str, spec: SandboxSpec, boot: Boot, defaults: PodDefaults) -> Json:
    return {
        "name": SIDECAR,
        "image": defaults.sidecar_image,
        "imagePullPolicy": "IfNotPresent",
        "command": [SIDECAR_COMMAND],
        "env": [
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            *_settings(sandbox_id, spec, boot, defaults),
        ],
        # Puts the log's end into the pod's status, so that a failed sidecar's error is known without reading logs. Not
        # for the target, whose output is the user's.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "ports": [{"name": "agent", "containerPort": SIDECAR_PORT}],
        "securityContext": {
            "runAsUser": 0,
            "privileged": False,
            # It writes to the volume that it shares with the target, and in the target's own file system.
            "readOnlyRootFilesystem": True,
            "capabilities": {"add": list(CAPABILITIES), "drop": list(DROPPED)},
        },
        "resources": {
            **resources.of_sidecar(spec, commands_inside=defaults.commands_in_sidecar),
            **claims.of_container(defaults.devices, spec),
        },
        "volumeMounts": [{"name": "rollbox", "mountPath": SHARED_DIR}],
    }


def _settings(sandbox_id: str, spec: SandboxSpec, boot: Boot, defaults: PodDefaults) -> list[Json]:
    shared = scratch.paths(boot.mounts)
    settings = (
        ("SANDBOX_ID", sandbox_id),
        ("LISTEN", f"tcp:0.0.0.0:{SIDECAR_PORT}"),
        ("ADVERTISE", f"http://$(POD_IP):{SIDECAR_PORT}"),
        ("READY_URL", defaults.ready_url),
        ("READY_TOKEN", boot.ready_token),
        ("TOKEN_PUBLIC_KEY", boot.token_public_key),
        ("START_TIMEOUT_MS", str(spec.start_timeout_ms)),
        ("CPU_LIMIT_MILLICORES", str(spec.cpu_millicores.limit)),
        ("MEMORY_LIMIT_BYTES", str(spec.memory_bytes.limit)),
        ("DISK_LIMIT_BYTES", str(resources.disk_bytes(spec))),
        ("PIDS_LIMIT", str(spec.pids_limit or defaults.pids_limit or 0)),
        ("INSTALL", TARGET_COMMAND),
        ("TARGET_COMMAND", TARGET_COMMAND),
        *([("INTERPRETER", boot.interpreter)] if boot.interpreter else []),
        *([("WRITABLE_MOUNTS", ":".join(shared))] if shared else []),
    )
    return [{"name": f"ROLLBOX_SIDECAR_{name}", "value": value} for name, value in (*settings, *defaults.egress)]


def _target(spec: SandboxSpec, boot: Boot, defaults: PodDefaults, lazily: LazyImages | None) -> Json:
    return {
        "name": TARGET,
        "image": spec.image,
        "imagePullPolicy": pull_policy(defaults.lazy, lazily, spec),
        "command": [TARGET_COMMAND],
        "securityContext": {"privileged": False, "capabilities": {"drop": list(DROPPED)}},
        "resources": {**resources.of_target(spec), **claims.of_container(defaults.devices, spec)},
        "volumeMounts": [
            {"name": "rollbox", "mountPath": SHARED_DIR, "readOnly": True},
            *mounts.volume_mounts(boot.mounts),
        ],
    }


def _placement(spec: SandboxSpec, defaults: PodDefaults, affinity: Json) -> Json:
    """The fields for the scheduler; empty ones are left out, since they would override the cluster's defaults."""
    wishes: Json = {
        "priorityClassName": defaults.priority_class,
        "schedulerName": defaults.scheduler,
        "nodeSelector": {**spec.node_selector, **(defaults.node_selector or {})},
        "affinity": affinity,
        "tolerations": [dict(one) for one in defaults.tolerations],
        "imagePullSecrets": [{"name": name} for name in defaults.image_pull_secrets],
    }
    return {name: wish for name, wish in wishes.items() if wish}


def _affinity(avoid: Sequence[str], near: Sequence[tuple[str, int]], confined: Json | None) -> Json:
    """What is preferred keeps a pod from no node: if it were required, it would be kept off the only node with room."""
    preferred: list[Json] = []
    if avoid:
        preferred.append({"weight": 100, "preference": {"matchFields": not_on(avoid)}})
    for node, weight in near:
        named = [{"key": "metadata.name", "operator": "In", "values": [node]}]
        preferred.append({"weight": weight, "preference": {"matchFields": named}})
    wishes: Json = {}
    if preferred:
        wishes["preferredDuringSchedulingIgnoredDuringExecution"] = preferred
    if confined:
        wishes["requiredDuringSchedulingIgnoredDuringExecution"] = confined
    return {"nodeAffinity": wishes} if wishes else {}
