"""``Sandboxes``: what the API asks for, in terms of owners, specs and keys."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from controlplane.access import Caller
from controlplane.cluster import Committed, Description, ImageState
from controlplane.errors import Problem
from controlplane.lifecycle.admission.quotas import Quotas, QuotaUse
from controlplane.lifecycle.dependencies import Dependencies, Options
from controlplane.lifecycle.egress import Egress
from controlplane.lifecycle.ending.endings import Deleted
from controlplane.lifecycle.expiry.activity import Activity
from controlplane.lifecycle.keys import KeyCalls
from controlplane.lifecycle.pools import PoolDeclarations
from controlplane.lifecycle.preflight import Forecast
from controlplane.lifecycle.record import callers
from controlplane.lifecycle.routes import RouteBoard
from controlplane.lifecycle.scaling import NOTE, ScalerReport, read_report
from controlplane.lifecycle.service.capacity import Capacity, capacity
from controlplane.lifecycle.service.commits import CommitWish
from controlplane.lifecycle.service.composition import Core
from controlplane.lifecycle.service.creates import Created
from controlplane.lifecycle.service.levels import levels
from controlplane.lifecycle.service.nodes import Nodes
from controlplane.lifecycle.starting.completion import Push
from controlplane.lifecycle.tokens import Token
from controlplane.model import LIVE, Lease, Sandbox, SandboxSpec, State
from controlplane.scaling import Prospect
from controlplane.telemetry import Levels

# For the cluster's confirmation, where the platform stops with all its sandboxes: nothing of them is to be left.
DRAIN_WAIT_S: Final = 60.0


class Sandboxes:
    """The lifecycle service. Use ``async with Sandboxes.running(...)``: what it starts ends with the block.

    Attributes:
        pools: the pools, by name.
        egress: network policies, see ``EgressCalls``.
        inventory: the images on nodes.
        configs: what images say of their processes.
        datasets: the data sets that sandboxes may mount.
        keys: the API keys on record; ``key_calls`` makes and ends them.
        committed: the images that were made of sandboxes.
        builds: images from Dockerfiles.
        nodes: see ``Nodes``.
        events: what happens to sandboxes, see ``EventBoard``.
        audit: which key has done what, see ``AuditTrail``.
        webhooks: what posts events; None: nothing does.
        looks: what the console shows, see ``ConsoleViews``.
    """

    def __init__(self, deps: Dependencies, options: Options, core: Core) -> None:
        self._deps = deps
        self._options = options
        self._core = core
        self.pools = PoolDeclarations(
            deps.documents,
            deps.cluster,
            options.max_sandboxes,
            options.overcommit,
            core.pools.status,
            check_mounts=core.datasets.check_pool,
            check_converts=core.lazily.check_converts,
        )
        self.egress, self.inventory, self.committed = core.egress_calls, core.inventory, core.committed
        self.datasets, self.keys = core.datasets, core.keys
        self.key_calls = KeyCalls(deps.documents, core.keys, deps.clock, deps.metrics)
        self.builds, self.configs, self.events, self.audit = core.builds, core.configs, core.events, core.audit
        self.webhooks = core.webhooks
        self.nodes, self.console_views = Nodes(deps.cluster, core.store, deps.clock), core.console_views

    @classmethod
    @asynccontextmanager
    async def running(cls, deps: Dependencies, options: Options) -> AsyncIterator["Sandboxes"]:
        """A service that has adopted what ran before it, with its loops running; they end with the block.

        Sandboxes that run at the end of the block run on; call ``drain`` before, to delete them.

        Raises:
            Problem: the cluster cannot be listed (in a group, as everything that fails while the block runs).
        """
        async with asyncio.TaskGroup() as group:
            core = Core(deps, options, group)
            await core.open()
            try:
                yield cls(deps, options, core)
            finally:
                core.creates.draining = True
                await core.close()

    @property
    def description(self) -> Description:
        """What runs the sandboxes."""
        return self._deps.cluster.describe()

    @property
    def draining(self) -> bool:
        """Whether new creates are refused because the end is near."""
        return self._core.creates.draining

    @property
    def board(self) -> RouteBoard:
        """What gateways are told."""
        return self._core.board

    @property
    def egress_feed(self) -> Egress | None:
        """What egress replicas are told, and tell; None: egress is not installed."""
        return self._core.egress

    @property
    def quotas(self) -> Quotas:
        """What owners may use."""
        return self._core.quotas

    @property
    def activity(self) -> Activity:
        """What is in use, for the gateways' reports."""
        return self._core.expiry.activity

    def deadline_ms(self, spec: SandboxSpec, left_ms: int | None = None) -> int:
        """Until when a create that comes now may take (Unix ms); see ``Creates.deadline_ms``."""
        return self._core.creates.deadline_ms(spec, left_ms)

    async def create(
        self,
        owner: str,
        spec: SandboxSpec,
        key: str | None,
        *,
        by_ms: int | None,
        caller: str,
        begun: list[Sandbox],
        replaced: int = 0,
    ) -> Created:
        """Creates a sandbox and returns when it is ready; see ``Creates.create``."""
        return await self._core.creates.create(
            owner, spec, key, by_ms=by_ms, caller=caller, begun=begun, replaced=replaced
        )

    async def ready(
        self, sandbox: Sandbox, by_ms: int | None = None, *, fresh: bool = False, lease: Lease | None = None
    ) -> Sandbox:
        """Waits until a sandbox is usable; its record. See ``Creates.ready``."""
        return await self._core.creates.ready(sandbox, by_ms, fresh=fresh, lease=lease)

    def abandon(self, sandbox: Sandbox, caller: str = "") -> None:
        """Notes that one try of a create went away; see ``Abandonments.abandon``."""
        self._core.abandonments.abandon(sandbox, caller)

    async def accept_push(self, credential: str, push: Push) -> None:
        """Accepts a readiness push and completes the start; see ``Readiness.accept``."""
        await self._core.readiness.accept(credential, push)

    def refusal(self, sandbox: Sandbox) -> Problem | None:
        """Why no node takes a sandbox that is to start; None: one does, or nobody has said so yet."""
        return self._core.starter.refusal(sandbox)

    async def pulling(self, sandbox: Sandbox) -> str:
        """What the node of a sandbox that starts pulls for it, for people; empty: nothing, or nobody says it."""
        return await self._core.starter.pulling_told(sandbox)

    async def get(self, owner: str, sandbox_id: str) -> Sandbox:
        """The record, also of an ended sandbox; see ``OwnerCalls.get``."""
        return await self._core.owner_calls.get(owner, sandbox_id)

    async def find(
        self, owner: str, labels: Mapping[str, str], states: Collection[State] | None = LIVE
    ) -> Sequence[Sandbox]:
        """The owner's sandboxes with all these labels in one of these states (None: any), oldest first."""
        return await self._core.owner_calls.find(owner, labels, states)

    async def alive(self, owner: str, sandbox_id: str) -> Sandbox:
        """The record of a sandbox that has not ended; see ``OwnerCalls.alive``."""
        return await self._core.owner_calls.alive(owner, sandbox_id)

    async def extend(self, owner: str, sandbox_id: str, ttl_ms: int) -> Sandbox:
        """Lets a sandbox live at least ``ttl_ms`` from now; see ``OwnerCalls.extend``."""
        return await self._core.owner_calls.extend(owner, sandbox_id, ttl_ms)

    async def give_lease(self, owner: str, sandbox_id: str, lease: Lease | None) -> Sandbox:
        """Lets a sandbox end with the client that renews this lease; see ``OwnerCalls.give_lease``."""
        return await self._core.owner_calls.give_lease(owner, sandbox_id, lease)

    async def renew_lease(self, owner: str, lease: Lease) -> int:
        """Says that a client is still there; see ``OwnerCalls.renew_lease``."""
        return await self._core.owner_calls.renew_lease(owner, lease)

    async def open_port(self, owner: str, sandbox_id: str, port: int, *, public: bool) -> Sandbox:
        """Lets anyone reach a port without a token, or takes that back; see ``OwnerCalls.open_port``."""
        return await self._core.owner_calls.open_port(owner, sandbox_id, port, public=public)

    async def commit(self, owner: str, wish: CommitWish, key: str | None = None) -> Committed:
        """Makes an image of a sandbox; see ``SandboxCommits.commit``."""
        return await self._core.commits.commit(owner, wish, key)

    async def started_from(self, owner: str, spec: SandboxSpec) -> SandboxSpec:
        """The spec with the image of the checkpoint that it names; see ``Checkpoints.started_from``."""
        return await self._core.checkpoints.started_from(owner, spec)

    async def levels(self) -> Levels:
        """What is true at this moment, for the metrics; no counts while the store does not answer."""
        return await levels(self._core, self._options, self._deps.clock.now_ms())

    async def quota_use(self, owner: str) -> QuotaUse:
        """What an owner may use and uses, and which of its creates wait, at all replicas.

        Raises:
            Problem: the store does not answer.
        """
        core, quotas = self._core, self._core.quotas
        used, in_all = await core.store.usage(owner), await core.store.usage(None)
        total, line = quotas.limits(owner).total, await core.lines.of(owner)
        unplaced = core.starter.unplaced(owner)
        return QuotaUse(owner, quotas.of(owner), used, total, in_all.sandboxes, line.count, line.places, unplaced)

    def capacity(self) -> Capacity:
        """What is free on the nodes, and what waits for room, of all owners and at all replicas."""
        return capacity(self._deps.cluster, self._core.starter, self._options.pending_pods)

    def filled(self, spec: SandboxSpec) -> tuple[SandboxSpec, str]:
        """The spec with what is set aside where it gives limits alone, and that in words."""
        filled = self._options.overcommit.filled(spec)
        return filled, self._options.overcommit.words(filled)

    async def scaling(self) -> ScalerReport | None:
        """What the scaler has decided last, at whichever replica; None: this installation has none.

        Raises:
            Problem: the store does not answer.
        """
        if self._options.scaling is None:
            return None
        told = read_report(await self._core.store.note(NOTE))
        return told or ScalerReport(0, self._options.scaling.dry_run)

    async def forecast(self, owner: str, spec: SandboxSpec, count: int) -> tuple[Forecast, ImageState]:
        """What becomes of a run; see ``Preflight.forecast``; ``spec``: a filled one."""
        mounts = await self._core.datasets.refused(owner, spec)
        refused = [
            *self.egress.refused(owner, spec),
            *self._options.networks.refused(owner, spec.network),
            *([] if mounts is None else [mounts]),
        ]
        return await self._core.preflight.forecast(owner, spec, count, await self._prospects(spec), refused)

    async def _prospects(self, spec: SandboxSpec) -> Sequence[Prospect]:
        if self._options.scaling is None or (report := await self.scaling()) is None:
            return ()
        request, now_ms = self._deps.cluster.request(spec), self._deps.clock.now_ms()
        return report.prospects(self._options.scaling.pools, request, spec.node_selector, now_ms)

    def mint(self, sandbox: Sandbox, until_ms: int | None = None) -> Token:
        """A token for this sandbox; with ``until_ms`` (Unix ms) no longer than until then."""
        return self._deps.key.token(sandbox, until_ms)

    def share(self, sandbox: Sandbox, maker: Caller, lives_ms: int) -> Token:
        """A key of ``maker``'s for this sandbox alone, that lives no longer than ``maker``'s own."""
        until_ms = self._deps.clock.now_ms() + lives_ms
        return self._deps.key.share(sandbox, maker.key_id, min(until_ms, maker.expires_at_ms or until_ms))

    async def unbound(self, owner: str, sandbox_id: str, why: Problem) -> None:
        """See ``Admissions.unbound``.

        Raises:
            Problem: sandbox_not_found, and those there.
        """
        await self._core.admissions.unbound(await self.get(owner, sandbox_id), why)

    async def delete(self, owner: str, sandbox_id: str, *, wait_s: float = 0.0) -> Sandbox:
        """Ends a sandbox. Legal in every state; repeating is success.

        The end is on record, its quota free and the gateways told when this returns.

        Args:
            owner: whose it is.
            sandbox_id: which one.
            wait_s: how long to wait for the cluster's confirmation that nothing of it runs any more; 0: not at all.

        Raises:
            Problem: sandbox_not_found; upstream_timeout, not confirmed within ``wait_s`` (safe to repeat).
        """
        sandbox = await self.get(owner, sandbox_id)
        await self._core.ledger.end(sandbox_id, _by_owner(), owner, known=sandbox)
        confirmed = await self._core.endings.confirmed(sandbox, wait_s) if wait_s else None
        return confirmed or await self.get(owner, sandbox_id)

    async def delete_all(self, owner: str, labels: Mapping[str, str], *, wait_s: float = 0.0) -> Deleted:
        """Deletes all the owner's sandboxes with all these labels, together; ``wait_s`` as in ``delete``."""
        found = await self._core.store.find(owner, labels, LIVE)
        return await self._core.endings.end_all(found, _by_owner(), owner, wait_s=wait_s)

    async def delete_key(self, owner: str, key: str, *, wait_s: float = 0.0) -> Deleted:
        """Deletes the sandbox that took ``key``; if none has, no create may take it for 24 h if the store lasts."""
        sandbox = await self._core.store.withdraw(owner, key)
        found = [] if sandbox is None else [sandbox]
        return await self._core.endings.end_all(found, _by_owner(), owner, wait_s=wait_s)

    async def withdraw(self, owner: str, key: str, call_id: str) -> Deleted:
        """Takes back what the creates of one call asked for; those of other calls with the key are left alone.

        Ends the sandbox if no other call wants it. If none has the key, no create of this call may take it any more.
        """
        sandbox, now_ms = await self._core.store.withdraw(owner, key, call_id), self._deps.clock.now_ms()
        if sandbox is not None:
            sandbox = await self._core.ledger.change(
                sandbox.id, lambda record: callers.withdrawn(record, call_id, now_ms)
            )
        if sandbox is None or sandbox.end is not None or sandbox.abandoned_at_ms is None:
            return Deleted((), {})
        cancelled = Problem("create_abandoned", "the create that asked for it was cancelled, and no other one wants it")
        # Another create may have asked for the key meanwhile.
        ended = await self._core.ledger.end(sandbox.id, cancelled, owner, known=sandbox, once=True)
        return Deleted([sandbox.id] if ended else (), {})

    async def drain(self, *, delete: bool) -> Deleted:
        """Takes no new creates; with ``delete``, ends every sandbox and waits while the cluster gets on with it.

        Without, and where there are other replicas, callers that wait for a start are sent to those: it goes on there.
        """
        core = self._core
        core.creates.draining = True
        core.create_queue.leave()
        await core.pools.leave()
        if core.store.shared and not delete:
            core.settlements.leave()
        ids: list[str] = []
        left = Deleted((), {})
        while delete:
            stopped = Problem("stopped_by_operator", "the platform was stopped")
            everything = await core.store.find(None, {}, LIVE)
            left = await core.endings.end_all(everything, stopped, "operator", wait_s=DRAIN_WAIT_S)
            ids.extend(left.ids)
            delete = bool(left.failed and left.ids)
        return Deleted(ids, left.failed)


def _by_owner() -> Problem:
    return Problem("deleted", "it was deleted by its owner")
