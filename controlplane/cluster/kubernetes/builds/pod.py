"""The pod of a build. Pure."""

from typing import Any, Final

from controlplane.cluster.kubernetes.marks import DOMAIN, KEPT, LABEL_INSTALLATION, TARGET
from controlplane.cluster.kubernetes.pods.podspec import PodDefaults
from controlplane.settings import BuildSettings

Json = dict[str, Any]

PORT: Final = 7070
LABEL_BUILD: Final = f"{DOMAIN}/build"
STATE: Final = "/var/lib/buildkit"
# Longer than any build may take, and one more where the pod has built before.
REUSED_FOR_S: Final = 6_600
LIVES_S: Final = 7_800 + REUSED_FOR_S
# Powers over gVisor's kernel, which is this pod's alone: BuildKit mounts, and runc makes containers.
CAPABILITIES: Final = ("SYS_ADMIN", "NET_ADMIN", "SYS_PTRACE")
DROPPED: Final = ("NET_RAW",)
# Of the disk that the state may take: what is written beside it, as logs.
BESIDE_BYTES: Final = 256 << 20
# Nothing in it has a name to look up.
_NO_NAMES: Final = {"dnsPolicy": "None", "dnsConfig": {"nameservers": ["127.0.0.1"]}}


def labels(installation: str) -> Json:
    """Those by which the pods of builds are found, and their network policy selects them."""
    return {"app.kubernetes.io/name": "rollbox-builder", LABEL_INSTALLATION: installation, LABEL_BUILD: "true"}


def selector(installation: str) -> str:
    """A selector for the builds of an installation."""
    return f"{LABEL_INSTALLATION}={installation},{LABEL_BUILD}"


def pod(name: str, token: str, defaults: PodDefaults, settings: BuildSettings, architecture: str) -> Json:
    """The manifest.

    Args:
        name: of the pod.
        token: what a caller of its program has to show.
        defaults: what all pods of the installation have in common.
        settings: of builds.
        architecture: of its node; empty: any.
    """
    wishes: Json = {
        "priorityClassName": defaults.priority_class,
        "nodeSelector": {
            **({"kubernetes.io/arch": architecture} if architecture else {}),
            **(defaults.node_selector or {}),
        },
        "tolerations": [dict(one) for one in defaults.tolerations],
        "imagePullSecrets": [{"name": one} for one in defaults.image_pull_secrets],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": defaults.namespace,
            "labels": {**labels(defaults.installation), "app.kubernetes.io/managed-by": "rollbox"},
            "annotations": {**KEPT, **({} if settings.in_memory else kept_by_gvisor(settings.disk_bytes))},
        },
        "spec": {
            "runtimeClassName": defaults.runtime_class,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "activeDeadlineSeconds": LIVES_S,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            **_NO_NAMES,
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [_container(token, settings)],
            **({} if settings.in_memory else {"volumes": [_volume(settings)]}),
            **{wish: value for wish, value in wishes.items() if value},
        },
    }


def _volume(settings: BuildSettings) -> Json:
    return {"name": "state", "emptyDir": {"sizeLimit": str(settings.disk_bytes + BESIDE_BYTES)}}


def kept_by_gvisor(most_bytes: int) -> dict[str, str]:
    """Annotations of a pod that have gVisor keep its volume ``state`` as a file system of its own on the node's disk.

    BuildKit lays one over the other, which neither the root of a sandbox nor a folder of the node can be. gVisor's shim
    finds the volume below /var/lib/kubelet alone.
    """
    volume = "dev.gvisor.spec.mount.state"
    told = {"type": "bind", "share": "container", "options": f"rw,size={most_bytes}"}
    return {f"{volume}.{name}": value for name, value in told.items()}


def _container(token: str, settings: BuildSettings) -> Json:
    told = {"TOKEN": token, "STATE": STATE, "MOST_BYTES": str(settings.disk_bytes)}
    told |= {"IN_MEMORY": "true"} if settings.in_memory else {}
    on_disk = 0 if settings.in_memory else settings.disk_bytes
    cpu = f"{settings.cpu_millicores}m"
    memory = str(settings.memory_bytes + settings.disk_bytes - on_disk)
    storage = str(on_disk + 2 * BESIDE_BYTES)
    return {
        # The name by which the ends of containers are judged (``pods/deaths.py``).
        "name": TARGET,
        "image": settings.image,
        "imagePullPolicy": "IfNotPresent",
        "env": [{"name": f"ROLLBOX_BUILDER_{name}", "value": value} for name, value in told.items()],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "ports": [{"name": "builder", "containerPort": PORT}],
        "securityContext": {
            "runAsUser": 0,
            "privileged": False,
            "capabilities": {"add": list(CAPABILITIES), "drop": list(DROPPED)},
        },
        # What rollouts leave of the processor: a small request has a small weight.
        "resources": {
            "requests": {
                "cpu": f"{min(100, settings.cpu_millicores)}m",
                "memory": str(min(512 << 20, settings.memory_bytes)),
                "ephemeral-storage": str(min(512 << 20, on_disk + BESIDE_BYTES)),
            },
            "limits": {"cpu": cpu, "memory": memory, "ephemeral-storage": storage},
        },
        "volumeMounts": [] if settings.in_memory else [{"name": "state", "mountPath": STATE}],
    }
