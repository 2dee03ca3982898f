"""What nobody asks for: hearing of other replicas' changes, doing what is due, comparing record and cluster."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Final

import structlog

from controlplane.errors import Problem
from controlplane.lifecycle.endings import Endings
from controlplane.lifecycle.heartbeat import Prober
from controlplane.lifecycle.keeper import Keeper
from controlplane.lifecycle.ledger import Ledger
from controlplane.lifecycle.notes import Notes
from controlplane.lifecycle.parts import Parts
from controlplane.lifecycle.rebuild import Found, Rebuilder
from controlplane.lifecycle.turns import Turns
from controlplane.model import UP, Sandbox, dump_record
from controlplane.store import Due, Store

# The local deadline of a start comes first; this is for a start whose replica has gone.
OVERDUE_SLACK_MS: Final = 5_000
# A replica that nobody asks anything notices that the store was emptied within two seconds, when it says it is here.
OTHERS_SAY_S: Final = 3.0


class Upkeep:
    """See ``replicas.Work``.

    Args:
        begin: begins a start, or goes on with one; False, and nothing, when it is under way.
        end_overdue: ends a start whose deadline was before this moment (Unix ms).
    """

    def __init__(
        self,
        parts: Parts,
        store: Keeper,
        ledger: Ledger,
        *,
        endings: Endings,
        notes: Notes,
        turns: Turns,
        group: asyncio.TaskGroup,
        begin: Callable[[Sandbox], bool],
        end_overdue: Callable[[str, int], Awaitable[None]],
    ) -> None:
        self._parts = parts
        self._store = store
        self._ledger = ledger
        self._endings = endings
        self._notes = notes
        self._turns = turns
        self._group = group
        self._begin = begin
        self._end_overdue = end_overdue
        self._rebuilder = Rebuilder(parts, store, ledger)
        self._prober = Prober(parts, store, self._silent)
        self._lost = False  # a store that this replica knew was lost since
        self._log = structlog.get_logger("upkeep")

    def hear(self, sandbox: Sandbox) -> None:
        """See ``Work.hear``."""
        self._ledger.hear(sandbox)
        if sandbox.end is not None:
            self._endings.clear(sandbox, heard=True)

    def wake(self) -> None:
        """See ``Work.wake``."""
        self._turns.wake()

    def doubt(self) -> None:
        """See ``Work.doubt``."""
        self._endings.care.activity.vigil.doubt()

    async def reread(self) -> None:
        """See ``Work.reread``."""
        for sandbox in await self._ledger.reread():
            self._endings.care.watch(sandbox)

    async def keep(self) -> None:
        """See ``Work.keep``."""
        await self._store.ensure()
        await self._ledger.insist()

    async def settle(self, due: Due) -> None:
        """See ``Work.settle``."""
        for sandbox_id in due.expired:
            await self._endings.expire(sandbox_id)
        for sandbox_id in due.overdue:
            await self._end_overdue(sandbox_id, self._parts.clock.now_ms() - OVERDUE_SLACK_MS)
        for sandbox_id in due.unconfirmed:
            self._endings.reclaimer.begin(sandbox_id)
        for sandbox_id in due.abandoned:
            sandbox = await self._store.get(sandbox_id)
            # It stays abandoned in the store until its record changes next.
            if sandbox is not None and sandbox.state.unready and self._begin(sandbox):
                self._log.info("taken over", sandbox_id=sandbox_id, state=sandbox.state)

    async def orphans(self) -> None:
        """See ``Work.orphans``."""
        running = await self._store.find(None, {}, UP)
        await self._act(await self._rebuilder.run(running))

    async def probe(self) -> None:
        """See ``Work.probe``."""
        await self._prober.round()

    async def recount(self) -> None:
        """See ``Work.recount``."""
        for wrong in await self._store.recount():
            self._parts.metrics.miscounted()
            self._log.error(
                "use was counted wrong and is put right; quotas went by the wrong figure until now",
                owner=wrong.owner or "everybody together",
                counted=asdict(wrong.counted),
                there=asdict(wrong.there),
            )

    async def prepare(self, store: Store) -> None:
        """Before a lost store is rebuilt: what only this replica knows goes on record again."""
        self._lost = True
        self._parts.metrics.rebuilt()
        self._log.error("the store was emptied or restarted; what replicas and the cluster know goes on record again")
        await self._ledger.restore_held(store)

    async def rebuild(self) -> None:
        """Reads the cluster's truth into the store, once the others have said there what only they know."""
        # What others start may not be on the cluster yet; only the first store of an empty cluster need not wait.
        if self._store.shared and (self._lost or await self._parts.cluster.list()):
            await asyncio.sleep(OTHERS_SAY_S)
        await self._act(await self._rebuilder.run())

    async def resume(self, store: Store) -> None:
        """After a lost store was rebuilt: the starts under way here have their slots again, and leases begin anew."""
        self.doubt()
        await self._turns.retake(store)

    async def _act(self, found: Found) -> None:
        for sandbox in found.adopted:
            self._endings.care.watch(sandbox)
        for sandbox_id in (*(dead.id for dead in found.dead), *found.removed):
            self._endings.reclaimer.begin(sandbox_id)
        for claimed in found.untold:
            # Who claimed it could not write it, or is gone; the next loss of the store would take it for nobody's.
            self._notes.write(claimed.id, {"claim": dump_record(claimed)})
        for death in found.deaths:
            # Not here: a rebuild must not ask the store that it rebuilds.
            bury = self._endings.bury(death.sandbox_id, Problem(death.cause, death.detail))
            self._group.create_task(bury, name=f"bury {death.sandbox_id}")
        kinds = ("adopted", "starting", "dead", "removed", "untold", "deaths")
        counts = {name: len(getattr(found, name)) for name in kinds}
        if any(counts.values()):
            self._log.info("compared with the cluster", **counts)

    async def _silent(self, sandbox_id: str, problem: Problem) -> None:
        await self._endings.end(sandbox_id, problem, "prober")
