"""What no call asks for: following other replicas, doing what is due, comparing record and cluster."""

from dataclasses import asdict
from typing import Final

import structlog

from controlplane.lifecycle.dependencies import Dependencies
from controlplane.lifecycle.ending.reclaim import Reclaimer
from controlplane.lifecycle.expiry.expiry import Expiry
from controlplane.lifecycle.health.prober import Prober
from controlplane.lifecycle.record.ledger import Ledger
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.lifecycle.record.settlements import Settlements
from controlplane.lifecycle.replicas.comparison import Comparison
from controlplane.lifecycle.starting.starts import Starts
from controlplane.lifecycle.waiting.gates.slot import SlotGate
from controlplane.model import UP, Sandbox
from controlplane.store import Due

# The local deadline of a start comes first; this is for a start whose replica has gone.
OVERDUE_SLACK_MS: Final = 5_000


class Upkeep:
    """See ``loops.Work``."""

    def __init__(
        self,
        deps: Dependencies,
        store: RecoveringStore,
        ledger: Ledger,
        settlements: Settlements,
        *,
        starts: Starts,
        slots: SlotGate,
        expiry: Expiry,
        reclaimer: Reclaimer,
        comparison: Comparison,
    ) -> None:
        self._clock = deps.clock
        self._metrics = deps.metrics
        self._store = store
        self._ledger = ledger
        self._settlements = settlements
        self._starts = starts
        self._slots = slots
        self._expiry = expiry
        self._reclaimer = reclaimer
        self._comparison = comparison
        self._prober = Prober(deps, store, ledger)
        self._log = structlog.get_logger("upkeep")

    def publish(self, sandbox: Sandbox) -> None:
        """See ``Work.publish``."""
        self._ledger.publish(sandbox)

    def wake_starts(self, placement_key: str | None = None) -> None:
        """See ``Work.wake_starts``."""
        self._slots.wake(placement_key)

    def restart_quiet_time(self) -> None:
        """See ``Work.restart_quiet_time``."""
        self._expiry.activity.gateway_reports.restart_quiet_time()

    async def reread(self) -> None:
        """See ``Work.reread``."""
        await self._ledger.reread()
        await self._settlements.reread()

    async def keep(self) -> None:
        """See ``Work.keep``."""
        await self._store.ensure()
        await self._settlements.reread_unconfirmed()
        await self._ledger.correct()

    async def handle_due(self, due: Due) -> None:
        """See ``Work.handle_due``."""
        for sandbox_id in due.expired:
            await self._expiry.ttl.expire(sandbox_id)
        for sandbox_id in due.overdue:
            await self._starts.end_overdue(sandbox_id, self._clock.now_ms() - OVERDUE_SLACK_MS)
        for sandbox_id in due.unconfirmed:
            # Its end may not have been heard of here.
            await self._ledger.refresh(sandbox_id)
            self._reclaimer.begin(sandbox_id)
        for sandbox_id in due.abandoned:
            sandbox = await self._ledger.refresh(sandbox_id)
            # It stays abandoned in the store until its record changes next.
            if sandbox is not None and sandbox.state.unready and self._starts.begin(sandbox):
                self._log.info(
                    "start taken over from a replica that has gone", sandbox_id=sandbox_id, state=sandbox.state
                )

    async def orphans(self) -> None:
        """See ``Work.orphans``."""
        await self._comparison.run(await self._store.find(None, {}, UP))

    async def probe(self) -> None:
        """See ``Work.probe``."""
        await self._prober.round()

    async def recount(self) -> None:
        """See ``Work.recount``."""
        for wrong in await self._store.recount():
            self._metrics.miscounted()
            self._log.error(
                "use was counted wrong and is put right; quotas went by the wrong figure until now",
                owner=wrong.owner or "everybody together",
                counted=asdict(wrong.counted),
                there=asdict(wrong.there),
            )
