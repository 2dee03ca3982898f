"""``Egress``: the parts of network policies of one control plane, put together."""

import asyncio
from contextlib import AbstractContextManager
from typing import Final

import structlog

from controlplane.clock import Clock
from controlplane.cluster.documents import Documents
from controlplane.egress import EgressOptions, read_fact
from controlplane.errors import Problem
from controlplane.lifecycle.egress.assignments import EgressAssignments
from controlplane.lifecycle.egress.facts import Facts
from controlplane.lifecycle.egress.log import AttemptLog
from controlplane.lifecycle.egress.policy_store import PolicyStore
from controlplane.lifecycle.egress.presets import Presets
from controlplane.lifecycle.egress.replicas import LiveReplicas
from controlplane.lifecycle.egress.reports import Reports
from controlplane.lifecycle.egress.waits import Wait, Waits
from controlplane.lifecycle.record.annotations import Annotations
from controlplane.lifecycle.record.ledger import Ledger
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.lifecycle.record.transition import Transition
from controlplane.lifecycle.tokens import SigningKey
from controlplane.model import Sandbox
from controlplane.telemetry import Metrics

TEND_EVERY_S: Final = 60.0


class Egress:
    """Network policies, where egress is installed.

    Attributes:
        options: how it is set up.
        policy_store: policies by digest.
        presets: the installation's, everybody's and owners'.
        assignments: which replica serves which sandbox.
        replicas: which replicas there are.
        reports: takes what these report.
        log: what was attempted.
    """

    def __init__(
        self,
        options: EgressOptions,
        store: RecoveringStore,
        ledger: Ledger,
        annotations: Annotations,
        *,
        documents: Documents,
        key: SigningKey,
        clock: Clock,
        replica: str,
        metrics: Metrics,
    ) -> None:
        self.options = options
        self.policy_store = PolicyStore(store, clock, options)
        self.presets = Presets(documents, options)
        self.assignments = EgressAssignments(key, self.policy_store)
        self.replicas = LiveReplicas(self.assignments, store, clock, replica)
        self.log = AttemptLog(store, metrics)
        self.reports = Reports(self.assignments, ledger, self.log)
        self._facts = Facts(self.policy_store, annotations)
        self._waits = Waits()
        self._ledger = ledger
        self._metrics = metrics
        self._logger = structlog.get_logger("egress")

    def on(self, transition: Transition) -> None:
        """Does what follows from a transition."""
        self.assignments.on(transition)
        self._waits.on(transition)
        self._facts.on(transition)
        if transition.after.end is not None:
            self.reports.forget(transition.after.id)

    def adopt(self, fact: str) -> None:
        """Keeps the rules that the cluster has with a sandbox; ignores any other text."""
        if (found := read_fact(fact)) is not None:
            self.policy_store.hold(found[1])

    def waiting(self, sandbox_id: str) -> AbstractContextManager[Wait]:
        """What hears of a sandbox while the block runs, for ``in_force``: it begins before the record is read."""
        return self._waits.waiting(sandbox_id)

    async def begun(self, sandbox: Sandbox, within_s: float) -> Sandbox | None:
        """As ``in_force``, of a record that was read or stored before anybody listened. Cost: another read."""
        if sandbox.egress.in_force:
            return sandbox
        with self.waiting(sandbox.id) as wait:
            if await self._ledger.refresh(sandbox.id) is None:
                raise _gone(sandbox, None)
            return await self.in_force(sandbox, within_s, wait)

    async def in_force(self, sandbox: Sandbox, within_s: float, wait: Wait) -> Sandbox | None:
        """Waits until the sandbox's last switch is in force; its record then.

        Args:
            sandbox: as it was read or stored last.
            within_s: how long to wait.
            wait: hears of it, since before that.

        Returns:
            None: it is not within that time.

        Raises:
            Problem: the end's cause; the store's.
        """
        if sandbox.egress.in_force:
            return sandbox
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            async with asyncio.timeout(within_s):
                now = await wait.until(sandbox.egress.revision)
        except TimeoutError:
            self._metrics.egress_waited("late", loop.time() - began_s)
            return None
        self._metrics.egress_waited("applied", loop.time() - began_s)
        if now.end is not None:
            raise _gone(sandbox, now)
        return now

    async def open(self) -> None:
        """Reads presets, and finds out which replicas there are elsewhere.

        Before that, all sandboxes would be the first one's that connects here.
        """
        await self.presets.open()
        await self.replicas.look()

    async def run(self) -> None:
        """Runs the loops until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.replicas.run(), name="egress replicas")
            group.create_task(self.presets.run(), name="egress presets")
            group.create_task(self._facts.run(), name="egress facts")
            group.create_task(self._tend(), name="egress policies")

    async def _tend(self) -> None:
        while True:
            await asyncio.sleep(TEND_EVERY_S)
            try:
                await self.policy_store.refresh(self.assignments.digests)
            except Problem as away:
                self._logger.warning("network policies not refreshed in the store", detail=away.detail)


def _gone(sandbox: Sandbox, now: Sandbox | None) -> Problem:
    if now is None or now.end is None:
        return Problem("sandbox_not_found", f"there is no sandbox {sandbox.id} any more", sandbox_id=sandbox.id)
    return now.end.problem(now)
