"""The manifests of the network check of ``rollbox doctor --cluster``: a restricted and an unrestricted pod. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from controlplane.cluster.kubernetes import marks
from controlplane.cluster.kubernetes.doctor.releases import Release
from controlplane.cluster.kubernetes.pods import podspec
from controlplane.reach import ways
from controlplane.reach.ways import READY, Way

Json = dict[str, Any]
# The pods end by themselves after this time, in case ``rollbox doctor`` is killed.
DEADLINE_S: Final = 120
PROGRAM: Final = ("python3", "-m", "controlplane.reach")
PEER: Final = {"app.kubernetes.io/name": "rollbox-doctor", "app.kubernetes.io/component": "peer"}
READY_PORT: Final = 8082
OTHER_PORT: Final = 8083
# New policies may take effect with this delay.
NEW_POLICIES_S: Final = 8.0
# A node may apply the policies of a new pod with this delay; a busy node takes longer.
READY_S: Final = 15.0


@dataclass(frozen=True, slots=True)
class NetworkCheck:
    """The two pods of a network check: one that policies restrict like a sandbox, and an unrestricted one.

    Attributes:
        sandboxes: the namespace of the restricted pod.
        platform: the namespace of the unrestricted pod.
        labels: the restricted pod's labels, by which policies select it.
        runtime_class: the restricted pod's; empty: the cluster's default.
        tried: the destinations that both pods try.
        pull_secrets: those of the restricted, and of the unrestricted pod.
    """

    sandboxes: str
    platform: str
    labels: Mapping[str, str]
    runtime_class: str
    image: str
    tried: Sequence[Way]
    node_selector: Mapping[str, str]
    tolerations: Sequence[Mapping[str, object]]
    pull_secrets: tuple[Sequence[str], Sequence[str]]


def of_release(release: Release, closed: Sequence[Way], ready: str) -> NetworkCheck:
    """A check in the namespaces of a release, under the release's own policies.

    Args:
        release: the release.
        closed: the destinations that must be unreachable.
        ready: the address of the Service for readiness pushes.
    """
    return NetworkCheck(
        sandboxes=release.sandboxes,
        platform=release.namespace,
        # Not all labels of a sandbox: the control plane would look for its record, find none, and remove the pod.
        labels=podspec.policy_labels(release.name),
        runtime_class=release.runtime_class,
        image=release.image,
        tried=[*closed, Way(READY, ready, release.ready[2], must_work=True, retry_for_s=READY_S)],
        node_selector=release.node_selector,
        tolerations=release.tolerations,
        pull_secrets=(release.pull_secrets, release.platform_pull_secrets),
    )


def of_namespace(namespace: str, image: str, runtime_class: str, closed: Sequence[Way], peer: str) -> NetworkCheck:
    """A check in a temporary namespace, with a pod that listens at the address ``peer``.

    Args:
        namespace: the temporary one.
        image: of the pods that try, with Python in it.
        runtime_class: of these pods.
        closed: what they must not reach.
        peer: the address of the pod that listens; only its readiness port must be reached.
    """
    others = [*closed, Way("port of another pod", peer, OTHER_PORT)]
    retried = [replace(way, retry_for_s=NEW_POLICIES_S) for way in others]
    return NetworkCheck(
        sandboxes=namespace,
        platform=namespace,
        labels=podspec.policy_labels(namespace),
        runtime_class=runtime_class,
        image=image,
        tried=[*retried, Way(READY, peer, READY_PORT, must_work=True, retry_for_s=READY_S)],
        node_selector={},
        tolerations=(),
        pull_secrets=((), ()),
    )


def inside(check: NetworkCheck, name: str) -> Json:
    """The manifest of the pod that policies restrict like a sandbox."""
    return pod(
        name,
        check.sandboxes,
        check.labels,
        check.image,
        [*PROGRAM, ways.dumped(check.tried), "/dev/termination-log"],
        runtimeClassName=check.runtime_class,
        nodeSelector=dict(check.node_selector),
        tolerations=[dict(one) for one in check.tolerations],
        imagePullSecrets=[{"name": one} for one in check.pull_secrets[0]],
    )


def outside(check: NetworkCheck, name: str, tried: Sequence[Way]) -> Json:
    """The manifest of the pod that no policy restricts."""
    command = [*PROGRAM, ways.dumped([way.from_outside() for way in tried]), "/dev/termination-log"]
    labels = {**PEER, "app.kubernetes.io/component": "outside"}
    secrets = [{"name": one} for one in check.pull_secrets[1]]
    return pod(name, check.platform, labels, check.image, command, imagePullSecrets=secrets)


def peer(namespace: str, name: str, image: str) -> Json:
    """The manifest of a pod that listens in the place of the platform's."""
    command = [*PROGRAM, "serve", "$(POD_IP)", str(READY_PORT), str(OTHER_PORT)]
    return pod(name, namespace, PEER, image, command)


def policies(namespace: str) -> list[Json]:
    """The same policies as the chart's: all traffic of a sandbox is denied, except to one port of the peer."""
    sandbox = {"matchLabels": podspec.policy_labels(namespace)}
    to_peer = {"to": [{"podSelector": {"matchLabels": PEER}}], "ports": [{"port": READY_PORT, "protocol": "TCP"}]}
    return [
        _policy(namespace, "deny-all", {"podSelector": sandbox, "policyTypes": ["Ingress", "Egress"]}),
        _policy(namespace, "ready", {"podSelector": sandbox, "policyTypes": ["Egress"], "egress": [to_peer]}),
    ]


def _policy(namespace: str, name: str, spec: Json) -> Json:
    about = {"name": name, "namespace": namespace}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": about, "spec": spec}


def pod(
    name: str, namespace: str, labels: Mapping[str, str], image: str, command: Sequence[str], **more: object
) -> Json:
    """The manifest of a pod of a check: with few rights, a limit of 128 MiB and an end by itself.

    Args:
        name: of the pod.
        namespace: where it runs.
        labels: of it.
        image: with Python in it.
        command: it knows its addresses as HOST_IP and POD_IP.
        **more: further fields of its spec; empty ones are left out.
    """
    addresses = {"HOST_IP": "status.hostIP", "POD_IP": "status.podIP"}
    container = {
        # ``deaths`` evaluates only containers with the names of a sandbox's.
        "name": marks.TARGET,
        "image": image,
        "command": [*command],
        "env": [{"name": one, "valueFrom": {"fieldRef": {"fieldPath": path}}} for one, path in addresses.items()],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"cpu": "500m", "memory": "128Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": dict(labels)},
        "spec": {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": DEADLINE_S,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
            **{key: value for key, value in more.items() if value},
        },
    }
