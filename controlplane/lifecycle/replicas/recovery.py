"""Recovery of a lost store, in one room: every replica says what only it knows, one reads the cluster, all go on."""

import asyncio
from typing import Final

import structlog

from controlplane.errors import Problem
from controlplane.lifecycle.dependencies import Dependencies
from controlplane.lifecycle.expiry.activity import Activity
from controlplane.lifecycle.record.ledger import Ledger
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.lifecycle.record.settlements import Settlements
from controlplane.lifecycle.replicas.comparison import Comparison
from controlplane.lifecycle.waiting.gates.slot import SlotGate
from controlplane.store import Rebuild, RebuildTurn, StoreLostError

TURN_MS: Final = 15_000
LOOK_AGAIN_S: Final = 0.2
# A replica that gets no calls notices that the store was emptied within two seconds, when it renews its presence.
OTHERS_SAY_S: Final = 3.0


class Recovery:
    """Does the rounds that ``RecoveringStore`` waits for; ``run`` is its loop. Of many replicas one rebuilds."""

    def __init__(
        self,
        deps: Dependencies,
        store: RecoveringStore,
        ledger: Ledger,
        settlements: Settlements,
        *,
        comparison: Comparison,
        slots: SlotGate,
        activity: Activity,
    ) -> None:
        self._deps = deps
        self._raw = deps.store
        self._store = store
        self._ledger = ledger
        self._settlements = settlements
        self._comparison = comparison
        self._slots = slots
        self._activity = activity
        self._content_id = ""  # what this replica has last seen the store filled with
        self._log = structlog.get_logger("recovery")

    async def run(self) -> None:
        """Runs until cancelled; another replica's turn comes then."""
        try:
            while True:
                await self._store.wanted()
                self._store.recovered(await self._round())
        finally:
            # Not "draining": a sidecar's push, for one, has to be repeated, and lands at another replica.
            detail = "the store was lost, and this control plane is stopping"
            stopping = Problem("upstream_timeout", detail, retry_after_ms=1000)
            self._store.close(stopping)

    async def _round(self) -> Problem | None:
        try:
            await self._restore()
        except Problem as problem:
            return problem
        except StoreLostError as error:
            return Problem("upstream_timeout", f"the store was lost again: {error}", retry_after_ms=1000)
        except Exception as error:
            self._log.exception("lost store not rebuilt, retrying; calls that need it fail until then")
            return Problem("internal", f"{type(error).__name__} while the store was rebuilt")
        return None

    async def _restore(self) -> None:
        rebuild = await self._raw.claim_rebuild(TURN_MS)
        before = said = self._content_id
        if rebuild.turn is RebuildTurn.INTACT and rebuild.content_id == before:
            return
        while True:
            # Before it was filled for the first time there is nothing that this replica could know. Once for
            # each loss: the store may be emptied again while it is rebuilt, and what was said before has gone then.
            if before and rebuild.content_id != said:
                await self._put_back()
                said = rebuild.content_id
            if rebuild.turn is RebuildTurn.INTACT or await self._rebuilt(rebuild, known=bool(before)):
                break
            rebuild = await self._raw.claim_rebuild(TURN_MS)
        self._content_id = rebuild.content_id
        if before:
            # The starts under way here have their slots again, and what was not heard meanwhile counts from now on.
            self._activity.gateway_reports.restart_quiet_time()
            await self._slots.retake(self._raw)

    async def _put_back(self) -> None:
        """What only this replica knows goes on record again, before the cluster is read."""
        self._deps.metrics.rebuilt()
        self._log.error("the store was emptied or restarted; what replicas and the cluster know goes on record again")
        await self._ledger.put_back(self._raw)
        self._settlements.store_lost()

    async def _rebuilt(self, rebuild: Rebuild, *, known: bool) -> bool:
        """One try, if it is this replica's turn; whether the store holds what it should from now on.

        Args:
            rebuild: whose turn it is, and the name of the content.
            known: whether this replica has used the store before it was lost.
        """
        if rebuild.turn is RebuildTurn.THEIRS:
            await asyncio.sleep(LOOK_AGAIN_S)
            return False
        # What others start may not be on the cluster yet; only the first store of an empty cluster need not wait.
        if self._store.shared and (known or await self._deps.cluster.list()):
            await asyncio.sleep(OTHERS_SAY_S)
        await self._comparison.run()
        return await self._raw.rebuilt(rebuild.content_id)
