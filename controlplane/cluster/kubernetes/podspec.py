"""From a spec to the pod: pure, no I/O, no clock.

Topology: the *sidecar* comes first, since the kubelet starts containers in their order and the sidecar brings the
program that keeps the *target*, the user's unmodified image, waiting. Commands run in the target's mount namespace.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from controlplane.cluster.kubernetes import resources
from controlplane.cluster.kubernetes.shard import shard_of
from controlplane.cluster.protocol import Boot
from controlplane.model import SandboxSpec
from controlplane.model.spec import MIB

DOMAIN: Final = "rollbox.dev"
LABEL_INSTALLATION: Final = f"{DOMAIN}/installation"
LABEL_SANDBOX: Final = f"{DOMAIN}/sandbox"
LABEL_SHARD: Final = f"{DOMAIN}/shard"
ANNOTATION_RECORD: Final = f"{DOMAIN}/record"
ANNOTATION_START_BY: Final = f"{DOMAIN}/start-by-ms"
# What the readiness push said; a fact of ``Cluster.annotate``.
ANNOTATION_ADDRESS: Final = f"{DOMAIN}/address"
FINALIZER: Final = f"{DOMAIN}/tombstone"

SIDECAR: Final = "sidecar"
TARGET: Final = "target"
SIDECAR_PORT: Final = 7070
SHARED_DIR: Final = "/.rollbox"
TARGET_COMMAND: Final = f"{SHARED_DIR}/target"
SIDECAR_COMMAND: Final = "/rollbox-sidecar"

# Under gVisor these are powers over the sandbox's own kernel only.
CAPABILITIES: Final = ("SYS_ADMIN", "SYS_CHROOT", "SYS_PTRACE")
# The spawner hands the target's powers on, so it cannot have fewer; nobody needs to forge packets.
DROPPED: Final = ("NET_RAW",)

SHARED_BYTES: Final = 8 * MIB
# Names of nodes in one pod; with more that are full, the scheduler's own judgement is as good.
MOST_AVOIDED: Final = 64

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """What all sandboxes of an installation have in common.

    Attributes:
        ready_url: where sidecars push; the host is an address, since a sandbox resolves no names.
        commands_in_sidecar: the limits of a command are those of the sidecar's container, as under runc, and not
            those of the pod, as under gVisor.
        pids_limit: of a sandbox that asks for none; None: nothing here can limit it.
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


def selector(installation: str) -> str:
    """Selects the sandboxes of an installation, and nothing that only looks like one to network policies."""
    return f"{LABEL_INSTALLATION}={installation},{LABEL_SANDBOX}"


def policy_labels(installation: str) -> Json:
    """The labels by which network policies know a sandbox."""
    return {"app.kubernetes.io/name": "rollbox-sandbox", LABEL_INSTALLATION: installation}


def pod(sandbox_id: str, spec: SandboxSpec, boot: Boot, place: Place, start_by_ms: int) -> Json:
    """The manifest of one sandbox.

    Args:
        sandbox_id: becomes the pod's name.
        spec: what the caller asked for.
        boot: what the start brings along.
        place: what all sandboxes here have in common.
        start_by_ms: Unix time at which the start is over, for whoever watches the pod.
    """
    shard = shard_of(sandbox_id, place.dns_shards)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": sandbox_id,
            "namespace": place.namespace,
            "labels": {
                **policy_labels(place.installation),
                "app.kubernetes.io/managed-by": "rollbox",
                LABEL_SANDBOX: sandbox_id,
                LABEL_SHARD: str(shard),
            },
            "annotations": {ANNOTATION_RECORD: boot.record, ANNOTATION_START_BY: str(start_by_ms)},
            "finalizers": [FINALIZER],
        },
        "spec": {
            "hostname": sandbox_id,
            "subdomain": f"shard-{shard}",
            "runtimeClassName": place.runtime_class,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "shareProcessNamespace": True,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "dnsConfig": {"options": [{"name": "ndots", "value": "1"}]},
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [_sidecar(sandbox_id, spec, boot, place), _target(spec)],
            "volumes": [{"name": "rollbox", "emptyDir": {"medium": "Memory", "sizeLimit": str(SHARED_BYTES)}}],
            **_placement(spec, place, boot.avoid),
        },
    }


def _sidecar(sandbox_id: str, spec: SandboxSpec, boot: Boot, place: Place) -> Json:
    return {
        "name": SIDECAR,
        "image": place.sidecar_image,
        "imagePullPolicy": "IfNotPresent",
        "command": [SIDECAR_COMMAND],
        "env": [
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            *_settings(sandbox_id, spec, boot, place),
        ],
        # How a sidecar that gave up is heard without reading logs; what the target says is the user's.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "ports": [{"name": "agent", "containerPort": SIDECAR_PORT}],
        "securityContext": {
            "runAsUser": 0,
            "privileged": False,
            "capabilities": {"add": list(CAPABILITIES), "drop": list(DROPPED)},
        },
        "resources": resources.of_sidecar(spec, commands_inside=place.commands_in_sidecar),
        "volumeMounts": [{"name": "rollbox", "mountPath": SHARED_DIR}],
    }


def _settings(sandbox_id: str, spec: SandboxSpec, boot: Boot, place: Place) -> list[Json]:
    settings = (
        ("SANDBOX_ID", sandbox_id),
        ("LISTEN", f"tcp:0.0.0.0:{SIDECAR_PORT}"),
        ("ADVERTISE", f"http://$(POD_IP):{SIDECAR_PORT}"),
        ("READY_URL", place.ready_url),
        ("READY_TOKEN", boot.ready_token),
        ("TOKEN_PUBLIC_KEY", boot.token_public_key),
        ("START_TIMEOUT_MS", str(spec.start_timeout_ms)),
        ("MEMORY_LIMIT_BYTES", str(spec.memory_bytes.limit)),
        ("DISK_LIMIT_BYTES", str(resources.disk_bytes(spec))),
        ("PIDS_LIMIT", str(spec.pids_limit or place.pids_limit or 0)),
        ("INSTALL", TARGET_COMMAND),
        ("TARGET_COMMAND", TARGET_COMMAND),
    )
    return [{"name": f"ROLLBOX_SIDECAR_{name}", "value": value} for name, value in settings]


def _target(spec: SandboxSpec) -> Json:
    return {
        "name": TARGET,
        "image": spec.image,
        "imagePullPolicy": "IfNotPresent",
        "command": [TARGET_COMMAND],
        "securityContext": {"privileged": False, "capabilities": {"drop": list(DROPPED)}},
        "resources": resources.of_target(spec),
        "volumeMounts": [{"name": "rollbox", "mountPath": SHARED_DIR, "readOnly": True}],
    }


def _placement(spec: SandboxSpec, place: Place, avoid: Sequence[str]) -> Json:
    """Only what was asked for: an empty field would override what the cluster's defaults say."""
    wishes: Json = {
        "priorityClassName": place.priority_class,
        "nodeSelector": {**spec.node_selector, **(place.node_selector or {})},
        "affinity": _away_from(avoid[:MOST_AVOIDED]),
        "tolerations": [dict(one) for one in place.tolerations],
        "imagePullSecrets": [{"name": name} for name in place.image_pull_secrets],
    }
    return {name: wish for name, wish in wishes.items() if wish}


def _away_from(nodes: Sequence[str]) -> Json:
    """A wish: as a rule it would keep a pod from the only node with room, until the pod ends."""
    if not nodes:
        return {}
    # By field, since no label has to be a node's name; a field takes one value.
    others = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
    wish = {"weight": 100, "preference": {"matchFields": others}}
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}}
