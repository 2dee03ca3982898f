"""``NodeCleanup``: keeps what sandboxes' images take on each node within its budget.

Only what came to a node for sandboxes alone is looked at; the rest is the kubelet's, as before. The plan is
``images.budget``'s: this names what is needed, has the node's agent remove the rest, and says what was removed and why.
"""

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Final

import structlog

from controlplane.clock import Clock
from controlplane.cluster import NodeImage, NodeStore, NodeStores
from controlplane.errors import Problem
from controlplane.images import Removal, StoredImage, StoreLimit, plan_removal
from controlplane.lifecycle.housekeeping.needed import Needed, Needs
from controlplane.telemetry import Metrics

LOOK_EVERY_S: Final = 120.0
# A look begins after such a time: replicas of several releases on the same nodes do not ask at the same moment, and one
# that has just started has taken in what runs.
WAIT_S: Final = (10.0, 20.0)
# Nodes that remove images at the same time; each removes one after the other.
NODES_AT_ONCE: Final = 16
# Of one node in one look: the next look plans anew.
MOST_REMOVED: Final = 256
# After so many removals it is read again what is needed: a sandbox has its record before its pod, and its pod before
# the kubelet looks whether the image is there.
READ_AGAIN_AFTER: Final = 4


class NodeCleanup:
    """The clean-up of all nodes; ``turn`` is one look, at one replica at a time.

    Args:
        nodes: have the images.
        needs: knows what is needed.
        limit: of each node.
        clock: the time of day.
        metrics: counts bytes and removals.
    """

    def __init__(
        self,
        nodes: NodeStores,
        needs: Needs,
        limit: StoreLimit,
        *,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._nodes = nodes
        self._needs = needs
        self._limit = limit
        self._clock = clock
        self._metrics = metrics
        self._log = structlog.get_logger("images")

    async def turn(self) -> None:
        """Looks at all nodes, and removes what is too much.

        Raises:
            Problem: what is needed cannot be read, so nothing is removed.
        """
        await asyncio.sleep(random.uniform(*WAIT_S))  # noqa: S311 - no secret
        stores = await self._nodes.stores()
        # After the nodes were asked: what is needed by then is not removed, whenever it came.
        needed = await self._needs.now()
        turns = asyncio.Semaphore(NODES_AT_ONCE)

        async def clean(one: NodeStore) -> None:
            async with turns:
                await self._clean(one, needed)

        await asyncio.gather(*(clean(one) for one in stores))
        self._tell(stores)

    async def _clean(self, store: NodeStore, needed: Needed) -> None:
        budget = self._limit.budget(store.disk_bytes)
        if budget is None:
            return
        ours = {one.names[0]: one for one in store.images if one.brought_ms is not None and one.names}
        entries = [_entry(name, one, needed) for name, one in ours.items()]
        plan = plan_removal(entries, budget, self._clock.now_ms())
        if plan.removals:
            about = {"bytes": plan.total_bytes, "limit_bytes": budget.limit_bytes, "needed_bytes": plan.needed_bytes}
            self._log.info("a node has more images than it may", node=store.node, images=len(ours), **about)
        for position, one in enumerate(plan.removals[:MOST_REMOVED]):
            if position % READ_AGAIN_AFTER == 0:
                needed = await self._needs.now()
            if needed.why(ours[one.digest]):
                self._metrics.image_removed("node", "in_use")
            else:
                await self._remove(ours[one.digest], one, budget.limit_bytes)

    async def _remove(self, image: NodeImage, removal: Removal, limit_bytes: int) -> None:
        about = {"node": image.node, "image": removal.digest, "bytes": removal.freed_bytes}
        try:
            there = await self._nodes.remove(image)
        except Problem as problem:
            used = problem.code == "conflict"
            self._metrics.image_removed("node", "in_use" if used else "failed")
            self._log.warning("image not removed", **about, code=problem.code, detail=problem.detail)
            return
        self._metrics.image_removed("node", "removed" if there else "gone")
        idle_ms = self._clock.now_ms() - _used_ms(image)
        why = f"more than {limit_bytes} bytes of images for sandboxes, not used for {idle_ms // 1000} s"
        self._log.info("image removed", **about, there=there, why=why)

    def _tell(self, stores: Sequence[NodeStore]) -> None:
        ours = [image for one in stores for image in one.images if image.brought_ms is not None]
        budgets = [self._limit.budget(one.disk_bytes) for one in stores]
        limit_bytes = sum(one.limit_bytes for one in budgets if one is not None)
        self._metrics.image_store("node", sum(one.size_bytes for one in ours), limit_bytes)


def _entry(name: str, image: NodeImage, needed: Needed) -> StoredImage:
    # Which layers images of a node share is not known: each counts with all of its own.
    parts: Mapping[str, int] = {name: image.size_bytes}
    return StoredImage(name, parts, _used_ms(image), needed.why(image))


def _used_ms(image: NodeImage) -> int:
    return max(image.last_used_ms or 0, image.brought_ms or 0)
