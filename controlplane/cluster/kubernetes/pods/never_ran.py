"""Whether a container of a pod may ever have run, by what its kubelet has said. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

from controlplane.cluster.kubernetes.api_server.client import Json

# What kubelets report of a container from the moment in which the runtime has it.
_MADE: Final = frozenset({"Created", "Started", "Killing", "Unhealthy", "FailedPostStartHook"})
_STATUSES: Final = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")


def never_ran(pod: Json, events: Sequence[Json]) -> bool:
    """Whether no container of a pod has run, as far as anybody can know; False in doubt.

    Both are needed: a kubelet that waits for the runtime while it brings a pod up updates the pod's status only after
    that, although a first container may run by then; its events come at once, but may be lost.

    Args:
        pod: the API's object.
        events: all events of the pod.
    """
    status = pod.get("status") or {}
    if status.get("phase") not in (None, "", "Pending") or any(one.get("reason") in _MADE for one in events):
        return False
    return all(_untouched(one) for one in _containers(status))


def _containers(status: Json) -> Iterator[Json]:
    for field in _STATUSES:
        yield from status.get(field) or ()


def _untouched(container: Json) -> bool:
    """Whether the runtime was never told to make it."""
    if container.get("containerID") or container.get("restartCount") or container.get("lastState"):
        return False
    return not set(container.get("state") or {}) - {"waiting"}
