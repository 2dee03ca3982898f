"""Finds pods that were deleted long ago and whose kubelet has not confirmed their end. Pure.

Such a pod is not deleted by force while its node is alive: the scheduler counts the pod object, so the object keeps the
node's resources reserved for processes that still run, exactly until the kubelet has seen them end. Only a lost node
(``lost_nodes``) can never confirm it; there the pod is deleted by force.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from controlplane.cluster.kubernetes.marks import FINALIZER

# How long a stop may take before it is reported; a kubelet needs a second or two, a busy one half a minute.
UNSTOPPED_MS: Final = 120_000
ADVICE: Final = (
    "On the node, end what runs of the pod (`crictl pods --name POD`; under gVisor kill its runsc-sandbox process with "
    "signal 9), or drain and restart the node. Until then its room stays taken, and the node goes on with the rest."
)

Pod = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Unstopped:
    """One such pod: its node, and how long ago it should have ended."""

    name: str
    node: str
    for_ms: int


def unstopped(pods: Iterable[Pod], now_ms: int) -> list[Unstopped]:
    """The pods that their node has not stopped, oldest first; without those whose end is not on record yet."""
    found = [
        Unstopped(str(pod["metadata"]["name"]), node, for_ms)
        for pod in pods
        if (node := str((pod.get("spec") or {}).get("nodeName") or ""))
        and FINALIZER not in (pod["metadata"].get("finalizers") or ())
        and (for_ms := since_ms(pod, "deletionTimestamp", now_ms)) > UNSTOPPED_MS
    ]
    return sorted(found, key=lambda one: (-one.for_ms, one.name))


def since_ms(pod: Pod, stamp: str, now_ms: int) -> int:
    """How long ago a timestamp in a pod's metadata was; -1 if it is not set or invalid."""
    try:
        at = datetime.fromisoformat(str(pod["metadata"].get(stamp) or ""))
    except ValueError:
        return -1
    return now_ms - int(at.timestamp() * 1000)
