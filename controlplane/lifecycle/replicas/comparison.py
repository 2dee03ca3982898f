"""Comparing record and cluster: adopting what is not on record, and ending, stopping and annotating what differs."""

import asyncio
from collections.abc import Callable, Sequence

import structlog

from controlplane.errors import Problem
from controlplane.lifecycle.dependencies import Dependencies
from controlplane.lifecycle.ending.reclaim import Reclaimer
from controlplane.lifecycle.record.annotations import Annotations
from controlplane.lifecycle.record.ledger import Ledger
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.lifecycle.replicas.observation import Found, Observer
from controlplane.model import Sandbox, dump_record


class Comparison:
    """Looks at the cluster once, and acts on what it finds; what takes long runs in ``group``.

    ``adopt_egress`` takes the network policies that the cluster has with sandboxes.
    """

    def __init__(
        self,
        deps: Dependencies,
        store: RecoveringStore,
        ledger: Ledger,
        *,
        annotations: Annotations,
        reclaimer: Reclaimer,
        group: asyncio.TaskGroup,
        adopt_egress: Callable[[str], None] | None = None,
    ) -> None:
        self._backend = deps.cluster.describe().backend
        self._ledger = ledger
        self._annotations = annotations
        self._reclaimer = reclaimer
        self._group = group
        self._observer = Observer(deps, store, ledger, adopt_egress)
        self._log = structlog.get_logger("comparison")

    async def run(self, on_record: Sequence[Sandbox] = ()) -> None:
        """One look.

        Args:
            on_record: what ran according to the store, read before; those that the cluster does not have are dead.

        Raises:
            Problem: the cluster cannot be listed, or the store did not answer.
        """
        found = await self._observer.run(on_record)
        for sandbox_id in (*(dead.id for dead in found.dead), *found.removed):
            self._reclaimer.begin(sandbox_id)
        for claimed in found.unannotated:
            # The replica that claimed it could not write it, or is gone; the next loss of the store would take it for
            # the pool's.
            self._annotations.add(claimed.id, {"claim": dump_record(claimed)})
        for death in found.deaths:
            # In the background: a rebuild must not ask the store that it rebuilds.
            end = self._ledger.end_with_retries(death.sandbox_id, Problem(death.cause, death.detail), self._backend)
            self._group.create_task(end, name=f"end {death.sandbox_id}")
        self._report(found)

    def _report(self, found: Found) -> None:
        kinds = ("adopted", "starting", "dead", "removed", "unannotated", "deaths")
        counts = {name: len(getattr(found, name)) for name in kinds}
        if any(counts.values()):
            self._log.info("compared with the cluster", **counts)
