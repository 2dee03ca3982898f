"""What a pod requests of its node, by the scheduler's arithmetic (``PodRequests`` of Kubernetes)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from controlplane.capacity.amounts import NOTHING, Amounts, larger, plus


@dataclass(frozen=True, slots=True)
class InitContainer:
    """A container that starts before the others; a ``sidecar`` (``restartPolicy: Always``) then runs beside them."""

    requests: Amounts
    sidecar: bool = False


def of_pod(
    containers: Iterable[Amounts],
    init: Sequence[InitContainer] = (),
    overhead: Amounts = NOTHING,
    whole: Sequence[int | None] = (),
) -> Amounts:
    """The requests of a pod: the most that any moment of it needs, since one amount is set aside for all its life.

    Args:
        containers: the requests of each container that runs to the end.
        init: those that start one after the other before, in order.
        overhead: the runtime's own, which the RuntimeClass says.
        whole: by resource, what the pod requests as a whole, in the place of what its containers do; None: nothing.
    """
    sidecars = starting = running = NOTHING
    for one in init:
        if one.sidecar:
            sidecars = plus(sidecars, one.requests)
            starting = larger(starting, sidecars)
        else:
            starting = larger(starting, plus(sidecars, one.requests))
    running = sidecars
    for requests in containers:
        running = plus(running, requests)
    most = larger(running, starting)
    if whole:
        cpu, memory, disk, gpu, pods = (now if asked is None else asked for now, asked in zip(most, whole, strict=True))
        most = cpu, memory, disk, gpu, pods
    most = plus(most, overhead)
    return *most[:4], 1
