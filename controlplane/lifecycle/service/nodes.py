"""The nodes as operators see them, and how they have one emptied."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from controlplane.clock import Clock
from controlplane.cluster import Cluster, NodeDrains, NodeState
from controlplane.errors import Problem, meant
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.model import Sandbox, State
from controlplane.model.spec import MAX_TTL_MS

_THERE: Final = frozenset({State.STARTING, State.WARM, State.RUNNING})


@dataclass(frozen=True, slots=True)
class NodeUse:
    """A node and what is on it.

    Attributes:
        claimed: sandboxes that run for their owners.
        warm: sandboxes of pools that nobody has claimed.
        starting: sandboxes that are not ready yet.
    """

    state: NodeState
    claimed: int = 0
    warm: int = 0
    starting: int = 0


class Nodes:
    """What operators ask about nodes.

    Args:
        cluster: has the nodes.
        store: has the records of what is on them.
        clock: the time of day.
    """

    def __init__(self, cluster: Cluster, store: RecoveringStore, clock: Clock) -> None:
        self._cluster = cluster
        self._store = store
        self._clock = clock

    async def all(self) -> Sequence[NodeUse]:
        """All nodes that sandboxes may run on, by name. Cost: a read of all records that are not at their end.

        Raises:
            Problem: unsupported, on an engine; the store's.
        """
        states = self._drains().nodes()
        found = await self._store.find(None, {}, _THERE)
        used = Counter((self._node_of(one), _kind(one)) for one in found)
        return [_use(state, used) for state in states]

    async def one(self, name: str) -> NodeUse:
        """One node.

        Raises:
            Problem: not_found; those of ``all``.
        """
        there = {use.state.name: use for use in await self.all()}
        if name not in there:
            raise _unknown(name, there)
        return there[name]

    async def drain(self, name: str, within_ms: int | None, by: str) -> None:
        """Has a node emptied: what is left there after ``within_ms`` ends; None: as long as a sandbox may live.

        Raises:
            Problem: see ``NodeDrains.drain``; not_found, also of a node that no sandbox may run on.
        """
        self._check(name)
        within_ms = MAX_TTL_MS if within_ms is None else within_ms
        await self._drains().drain(name, self._clock.now_ms() + within_ms, by)

    async def undrain(self, name: str) -> None:
        """Takes a drain back, also in the middle.

        Raises:
            Problem: see ``NodeDrains.undrain``.
        """
        self._check(name)
        await self._drains().undrain(name)

    def _check(self, name: str) -> None:
        # No operator of sandboxes cordons a node that is none of theirs.
        there = [state.name for state in self._drains().nodes()]
        if name not in there:
            raise _unknown(name, there)

    def _drains(self) -> NodeDrains:
        if (drains := self._cluster.node_drains) is None:
            raise Problem(
                "unsupported", "an engine is one machine, and has no nodes; stopping `rollbox up` is what empties it"
            )
        return drains

    def _node_of(self, sandbox: Sandbox) -> str:
        place = self._cluster.node_of(sandbox.id)
        return "" if place is None else place.node


def _kind(sandbox: Sandbox) -> str:
    if sandbox.state.unready:
        return "starting"
    return "warm" if sandbox.unclaimed else "claimed"


def _use(state: NodeState, used: Mapping[tuple[str, str], int]) -> NodeUse:
    return NodeUse(state, **{kind: used.get((state.name, kind), 0) for kind in ("claimed", "warm", "starting")})


def _unknown(name: str, there: Iterable[str]) -> Problem:
    near = meant(name, there) or "; `rollbox node list` shows them"
    return Problem("not_found", f"there is no node {name} that sandboxes may run on{near}", node=name)
