"""Reads what a pod requests of its node, as the scheduler counts it. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from controlplane.capacity import NOTHING, ORDER, Amounts, InitContainer, amounts, of_pod
from controlplane.capacity.amounts import CPU, PODS, larger
from controlplane.cluster.kubernetes.api_server.quantity import amount
from controlplane.cluster.kubernetes.nodes.scaling_marks import PLACEHOLDER

Json = dict[str, Any]

_OVER: Final = ("Succeeded", "Failed")
_NODE_AMOUNTS: Final = tuple(name for name in ORDER if name != PODS)


def counted(pod: Json) -> bool:
    """Whether the scheduler counts it: it is on a node and has not ended. One that is being deleted still counts.

    A placeholder does not: it gives way to sandboxes.
    """
    placed = (pod.get("spec") or {}).get("nodeName")
    kept = PLACEHOLDER in (pod["metadata"].get("labels") or {})
    return bool(placed) and not kept and (pod.get("status") or {}).get("phase") not in _OVER


def requests_of(pod: Json) -> Amounts:
    """The requests of a pod, its runtime's overhead included."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    resized = {
        str(one.get("name") or ""): one
        for key in ("containerStatuses", "initContainerStatuses")
        for one in status.get(key) or ()
        if one.get("allocatedResources") or one.get("resources")
    }
    containers = [_container(one, resized) for one in spec.get("containers") or ()]
    init = [
        InitContainer(_container(one, resized), one.get("restartPolicy") == "Always")
        for one in spec.get("initContainers") or ()
    ]
    whole = (spec.get("resources") or {}).get("requests") or {}
    overhead = spec.get("overhead") or {}
    return of_pod(
        containers,
        init,
        read(overhead) if overhead else NOTHING,
        [_amount(whole, name) if name in whole else None for name in ORDER] if whole else (),
    )


def by_claims(requests: Amounts, pod: Json, *, sandbox: bool) -> Amounts:
    """Requests of a cluster whose devices are claimed; ``sandbox``: each claim of the pod is for one of them.

    What a pod requests of its kubelet's device plugins is no device of these, and what others claim is counted by their
    claims.
    """
    cpu, memory, disk, _, pods = requests
    return cpu, memory, disk, len((pod.get("spec") or {}).get("resourceClaims") or ()) if sandbox else 0, pods


def read(told: Mapping[str, object]) -> Amounts:
    """Requests by resource, as the API writes them; fractions count as a whole."""
    return amounts({name: _amount(told, name) for name in told if name in _NODE_AMOUNTS})


def _container(container: Json, resized: Mapping[str, Json]) -> Amounts:
    requests = read((container.get("resources") or {}).get("requests") or {})
    # While its node has not resized it yet, the larger of both is set aside.
    for told in _in_use(resized.get(str(container.get("name") or ""))):
        requests = larger(requests, read(told))
    return requests


def _in_use(status: Json | None) -> Iterable[Mapping[str, object]]:
    if status is not None:
        yield status.get("allocatedResources") or {}
        yield (status.get("resources") or {}).get("requests") or {}


def _amount(told: Mapping[str, object], name: str) -> int:
    return amount(told.get(name), 1000 if name == CPU else 1, up=True)
