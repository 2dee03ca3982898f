"""Pods that were asked to end long ago and whose kubelet has not confirmed that they did. Pure.

Nobody takes such a pod away by force while its node lives: the object is what the scheduler counts, so it keeps the
room of what still runs as taken, exactly until the kubelet has seen it end. Only a node that is lost confirms nothing
(``lost_nodes``): there the pod is deleted by force.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from controlplane.cluster.kubernetes.podspec import FINALIZER

# Killing takes a kubelet a second or two, and a busy one half a minute.
UNSTOPPED_MS: Final = 120_000
ADVICE: Final = (
    "On the node, end what runs of the pod (`crictl pods --name POD`; under gVisor kill its runsc-sandbox process with "
    "signal 9), or drain and restart the node. Until then its room stays taken, and the node goes on with the rest."
)

Pod = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Unstopped:
    """One such pod: where it is, and how long ago it should have ended."""

    name: str
    node: str
    for_ms: int


def unstopped(pods: Iterable[Pod], now_ms: int) -> list[Unstopped]:
    """Those that their node has not stopped, the oldest first; one whose end is not on record yet is none of them."""
    found = [
        Unstopped(str(pod["metadata"]["name"]), node, for_ms)
        for pod in pods
        if (node := str((pod.get("spec") or {}).get("nodeName") or ""))
        and FINALIZER not in (pod["metadata"].get("finalizers") or ())
        and (for_ms := since_ms(pod, "deletionTimestamp", now_ms)) > UNSTOPPED_MS
    ]
    return sorted(found, key=lambda one: (-one.for_ms, one.name))


def since_ms(pod: Pod, stamp: str, now_ms: int) -> int:
    """How long ago a time in a pod's metadata was; -1 when it is not set or no time."""
    try:
        at = datetime.fromisoformat(str(pod["metadata"].get(stamp) or ""))
    except ValueError:
        return -1
    return now_ms - int(at.timestamp() * 1000)
