"""``Drains``: empties nodes that are drained, of sandboxes.

Every replica does: each step is a compare and set over the record that was judged, so what several do is done once, and
nothing waits for a replica that has died. A deadline is kept in the records, which outlive a restart.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

import structlog

from controlplane.clock import Clock
from controlplane.cluster import Drain, NodeDrains
from controlplane.errors import Problem
from controlplane.lifecycle.dependencies import Dependencies
from controlplane.lifecycle.drains.steps import Step, step
from controlplane.lifecycle.expiry.timers import Timers
from controlplane.lifecycle.record.changes import draining
from controlplane.lifecycle.record.ledger import Ledger
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.lifecycle.record.transition import Transition
from controlplane.model import Sandbox
from controlplane.model.states import Event
from controlplane.store import StoreLostError, UnreadableRecordError
from controlplane.telemetry import Metrics

BY: Final = "drain"
# All nodes that are drained are looked at again so often: a sandbox was claimed meanwhile, or the store was away.
LOOK_EVERY_S: Final = 5.0
# What comes together is done together.
LOOK_AT_MOST_EVERY_S: Final = 0.1
AT_ONCE: Final = 16
AGAIN_MS: Final = 5_000


class _Told(NamedTuple):
    """What the record of a sandbox with a deadline says, and where it is."""

    node: str
    at_ms: int
    exact: bool


class Drains:
    """Follows the nodes that are drained. ``run`` is its loop; subscribes to the ledger.

    Args:
        deps: the cluster, the clock and the metrics.
        nodes: which nodes are drained.
        store: has the records.
        ledger: changes them.
    """

    def __init__(self, deps: Dependencies, nodes: NodeDrains, store: RecoveringStore, ledger: Ledger) -> None:
        self._cluster = deps.cluster
        self._nodes = nodes
        self._clock: Clock = deps.clock
        self._metrics: Metrics = deps.metrics
        self._store = store
        self._ledger = ledger
        self._timers = Timers(deps.clock)
        self._told: dict[str, _Told] = {}  # sandboxes with a deadline
        self._woken = asyncio.Event()
        self._free = asyncio.Semaphore(AT_ONCE)
        self._log = structlog.get_logger("drains")

    def on(self, transition: Transition) -> None:
        """Takes in a change of a sandbox, made at this replica or another one."""
        sandbox = transition.after
        if sandbox.end is not None:
            self._told.pop(sandbox.id, None)
            self._timers.forget(sandbox.id)
            return
        if sandbox.draining_at_ms is not None:
            before = self._told.get(sandbox.id)
            node = self._node_of(sandbox.id) or ("" if before is None else before.node)
            self._told[sandbox.id] = _Told(node, sandbox.draining_at_ms, sandbox.draining_exact)
            self._timers.watch(sandbox.id, sandbox.draining_at_ms)
        elif self._told.pop(sandbox.id, None) is not None:
            self._timers.forget(sandbox.id)
        elif self._nodes.draining() and self._node_of(sandbox.id) in self._nodes.draining():
            self._woken.set()

    async def run(self) -> None:
        """Runs until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow(), name="drains follow")
            group.create_task(self._look_again(), name="drains look")
            group.create_task(self._timers.run(self._expire, AT_ONCE), name="drains end")

    async def _follow(self) -> None:
        async for node in self._nodes.changes():
            await self._survive(node, partial(self._node, node))

    async def _look_again(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._woken.wait()
            self._woken.clear()
            await self.look()
            await asyncio.sleep(LOOK_AT_MOST_EVERY_S)

    async def look(self) -> None:
        """Looks at every node that is drained, and at every sandbox that was told of a drain."""
        draining = self._nodes.draining()
        told = {one.node for one in self._told.values()}
        over = {node for node in told if self._nodes.knows(node) and node not in draining}
        for node in (*draining, *over):
            await self._survive(node, partial(self._node, node))

    async def _node(self, node: str) -> None:
        """Does for every sandbox on a node what follows from its drain, or from that being over."""
        drain = self._nodes.draining().get(node)
        if drain is None and not self._nodes.knows(node):
            return  # it is gone: its sandboxes end as lost
        told = {sandbox_id: one for sandbox_id, one in self._told.items() if one.node == node}
        if drain is None:
            await self._each(told, None)
            return
        # Of those that were told there is nothing more to do before their deadline, or before it moves.
        settled = {sandbox_id for sandbox_id, one in told.items() if _same(drain, one)}
        await self._each([one for one in self._nodes.sandboxes(node) if one not in settled], drain)

    async def _each(self, sandbox_ids: Iterable[str], drain: Drain | None) -> None:
        async def one(sandbox_id: str) -> None:
            async with self._free:
                with suppress(UnreadableRecordError):
                    await self._sandbox(sandbox_id, drain)

        answers = await asyncio.gather(*map(one, sandbox_ids), return_exceptions=True)
        for failure in filter(None, answers):
            raise failure

    async def _sandbox(self, sandbox_id: str, drain: Drain | None) -> None:
        sandbox = await self._store.get(sandbox_id)
        if sandbox is not None and not self._ledger.contradicts(sandbox):
            await self._judged(sandbox, drain)

    async def _judged(self, sandbox: Sandbox, drain: Drain | None) -> None:
        do, at_ms = step(sandbox, drain, self._clock.now_ms())
        if do is Step.RETIRE:
            await self._retire(sandbox, drain)
        elif do is Step.TELL:
            await self._tell(sandbox, at_ms, exact=drain is not None and not drain.estimated)
        elif do is Step.END:
            await self._end(sandbox)

    async def _retire(self, sandbox: Sandbox, drain: Drain | None) -> None:
        gone = Problem("deleted", f"its node {'' if drain is None else drain.why}: its pool starts another one")
        # One that is claimed at this moment is told at the next look.
        if await self._ledger.end(sandbox.id, gone, BY, Event.RETIRE, sandbox):
            self._metrics.drained("retired")

    async def _tell(self, sandbox: Sandbox, at_ms: int | None, *, exact: bool) -> None:
        now_ms = self._clock.now_ms()
        await self._ledger.change(sandbox.id, lambda record: draining(record, at_ms, now_ms, exact=exact))
        if at_ms is not None and sandbox.draining_at_ms is None:
            self._metrics.drained("told")

    async def _end(self, sandbox: Sandbox) -> None:
        node = self._node_of(sandbox.id)
        drain = self._nodes.draining().get(node)
        why = "is drained" if drain is None else drain.why
        passed = Problem("sandbox_evicted", f"its node {node or '(unknown)'} {why}, and its time there has passed")
        # One whose deadline has moved at this moment has another one.
        if await self._ledger.end(sandbox.id, passed, BY, known=sandbox, once=True):
            self._metrics.drained("ended")

    async def _expire(self, sandbox_id: str) -> None:
        if not await self._survive(sandbox_id, partial(self._due, sandbox_id)):
            self._timers.watch(sandbox_id, self._clock.now_ms() + AGAIN_MS)

    async def _due(self, sandbox_id: str) -> None:
        sandbox = await self._store.get(sandbox_id)
        if sandbox is None or sandbox.end is not None or sandbox.draining_at_ms is None:
            return
        if sandbox.draining_at_ms > self._clock.now_ms():
            self._timers.watch(sandbox_id, sandbox.draining_at_ms)
            return
        # The drain may have been taken back, or prolonged, while no control plane ran or the store was away.
        node = self._node_of(sandbox_id)
        if self._nodes.knows(node) and not self._ledger.contradicts(sandbox):
            await self._judged(sandbox, self._nodes.draining().get(node))
        else:
            # Its node is not known yet, or is gone: then the cluster ends it.
            self._timers.watch(sandbox_id, self._clock.now_ms() + AGAIN_MS)

    def _node_of(self, sandbox_id: str) -> str:
        place = self._cluster.node_of(sandbox_id)
        return "" if place is None else place.node

    async def _survive(self, what: str, call: Callable[[], Awaitable[None]]) -> bool:
        """Makes the call; whether it succeeded. The next look does what was left."""
        try:
            await call()
        except (Problem, StoreLostError) as problem:
            self._log.warning("drain goes on later", what=what, detail=str(problem))
        except Exception:
            # A loop that ends takes the control plane with it.
            self._log.exception("drain goes on later", what=what)
        else:
            return True
        return False


def _same(drain: Drain, told: _Told) -> bool:
    return told.at_ms == drain.until_ms or (drain.estimated and not told.exact and told.at_ms < drain.until_ms)
