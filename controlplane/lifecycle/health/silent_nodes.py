"""``SilentNodes``: ends what is on a node that has gone, without waiting until the cluster takes it for lost.

A node whose kubelet is silent may run on, and so may its sandboxes. So they are tried, from here and through a gateway:
while one of them answers, none is ended. What is not known (no gateway can be asked, there is nothing to try) ends
nothing. A machine that stands still for 30 s (its host is maintained, or it moves to another one) is not gone: tries go
on until it would have answered again, and a renewal stops them.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import structlog

from controlplane.cluster import NodeDrains
from controlplane.errors import Problem
from controlplane.lifecycle.dependencies import Dependencies
from controlplane.lifecycle.record.ledger import Ledger
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.model import UP, Sandbox
from controlplane.store import StoreLostError, UnreadableRecordError

LOOK_EVERY_S: Final = 2.0
# A sidecar that is there answers within milliseconds.
ANSWERS_WITHIN_S: Final = 3.0
# Of a node's sandboxes: when so many are tried in several rounds, and none answers, there is no node.
TRIED: Final = 8
ROUNDS: Final = 3
# From the first of these rounds to the last. A node is silent 20 s after its last renewal, and may have begun to stand
# still 10 s after it: one that does so for 30 s is awake when it is tried last.
TRIED_FOR_S: Final = 20.0
AT_ONCE: Final = 16


class _Tries(NamedTuple):
    """Rounds in a row in which nothing on a node has answered."""

    first_s: float  # when the first one began, by the loop's clock
    rounds: int
    lasted_s: float = 0.0  # until the last one began

    @property
    def enough(self) -> bool:
        return self.rounds >= ROUNDS and self.lasted_s >= TRIED_FOR_S


class SilentNodes:
    """Looks at nodes that are silent. ``run`` is its loop, at every replica.

    Args:
        deps: the cluster, its sidecars and gateways.
        nodes: which are silent.
        store: has the records.
        ledger: ends sandboxes.
    """

    def __init__(self, deps: Dependencies, nodes: NodeDrains, store: RecoveringStore, ledger: Ledger) -> None:
        self._deps = deps
        self._nodes = nodes
        self._store = store
        self._ledger = ledger
        self._tries: dict[str, _Tries] = {}
        self._log = structlog.get_logger("silent nodes")

    async def run(self) -> None:
        """Runs until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                await self.look()
            except (Problem, StoreLostError) as problem:
                self._log.warning("silent nodes not looked at, retrying", detail=str(problem))
            except Exception:
                # A loop that ends takes the control plane with it.
                self._log.exception("silent nodes not looked at, retrying")

    async def look(self) -> None:
        """Looks once at each node that is silent.

        Raises:
            Problem: the store does not answer.
            StoreLostError: it has lost its content.
        """
        silent = self._nodes.silent()
        self._tries = {node: tries for node, tries in self._tries.items() if node in silent}
        free = asyncio.Semaphore(AT_ONCE)

        async def one(node: str) -> None:
            async with free:
                await self._node(node)

        for failure in filter(None, await asyncio.gather(*map(one, silent), return_exceptions=True)):
            raise failure

    async def _node(self, node: str) -> None:
        began_s = asyncio.get_running_loop().time()
        some = await self._up(self._nodes.sandboxes(node), TRIED)
        if not some or await self._answers(some):
            self._tries.pop(node, None)
            return
        first_s, rounds, _ = self._tries.get(node, _Tries(began_s, 0))
        tries = self._tries[node] = _Tries(first_s, rounds + 1, began_s - first_s)
        if tries.enough and node in self._nodes.silent():
            await self._end(node)

    async def _up(self, sandbox_ids: Sequence[str], most: int) -> Sequence[Sandbox]:
        """The first so many of them that can be tried; of a start nobody has anything to try yet.

        No more records are read than that takes: when a zone is lost, its thousands would be read in each round.
        """
        found: list[Sandbox] = []
        for sandbox_id in sandbox_ids:
            if len(found) == most:
                break
            if (record := await self._living(sandbox_id)) is not None and record.state in UP:
                found.append(record)
        return found

    async def _living(self, sandbox_id: str) -> Sandbox | None:
        # A record of another version is left to replicas of that.
        with suppress(UnreadableRecordError):
            record = await self._store.peek(sandbox_id)
            if record is not None and record.end is None:
                return record
        return None

    async def _answers(self, some: Sequence[Sandbox]) -> bool:
        """Whether one of them answers, or it is not known."""
        # A gateway that waits for a sandbox says so only after a while. One that has reached another node meanwhile
        # need not be waited for.
        limit_s = ANSWERS_WITHIN_S if await self._gateways_reach_others() else None
        here, there = await asyncio.gather(
            asyncio.gather(*map(self._here, some)), asyncio.gather(*(self._there(one, limit_s) for one in some))
        )
        return any(here) or any(there) or all(one is None for one in there)

    async def _here(self, sandbox: Sandbox) -> bool:
        try:
            async with asyncio.timeout(ANSWERS_WITHIN_S):
                await self._deps.sidecars.health(sandbox.address or "", self._deps.key.token(sandbox).text)
        except (Problem, TimeoutError):
            return False
        return True

    async def _there(self, sandbox: Sandbox, limit_s: float | None) -> bool | None:
        """Whether a gateway reaches it; None: that cannot be told."""
        try:
            async with asyncio.timeout(limit_s):
                return await self._deps.gateways.reaches(sandbox.id, self._deps.key.token(sandbox).text)
        except TimeoutError:
            return False

    async def _gateways_reach_others(self) -> bool:
        silent = self._nodes.silent()
        others = (node.name for node in self._nodes.nodes() if node.name not in silent)
        for some in filter(None, map(self._nodes.sandboxes, others)):
            if there := await self._up(some[:1], 1):
                return bool(await self._there(there[0], ANSWERS_WITHIN_S))
        return False

    async def _end(self, node: str) -> None:
        there = self._nodes.sandboxes(node)
        why = f"node {node} has gone: its kubelet does not renew its lease, and nothing there answers"
        self._log.warning("node has gone, its sandboxes end", node=node, sandboxes=len(there))
        by, free = self._deps.cluster.describe().backend, asyncio.Semaphore(AT_ONCE)

        async def end(sandbox_id: str) -> None:
            async with free:
                if await self._living(sandbox_id) is not None:
                    await self._ledger.end(sandbox_id, Problem("node_lost", why), by)

        await asyncio.gather(*map(end, there))
