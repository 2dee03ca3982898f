"""``ReplacedPods``: the pods of starts that have no room after all are replaced, later or on another node.

Two schedulers that share a node do not see what the other one has just put there, so the node's kubelet refuses what is
too much. Two replicas that take the last room at the same moment meet at the scheduler, which refuses one. Nothing of
such a pod has run; the replica that runs the start makes another one.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

import structlog

from controlplane.cluster import Boot, Cluster, Placement
from controlplane.errors import Problem
from controlplane.lifecycle.record.ledger import PLATFORM, Ledger
from controlplane.lifecycle.waiting.gates.room import RoomGate
from controlplane.model import SandboxSpec
from controlplane.model.states import Event
from controlplane.telemetry import Metrics

# What two schedulers do to one another does not happen often in a row, and a device that fails turns every pod away.
MOST_TRIES: Final = 3


@dataclass(slots=True)
class _Start:
    spec: SandboxSpec
    boot: Boot
    nodes: list[str] = field(default_factory=list)  # that turned it away
    busy: bool = False


class ReplacedPods:
    """The starts of this replica that are with the cluster.

    Args:
        cluster: makes their pods.
        ledger: has their records.
        metrics: counts what was turned away.
        room: knows what there is room for.
    """

    def __init__(self, cluster: Cluster, ledger: Ledger, metrics: Metrics, room: RoomGate) -> None:
        self._cluster = cluster
        self._ledger = ledger
        self._metrics = metrics
        self._room = room
        self._starts: dict[str, _Start] = {}
        self._log = structlog.get_logger("replaced pods")

    @contextmanager
    def under_way(self, sandbox_id: str, spec: SandboxSpec, boot: Boot) -> Iterator[None]:
        """Says what its pod is made of, for the block."""
        self._starts[sandbox_id] = _Start(spec, boot)
        try:
            yield
        finally:
            del self._starts[sandbox_id]

    async def again(self, placement: Placement) -> None:
        """Makes another pod of a sandbox that its node has turned away; ends it, where several have. Never raises."""
        await self._alone(placement.sandbox_id, lambda start: self._anew(placement, start))

    async def refused(self, sandbox_id: str) -> None:
        """Takes back the pod of a sandbox that fits nowhere, and makes another one once there is room. Never raises."""
        await self._alone(sandbox_id, lambda start: self._later(sandbox_id, start))

    async def _alone(self, sandbox_id: str, work: Callable[[_Start], Awaitable[None]]) -> None:
        start = self._starts.get(sandbox_id)
        if start is None or start.busy:
            return
        start.busy = True
        try:
            await work(start)
        except Problem as problem:
            await self._ledger.end_with_retries(sandbox_id, problem, PLATFORM, Event.FAIL)
        finally:
            start.busy = False

    async def _later(self, sandbox_id: str, start: _Start) -> None:
        while await self._room.fits_nowhere(sandbox_id):
            await self._cluster.undo_start(sandbox_id)
            if self._starts.get(sandbox_id) is not start:
                # The scheduler has placed it at the very moment; nothing, where it has ended.
                lost = Problem("sandbox_lost", f"{sandbox_id} got ready while its pod was taken back")
                await self._ledger.end_with_retries(sandbox_id, lost, PLATFORM)
                return
            await self._room.comes_back(sandbox_id)
            if self._starts.get(sandbox_id) is not start:
                return
            await self._cluster.start(sandbox_id, start.spec, start.boot)

    async def _anew(self, placement: Placement, start: _Start) -> None:
        self._metrics.turned_away()
        start.nodes.append(placement.turned_away_by)
        sandbox_id, tries = placement.sandbox_id, len(start.nodes)
        if tries >= MOST_TRIES:
            detail = f"{tries} nodes have turned it away, at last {placement.turned_away_by}: {placement.why}"
            raise Problem("capacity_unavailable", detail, sandbox_id=sandbox_id)
        self._log.warning(
            "a node has turned a sandbox away, another one is tried",
            sandbox_id=sandbox_id,
            node=placement.turned_away_by,
            why=placement.why,
        )
        self._room.again(sandbox_id)
        await self._cluster.undo_start(sandbox_id)
        if self._starts.get(sandbox_id) is start:
            avoid = (*start.boot.avoid, *start.nodes)
            await self._cluster.start(sandbox_id, start.spec, replace(start.boot, avoid=avoid))
