"""``Fallback``: a start that reads its image lazily and does not get ready goes on with the plain copy."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import structlog

from controlplane.clock import Clock
from controlplane.cluster import Boot, Cluster
from controlplane.errors import Problem
from controlplane.lifecycle.images import LazyStarts, Pin
from controlplane.lifecycle.record.changes import pulled_whole
from controlplane.lifecycle.record.ledger import PLATFORM, Ledger
from controlplane.model import Sandbox

# Of the time from its placement to its deadline, so much is for the lazy form; the rest is for the plain copy.
LAZY_SHARE: Final = 0.5
# With less time left it is not begun anew: no image would be fetched in it.
LEAST_MS: Final = 5_000
LOOK_EVERY_S: Final = 2.0


class Fallback:
    """For starts that are free to choose (``auto``).

    Args:
        cluster: has what was begun.
        ledger: has the record.
        lazily: is told that the converted copy does not work.
        clock: the time of day.
        again: keeps the room of a sandbox whose pod is about to be replaced.
    """

    def __init__(
        self, cluster: Cluster, ledger: Ledger, lazily: LazyStarts, clock: Clock, again: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self._again = again
        self._ledger = ledger
        self._lazily = lazily
        self._clock = clock
        self._log = structlog.get_logger("fallback")

    async def watch(self, sandbox: Sandbox, pin: Pin, plain: Pin, boot: Boot, over: "asyncio.Future[Any]") -> Pin:
        """Returns when the start is over, or was begun anew; what it runs from then.

        Args:
            sandbox: its start is with the cluster.
            pin: what it was begun with.
            plain: the plain copy.
            boot: of its start.
            over: is done with the start.

        Raises:
            Problem: the cluster's: it was not begun anew.
        """
        if sandbox.spec.pull != "auto" or pin.pulled != "lazy" or plain.pulled or not plain.source:
            return pin
        if await self._in_time(sandbox, over):
            return pin
        return await self._anew(sandbox, pin, plain, boot, over)

    async def _in_time(self, sandbox: Sandbox, over: "asyncio.Future[Any]") -> bool:
        """Whether it is over before its time in the lazy form is up, which begins when a node has it."""
        placed_ms: int | None = None
        while True:
            now_ms = self._clock.now_ms()
            if placed_ms is None and self._placed(sandbox.id):
                placed_ms = now_ms
            if placed_ms is None:
                wait_s = LOOK_EVERY_S
            else:
                wait_s = (placed_ms + (sandbox.start_by_ms - placed_ms) * LAZY_SHARE - now_ms) / 1000
                if wait_s <= 0:
                    return sandbox.start_by_ms - now_ms < LEAST_MS
            if (await asyncio.wait({over}, timeout=wait_s))[0]:
                return True

    def _placed(self, sandbox_id: str) -> bool:
        placement = self._cluster.placement(sandbox_id)
        return placement is not None and bool(placement.node)

    async def _anew(self, sandbox: Sandbox, pin: Pin, plain: Pin, boot: Boot, over: "asyncio.Future[Any]") -> Pin:
        waited_s = (self._clock.now_ms() - sandbox.created_at_ms) / 1000
        self._lazily.broke(sandbox.owner, pin, f"a sandbox was not ready {waited_s:.0f} s after its create")
        whole = self._lazily.fallen_back(plain, f"from its converted copy it was not ready after {waited_s:.0f} s")
        self._log.warning("start goes on with the plain copy", sandbox_id=sandbox.id, image=pin.name)

        def changed(record: Sandbox) -> Sandbox:
            return pulled_whole(record, whole.ran, whole.pulled_why, self._clock.now_ms())

        await self._ledger.change(sandbox.id, changed)
        if over.done():
            return pin
        # Rather on another node, if there is one; what nodes have of the plain copy is not looked up.
        placed = self._cluster.placement(sandbox.id)
        elsewhere = replace(boot, avoid=(*boot.avoid, *([placed.node] if placed else [])), layers={})
        self._again(sandbox.id)
        await self._cluster.undo_start(sandbox.id)
        if not over.done():
            await self._cluster.start(sandbox.id, sandbox.spec.model_copy(update={"image": whole.name}), elsewhere)
        elif over.result().end is None:
            # It got ready at the very moment in which its start was undone.
            lost = Problem("sandbox_lost", f"{sandbox.id} got ready while it was begun anew")
            await self._ledger.end(sandbox.id, lost, PLATFORM)
        return whole
