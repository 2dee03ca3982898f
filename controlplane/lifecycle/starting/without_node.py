"""The starts of all replicas that no node has taken, as the store has them."""

from collections.abc import Sequence
from typing import Final

from controlplane.cluster import Cluster
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


def _node_of(cluster: Cluster, sandbox_id: str) -> str:
    place = cluster.node_of(sandbox_id)
    return "" if place is None else place.node
