"""An egress replica in one process with its control plane: follows its feed, and reports as the real one does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from controlplane.lifecycle import Egress
from controlplane.wire import egress_pb2 as wire
from tests.support.world import World


@dataclass
class EgressReplica:
    """What it serves and has applied.

    Attributes:
        link_up: whether it says of new sandboxes that their link is up.
        silent: it follows, and reports nothing.
        cut: how many connections each further revision cuts.
    """

    name: str
    egress: Egress
    link_up: bool = True
    silent: bool = False
    cut: int = 0
    policies: dict[str, wire.Policy] = field(default_factory=dict)
    serves: dict[str, wire.Assignment] = field(default_factory=dict)
    updates: int = 0

    def policy(self, sandbox_id: str) -> wire.Policy:
        """The policy in force of a sandbox that it serves."""
        return self.policies[self.serves[sandbox_id].policy_digest]

    async def link(self, sandbox_id: str, *, up: bool, detail: str = "") -> None:
        """Says how a link is."""
        await self.report(links=[wire.Linked(sandbox_id=sandbox_id, up=up, detail=detail)])

    async def report(self, **fields: object) -> None:
        """Sends a report."""
        await self.egress.reports.take(wire.EgressReport(egress_id=self.name, **fields))  # type: ignore[arg-type]

    async def follow(self) -> None:
        """Follows the feed until cancelled."""
        with self.egress.assignments.subscribe(self.name) as feed:
            self.egress.replicas.changed()
            try:
                while True:
                    await self._take(await feed.next(self.egress.assignments.version))
            finally:
                self.egress.replicas.changed()

    async def _take(self, update: wire.Update) -> None:
        self.updates += 1
        news = update.snapshot if update.HasField("snapshot") else update.delta
        self.policies |= {one.digest: one for one in news.policies}
        if update.HasField("snapshot"):
            self.serves.clear()
        for gone in update.delta.withdrawn:
            self.serves.pop(gone, None)
        links = [
            wire.Linked(sandbox_id=one.sandbox_id, up=self.link_up, detail="" if self.link_up else "no answer")
            for one in news.assignments
            if one.sandbox_id not in self.serves
        ]
        self.serves |= {one.sandbox_id: one for one in news.assignments}
        applied = [
            wire.Applied(sandbox_id=one.sandbox_id, revision=one.revision, cut=self.cut) for one in news.assignments
        ]
        if not self.silent:
            await self.report(applied=applied, links=links)


@asynccontextmanager
async def egress_replica(
    plane: World, name: str = "e1", *, link_up: bool = True, silent: bool = False, cut: int = 0
) -> AsyncIterator[EgressReplica]:
    """One that is connected while the block runs."""
    egress = plane.service.egress_feed
    assert egress is not None, "egress is not installed in this world"
    replica = EgressReplica(name, egress, link_up, silent, cut)
    following = asyncio.create_task(replica.follow())
    await asyncio.sleep(0.01)
    try:
        yield replica
    finally:
        following.cancel()
        await asyncio.wait([following])
        await asyncio.sleep(0.01)
