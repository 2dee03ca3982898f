"""Lists of a cluster's objects, asked of its API server itself.

`kubectl` takes a sixth of a second of a core for each look, and tests that wait look often.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

_CORE: Final = "/api/v1"
_ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
_RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
# Plural -> where it is, its kind.
KINDS: Final = {
    "clusterrolebindings": (_RBAC, "ClusterRoleBinding"),
    "clusterroles": (_RBAC, "ClusterRole"),
    "configmaps": (_CORE, "ConfigMap"),
    "deployments": ("/apis/apps/v1", "Deployment"),
    "endpointslices": ("/apis/discovery.k8s.io/v1", "EndpointSlice"),
    "events": (_CORE, "Event"),
    "horizontalpodautoscalers": ("/apis/autoscaling/v2", "HorizontalPodAutoscaler"),
    "jobs": ("/apis/batch/v1", "Job"),
    "namespaces": (_CORE, "Namespace"),
    "networkpolicies": ("/apis/networking.k8s.io/v1", "NetworkPolicy"),
    "nodes": (_CORE, "Node"),
    "persistentvolumeclaims": (_CORE, "PersistentVolumeClaim"),
    "pods": (_CORE, "Pod"),
    "priorityclasses": ("/apis/scheduling.k8s.io/v1", "PriorityClass"),
    "runtimeclasses": ("/apis/node.k8s.io/v1", "RuntimeClass"),
    "sandboxpools": ("/apis/rollbox.dev/v1alpha1", "SandboxPool"),
    "egresspresets": ("/apis/rollbox.dev/v1alpha1", "EgressPreset"),
    "datasets": ("/apis/rollbox.dev/v1alpha1", "Dataset"),
    "apikeys": ("/apis/rollbox.dev/v1alpha1", "ApiKey"),
    "sandboxquotas": ("/apis/rollbox.dev/v1alpha1", "SandboxQuota"),
    "secrets": (_CORE, "Secret"),
    "serviceaccounts": (_CORE, "ServiceAccount"),
    "services": (_CORE, "Service"),
    "statefulsets": ("/apis/apps/v1", "StatefulSet"),
    "validatingadmissionpolicies": (_ADMISSION, "ValidatingAdmissionPolicy"),
    "validatingadmissionpolicybindings": (_ADMISSION, "ValidatingAdmissionPolicyBinding"),
}
_CLUSTERWIDE: Final = frozenset(
    (
        "clusterrolebindings",
        "clusterroles",
        "namespaces",
        "nodes",
        "priorityclasses",
        "runtimeclasses",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
    )
)


def _words() -> argparse.ArgumentParser:
    """What is understood of the words of `kubectl get`."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("kinds")
    parser.add_argument("-n", "--namespace", default="default")
    parser.add_argument("-A", "--all-namespaces", action="store_true")
    parser.add_argument("-l", "--selector", default="")
    parser.add_argument("--field-selector", default="")
    return parser


async def listed(kubeconfig: Path, arguments: Sequence[str]) -> list[dict[str, Any]]:
    """The objects that `kubectl get` with these words would find.

    Raises:
        KeyError: a kind that is not among ``KINDS``.
        Problem: what the API server refuses it for, or it does not answer.
    """
    # Half a second, which tests without a cluster do not have to wait for.
    from controlplane.cluster.kubernetes.api_server.client import KubernetesClient  # noqa: PLC0415

    asked = _words().parse_args(arguments)
    query = {"labelSelector": asked.selector, "fieldSelector": asked.field_selector}
    found: list[dict[str, Any]] = []
    async with KubernetesClient.connect(kubeconfig) as client:
        for plural in asked.kinds.split(","):
            root, kind = KINDS[plural]
            place = "" if plural in _CLUSTERWIDE or asked.all_namespaces else f"/namespaces/{asked.namespace}"
            items = (await client.list(f"{root}{place}/{plural}", {k: v for k, v in query.items() if v})).items
            # The API server names it once, for the whole list.
            found += [{"kind": kind, **one} for one in items]
    return found
