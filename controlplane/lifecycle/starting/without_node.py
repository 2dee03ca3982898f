"""The starts of all replicas that no node has taken, as the store has them: each replica hears of its own alone."""

from collections.abc import Collection, Sequence
from typing import Final

from controlplane.cluster import Cluster
from controlplane.errors import Problem
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.model import Sandbox, State

_UNREADY: Final = (State.REQUESTED, State.QUEUED, State.STARTING)


async def without_node(
    store: RecoveringStore, cluster: Cluster, now_ms: int, owner: str | None = None
) -> Sequence[Sandbox]:
    """The starts that have no pod on a node and whose time is not over.

    Args:
        store: has the records.
        cluster: knows which pods are on nodes.
        now_ms: the time (Unix ms).
        owner: whose; None: of all.

    Raises:
        Problem: the store's.
    Cost: one call to the store, and one more with all starts if there are any.
    """
    counts = await store.counts()
    if not any(counts.get(state) for state in _UNREADY):
        return ()
    found = await store.find(owner, {}, _UNREADY)
    return [one for one in found if not _node_of(cluster, one.id) and one.start_by_ms > now_ms]


def unplaced_elsewhere(
    starts: Sequence[Sandbox], cluster: Cluster, here: Collection[str]
) -> Sequence[tuple[Sandbox, Problem]]:
    """Of these, the ones of other replicas that wait for room, with the reason, oldest first.

    What has no pod yet waits for room if none has room for it by what this replica knows, whatever else it waits for.

    Args:
        starts: as ``without_node`` tells them.
        cluster: knows what is free, and what the scheduler refuses.
        here: ids of this replica's starts.
    """
    room, found = cluster.room, []
    if room is None or not room.known:
        return ()
    told: dict[str, str] = {}  # by kind of request: what the nodes have left; empty: there is room
    for one in sorted(starts, key=lambda one: one.created_at_ms):
        if one.id in here:
            continue
        if one.state is State.STARTING:
            placement = cluster.placement(one.id)
            if placement is not None and placement.why:
                found.append((one, _problem(one, f"no node takes it: {placement.why}")))
            continue
        request, selector, kind = cluster.request(one.spec), one.spec.node_selector, one.spec.placement_key()
        if kind not in told:
            told[kind] = "" if room.fit(request, selector, enough=1) else room.tell(request, selector)
        if told[kind]:
            found.append((one, _problem(one, f"no node has room for it now: {told[kind]}")))
    return found


def _problem(one: Sandbox, why: str) -> Problem:
    return Problem("capacity_unavailable", f"{why}; it waits at another control plane", sandbox_id=one.id)


def _node_of(cluster: Cluster, sandbox_id: str) -> str:
    place = cluster.node_of(sandbox_id)
    return "" if place is None else place.node
