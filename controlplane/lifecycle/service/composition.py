"""Puts the lifecycle together, top down, and runs its loops.

Read ``Core.__init__`` from top to bottom: each part is given only parts above it. What has to follow changes of
records subscribes to the ledger; there is no other way back up.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

import structlog

from controlplane.cluster import Placement
from controlplane.errors import Problem
from controlplane.lifecycle.admission.abandonments import Abandonments
from controlplane.lifecycle.admission.admissions import Admissions
from controlplane.lifecycle.admission.quotas import Quotas
from controlplane.lifecycle.admission.templates import Templates
from controlplane.lifecycle.admission.warm_starts import WarmStarts
from controlplane.lifecycle.audit import AuditTrail
from controlplane.lifecycle.datasets import Datasets
from controlplane.lifecycle.dependencies import Dependencies, Options
from controlplane.lifecycle.drains import Drains
from controlplane.lifecycle.egress import Egress
from controlplane.lifecycle.ending.endings import Endings
from controlplane.lifecycle.ending.reclaim import Reclaimer
from controlplane.lifecycle.event_board import EventBoard
from controlplane.lifecycle.expiry.expiry import Expiry
from controlplane.lifecycle.health.silent_nodes import SilentNodes
from controlplane.lifecycle.housekeeping import registry_cleanup
from controlplane.lifecycle.housekeeping.cleanup import LOOK_EVERY_S, NodeCleanup
from controlplane.lifecycle.housekeeping.commit_byte_budget import CommitByteBudget
from controlplane.lifecycle.housekeeping.committed import CommittedImages
from controlplane.lifecycle.housekeeping.copy_removals import CopyRemovals
from controlplane.lifecycle.housekeeping.needed import Needs
from controlplane.lifecycle.housekeeping.recorded_cleanup import RecordedCleanup
from controlplane.lifecycle.housekeeping.registry_cleanup import RegistryCleanup
from controlplane.lifecycle.images import (
    Configs,
    Conversions,
    Copies,
    ExternalCopies,
    GroupUses,
    Images,
    Inventory,
    LazyStarts,
    Mirrored,
    Ownership,
    RecordedShare,
    Recordings,
    RegistryStore,
    Rights,
)
from controlplane.lifecycle.images.checkpoints import Checkpoints
from controlplane.lifecycle.keys import StoredKeys
from controlplane.lifecycle.pools import Pools, Yielding
from controlplane.lifecycle.preflight import Preflight
from controlplane.lifecycle.record.annotations import Annotations
from controlplane.lifecycle.record.end_times import EndTimes
from controlplane.lifecycle.record.ledger import Ledger
from controlplane.lifecycle.record.population import Population
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.lifecycle.record.settlements import Settlements
from controlplane.lifecycle.record.transition import Effect, Transition
from controlplane.lifecycle.replicas.comparison import Comparison
from controlplane.lifecycle.replicas.loops import ReplicaLoops
from controlplane.lifecycle.replicas.recovery import Recovery
from controlplane.lifecycle.replicas.upkeep import Upkeep
from controlplane.lifecycle.routes import RouteBoard
from controlplane.lifecycle.scaling import EVERY_S as SCALER_EVERY_S
from controlplane.lifecycle.scaling import Scaler
from controlplane.lifecycle.service.boots import Boots
from controlplane.lifecycle.service.build_networks import BuildNetworks
from controlplane.lifecycle.service.builds import ImageBuilds
from controlplane.lifecycle.service.commit_keys import CommitKeys
from controlplane.lifecycle.service.commits import SandboxCommits
from controlplane.lifecycle.service.console_views import ConsoleViews
from controlplane.lifecycle.service.creates import Creates
from controlplane.lifecycle.service.egress_calls import EgressCalls
from controlplane.lifecycle.service.owner_calls import OwnerCalls
from controlplane.lifecycle.starting.readiness import Readiness
from controlplane.lifecycle.starting.starter import Starter
from controlplane.lifecycle.starting.starts import Starts
from controlplane.lifecycle.waiting import CreateQueue, Lines
from controlplane.lifecycle.webhooks import Webhooks

CLOSE_WITHIN_S: Final = 10.0
# What is left after that waits for an engine which does not answer; this is for the loop to unwind.
UNWIND_WITHIN_S: Final = 0.5
# What is written beside declared quotas, for people who read them there.
REPORT_EVERY_S: Final = 10.0
# A registry is asked for the names of all checkpoints there are, and for more of those alone whose time is over.
EXPIRE_EVERY_S: Final = 60.0
# Names of few sandboxes are written at once, those of a herd together.
NAMES_EVERY_S: Final = 1.0
# A cluster full of sandboxes that do not answer is slow to rebuild from.
OPEN_WITHIN_S: Final = 120.0


class Core:
    """All parts of the lifecycle of one replica; everything that they start runs in ``group`` and ends with ``close``.

    Attributes:
        store, ledger, settlements, annotations: records, how they change, and what waits for that.
        looks: what people see of sandboxes.
        population, end_times: how many there are, by state and owner, and when they ended.
        board: what gateways are told.
        events: what those are told that listen.
        audit: which key has done what.
        webhooks: what posts events; None: nothing does.
        egress, egress_calls: network policies (None: egress is not installed), and what owners do with them.
        images, ownership, inventory: what a start begins with, whose it is, what nodes have.
        configs: what images say of the processes that run from them.
        lazily: in which form a start gets its image.
        datasets: what sandboxes mount besides their image.
        commits, committed, checkpoints: images that are made of sandboxes, those that were, and those that end.
        builds: images from Dockerfiles.
        starts, line, readiness, starter: bringing sandboxes up.
        expiry, drains, endings, reclaimer: ending them.
        quotas, create_queue, lines, admissions, abandonments, creates, pools: letting them in.
        scaler: adds and removes nodes; None: this installation's does not.
        owner_calls, preflight: what owners ask about them.
        replicas: what is done because there are other replicas.
    """

    def __init__(self, deps: Dependencies, options: Options, group: asyncio.TaskGroup) -> None:
        self._deps, self._options, self._group, self._log = deps, options, group, structlog.get_logger("lifecycle")
        # Records.
        self.store = store = RecoveringStore(deps.store)
        self.ledger = ledger = Ledger(store, deps.clock)
        self.settlements = settlements = Settlements(ledger)
        self.population, self.end_times = Population(), EndTimes()
        self.annotations = annotations = Annotations(deps.cluster, ledger.claim_written)
        self.board, self.events, self.audit, self.egress = (
            RouteBoard(deps.clock, deps.key),
            EventBoard(store, deps.clock),
            AuditTrail(store, options.audit, deps.metrics),
            _egress(deps, options, store, ledger, annotations),
        )
        # Starting and ending.
        templates, self.webhooks, self.datasets, self.keys = (
            Templates(),
            _webhooks(deps, options, self.events, store),
            Datasets(deps.documents, deps.cluster.mounts, options.datasets),
            StoredKeys(deps.documents, store, deps.clock),
        )
        self._registry_store = registry_store = _registry_store(deps, options, store)
        copies = _copies(deps, options, registry_store, group)
        self._conversions = _conversions(deps, options, copies, registry_store)
        self.images = Images(
            options.images,
            deps.registry,
            deps.cluster,
            store,
            deps.clock,
            metrics=deps.metrics,
            serves=templates.serves,
            group=group,
            mirrored=_mirrored(deps, options, copies),
            rights=_rights(deps, options, group),
        )
        self.ownership = Ownership(deps.cluster.describe().commits, self.images)
        self.lazily = lazily = LazyStarts(
            deps.cluster.lazy, options.images.private, self._conversions, templates.recorder, deps.metrics
        )
        self.readiness = Readiness(deps, store, ledger, annotations)
        self.starter = Starter(
            deps,
            store,
            ledger,
            settlements,
            readiness=self.readiness,
            images=self.images,
            lazily=lazily,
            datasets=self.datasets,
            at_once=options.starts_in_flight,
            most_pending=options.pending_pods,
        )
        self.line = self.starter.line
        self.starts = starts = Starts(self.starter, store, ledger, deps.clock, group)
        self.expiry = Expiry(deps, store, ledger)
        nodes = deps.cluster.node_drains
        self.drains = None if nodes is None else Drains(deps, nodes, store, ledger)
        self._silent_nodes = None if nodes is None else SilentNodes(deps, nodes, store, ledger)
        self.reclaimer = reclaimer = Reclaimer(deps.cluster, ledger, starts.tasks, group)
        self.endings = Endings(store, ledger, reclaimer)
        # Letting in.
        self.quotas = Quotas(deps.documents, options.max_sandboxes, egress=options.egress is not None)
        self.abandonments = Abandonments(ledger, deps.clock, group)
        self.create_queue, self.lines = _queue(deps, store, self.quotas, self.abandonments)
        self.admissions = Admissions(
            deps,
            store,
            ledger,
            settlements,
            annotations=annotations,
            board=self.board,
            images=self.images,
            templates=templates,
            starts=starts,
            abandonments=self.abandonments,
            group=group,
        )
        self._boots = Boots(deps, ledger, settlements, admissions=self.admissions, quotas=self.quotas)
        self.inventory = Inventory(
            deps.cluster,
            self.images,
            self.ownership,
            lazily,
            recordings=Recordings(lazily, self._boots.record, group),
            metrics=deps.metrics,
        )
        warm = WarmStarts(deps, options, ledger, self.admissions, self.quotas)
        self.pools = Pools(
            deps.documents,
            store,
            deps.clock,
            warm=warm,
            templates=templates,
            metrics=deps.metrics,
            overcommit=options.overcommit,
            creates_first=self.line.room.creates_first,
            replica=deps.store.replica,
        )
        self._yielding = Yielding(self.pools, self.line.room, deps.cluster, deps.clock)
        self.scaler = _scaler(deps, options, store, warm=warm, pools=self.pools, group=group)
        self.owner_calls, self.console_views = (
            OwnerCalls(deps, store, ledger, annotations, self.expiry, own_ports=_own_ports(deps, options)),
            ConsoleViews(deps, store, self.end_times),
        )
        self.egress_calls = EgressCalls(self.egress, ledger, self.owner_calls, self.console_views, deps.clock)
        self.creates = Creates(
            deps,
            options,
            ledger,
            settlements,
            create_queue=self.create_queue,
            admissions=self.admissions,
            abandonments=self.abandonments,
            pools=self.pools,
            owner_calls=self.owner_calls,
            egress=self.egress_calls,
            images=self.images,
            ownership=self.ownership,
            datasets=self.datasets,
            refusal=self.line.room.told.refusal,
        )
        self.committed = CommittedImages(
            deps.cluster.commits,
            store,
            deps.documents,
            self.quotas,
            shares=CommitByteBudget(store, deps.clock),
            metrics=deps.metrics,
            limit_bytes=options.commit_bytes,
        )
        self.configs, self.checkpoints, self.builds = (
            Configs(deps.cluster, deps.registry, self.images, self.ownership),
            Checkpoints(deps.cluster.commits, self.ownership, deps.clock),
            ImageBuilds(
                deps.cluster.builds,
                deps.cluster.commits,
                self.committed,
                self.ownership,
                self.images,
                networks=BuildNetworks(self.creates, self.endings, deps.key),
                made=lazily.made,
            ),
        )
        needs = Needs(store, deps.documents, self.images, options.images.private)
        self._cleanup = _node_cleanup(deps, options, needs)
        self._registry_cleanup, self._recorded_cleanup = _registry_cleanups(deps, options, needs, registry_store)
        self.commits = SandboxCommits(
            deps.cluster.commits,
            self.committed,
            self.checkpoints,
            CommitKeys(store),
            owner_calls=self.owner_calls,
            activity=self.expiry.activity,
            metrics=deps.metrics,
            group=group,
        )
        self.preflight = Preflight(
            store,
            deps.cluster,
            self.images,
            self.quotas,
            ownership=self.ownership,
            at_once=options.starts_in_flight,
        )
        # Other replicas, and the cluster.
        comparison = Comparison(
            deps,
            store,
            ledger,
            annotations=annotations,
            reclaimer=reclaimer,
            group=group,
            adopt_egress=None if self.egress is None else self.egress.adopt,
        )
        self._recovery = Recovery(
            deps,
            store,
            ledger,
            settlements,
            comparison=comparison,
            slots=self.line.slots,
            activity=self.expiry.activity,
        )
        self._upkeep = Upkeep(
            deps,
            store,
            ledger,
            settlements,
            starts=starts,
            slots=self.line.slots,
            expiry=self.expiry,
            reclaimer=reclaimer,
            comparison=comparison,
        )
        self.replicas = ReplicaLoops(store, deps.clock, deps.metrics, self._upkeep, deps.store.replica)
        self._loops: list[asyncio.Task[None]] = []
        self._subscribe()

    def _subscribe(self) -> None:
        """What follows from a transition, in this order: gateways first, since callers wait for them."""
        self.ledger.subscribe(self.board.on)
        if self.egress is not None:
            # Also before callers: one that waits for a switch has to find its egress replica told.
            self.ledger.subscribe(self.egress.on)
            self.egress.assignments.limit_owners(self.quotas.egress)
            self.quotas.listen(self.egress.assignments.limits_changed)
        self.ledger.subscribe(self.settlements.on)
        self.ledger.subscribe(self.images.on)
        if (private := self._options.images.private) is not None:
            self.ledger.subscribe(GroupUses(self._registry_store, private, self.images.pulled).on)
        self.ledger.subscribe(self.starts.on)
        self.ledger.subscribe(self.line.on)
        self.ledger.subscribe(self.expiry.on)
        if self.drains is not None:
            self.ledger.subscribe(self.drains.on)
        self.ledger.subscribe(self.annotations.on)
        self.ledger.subscribe(self.create_queue.on)
        self.ledger.subscribe(self.preflight.on)
        self.ledger.subscribe(self.pools.on)
        self.ledger.subscribe(self._yielding.on)
        self.ledger.subscribe(self.population.on)
        self.ledger.subscribe(self.end_times.on)
        if self.scaler is not None:
            self.ledger.subscribe(self.scaler.sandbox_counts.on)
        self.ledger.subscribe(self._count_end)
        self.ledger.subscribe(self.events.on)
        self.ledger.subscribe(self.reclaimer.on)
        self.quotas.listen(self.create_queue.changed)

    @property
    def draining_nodes(self) -> int:
        """How many nodes are emptied."""
        nodes = self._deps.cluster.node_drains
        return 0 if nodes is None else len(nodes.draining())

    async def open(self) -> None:
        """Adopts what ran before, then begins to follow the cluster, the other replicas and the time.

        Raises:
            Problem: the cluster cannot be listed.
        """
        self._run("recovery", self._recovery.run())
        await self.store.ensure(within_s=OPEN_WITHIN_S)
        await self.quotas.open()
        await self._upkeep.reread()
        self._run("quotas", self.quotas.run())
        await self.datasets.open()
        self._run("data sets", self.datasets.run())
        self._run("uses of keys", self.keys.run())
        self._run("create queue", self.create_queue.run())
        self._run("quota use", self.replicas.periodic("quota use", REPORT_EVERY_S, self._report))
        if self._cleanup is not None:
            self._run("node images", self.replicas.periodic("node images", LOOK_EVERY_S, self._cleanup.turn))
        if self._deps.cluster.commits is not None:
            self._run("checkpoints", self.replicas.periodic("checkpoints", EXPIRE_EVERY_S, self._expire))
        if (registry := self._registry_cleanup) is not None:
            self._run("registry", self.replicas.periodic("registry", registry_cleanup.LOOK_EVERY_S, registry.turn))
            self._run("full registry", registry.when_full(self.replicas.alone))
        if (recorded := self._recorded_cleanup) is not None:
            self._run("recorded", self.replicas.periodic("recorded", registry_cleanup.LOOK_EVERY_S, recorded.turn))
        if registry is not None or recorded is not None:
            self._run("uses of copies", self._registry_store.run())
        self._run("deaths", self._follow_deaths())
        self._run("placements", self._follow_placements())
        self._run("annotations", self.annotations.run())
        self._run("audit", self.audit.run())
        if self.drains is not None:
            self._run("drains", self.drains.run())
        if self._silent_nodes is not None:
            self._run("silent nodes", self._silent_nodes.run())
        for name, loop in self.expiry.loops().items():
            self._run(name, loop)
        if self.store.shared:
            self._run("lines", self.replicas.tell(self.lines.turn))
            self._run("follow", self.replicas.follow())
            self._run("tend", self.replicas.tend())
            self._run("orphans", self.replicas.watch_orphans())
            self._run("recount", self.replicas.recount())
        await self._begin_optional()
        # Last: a pool's first look finds what was adopted.
        self._run("pools", self.pools.run())
        self._run("yielding", self._yielding.run())

    async def _begin_optional(self) -> None:
        """Begins what an installation may do without."""
        if self.egress is not None:
            await self.egress.open()
            self._run("egress", self.egress.run())
        if (names := self._deps.cluster.names) is not None:
            self._run("names", self.replicas.periodic("names", NAMES_EVERY_S, names.turn))
        if self._conversions is not None:
            self._run("conversions", self._conversions.run(self._boots.boot))
        if self.webhooks is not None:
            self._run("webhooks", self.replicas.lead("webhooks", self.webhooks.run))
        if self._options.probe_every_ms:
            self._run("prober", self.replicas.probe(self._options.probe_every_ms))
        if self.scaler is not None:
            self._run("scaler", self.replicas.periodic("scaler", SCALER_EVERY_S, self.scaler.turn))

    async def close(self) -> None:
        """Ends the loops and gives what is under way a little time, then leaves it: the next start finds it."""
        await self.pools.leave()
        await self.audit.close()
        if self.scaler is not None:
            self.scaler.close()
        self.admissions.close()
        self.inventory.close()
        self.images.close()
        self.commits.close()
        self.abandonments.close()
        self.create_queue.leave()
        if self.store.shared:
            await self._hand_over()
        starts = set(self.starts.tasks.values())
        for task in (*self._loops, *starts):
            task.cancel()
        left = await _unfinished({*starts, *self.reclaimer.under_way}, CLOSE_WITHIN_S)
        for _ in range(2):  # the first cancel is a request: it waits for the engine's answer; the second one insists
            for task in left:
                task.cancel()
            left = await _unfinished(left, UNWIND_WITHIN_S)
        await self._registry_store.close()
        if self.webhooks is not None:
            self.webhooks.close()
        if self.store.shared:
            await self.replicas.go()

    def _run(self, name: str, loop: Coroutine[Any, Any, None]) -> None:
        self._loops.append(self._group.create_task(loop, name=name))

    async def _hand_over(self) -> None:
        self.settlements.leave()
        # A call to the cluster that is under way leaves a whole sandbox, whose push lands elsewhere.
        if unanswered := self.readiness.unanswered:
            await asyncio.wait(unanswered, timeout=CLOSE_WITHIN_S)
        await self.annotations.flush()

    async def _report(self) -> None:
        await self.quotas.report(self.store.usage)

    async def _expire(self) -> None:
        await self.committed.expire(self._deps.clock.now_ms())

    async def _follow_deaths(self) -> None:
        backend = self._deps.cluster.describe().backend
        async for death in self._deps.cluster.watch():
            await self.ledger.end_with_retries(death.sandbox_id, Problem(death.cause, death.detail), backend)

    async def _follow_placements(self) -> None:
        # Side by side: each is a message to the store, and those of a herd would come one after the other. There are
        # no more of them than starts of this replica: a second one of the same start finds it busy, and is over.
        async with asyncio.TaskGroup() as hearing:
            async for placement in self._deps.cluster.placements():
                if placement.turned_away_by:
                    again = self.starter.replaced_pods.again(placement)
                    hearing.create_task(self._heard(again), name=f"elsewhere {placement.sandbox_id}")
                    continue
                self.line.room.placed(placement)
                if placement.sandbox_id in self.line.slots:
                    placed = self._placed(placement)
                    hearing.create_task(self._heard(placed), name=f"placed {placement.sandbox_id}")

    async def _heard(self, hearing: Coroutine[Any, Any, None]) -> None:
        # A defect that one start meets ends neither the others' nor the replica.
        try:
            await hearing
        except Exception:
            self._log.exception("what follows from a placement failed")

    async def _placed(self, placement: Placement) -> None:
        await self.line.slots.placed(placement)
        if not placement.node:
            await self.starter.replaced_pods.refused(placement.sandbox_id)

    def _count_end(self, transition: Transition) -> None:
        if transition.here and Effect.UNROUTE in transition.effects and transition.after.end is not None:
            # Of a pool's sandbox nobody is the owner yet.
            owner = "" if transition.after.unclaimed else transition.after.owner
            self._deps.metrics.ended(transition.after.end.cause, owner)


def _egress(
    deps: Dependencies, options: Options, store: RecoveringStore, ledger: Ledger, annotations: Annotations
) -> Egress | None:
    if options.egress is None:
        return None
    return Egress(
        options.egress,
        store,
        ledger,
        annotations,
        documents=deps.documents,
        key=deps.key,
        clock=deps.clock,
        replica=deps.store.replica,
        metrics=deps.metrics,
    )


def _webhooks(deps: Dependencies, options: Options, events: EventBoard, store: RecoveringStore) -> Webhooks | None:
    if deps.poster is None or not options.webhooks.endpoints:
        return None
    return Webhooks(options.webhooks, deps.poster, events, store, clock=deps.clock, metrics=deps.metrics)


def _copies(deps: Dependencies, options: Options, store: RegistryStore, group: asyncio.TaskGroup) -> Copies | None:
    private = options.images.private
    if private is None or deps.mirror is None or deps.keyrings is None:
        return None
    machines, metrics = deps.cluster.architectures, deps.metrics
    return Copies(deps.mirror, private, machines, clock=deps.clock, metrics=metrics, store=store, group=group)


def _mirrored(deps: Dependencies, options: Options, copies: Copies | None) -> Mirrored | None:
    private = options.images.private
    if private is None or copies is None or deps.mirror is None or deps.keyrings is None:
        return None
    return Mirrored(private, deps.mirror, copies, deps.keyrings, options.images.plain)


def _conversions(
    deps: Dependencies, options: Options, copies: Copies | None, store: RegistryStore
) -> Conversions | None:
    private = options.images.private
    if private is None or copies is None or deps.mirror is None:
        return None
    share = RecordedShare(store.copies, options.images.recorded_bytes)
    return Conversions(deps.mirror, private, copies, store=store, share=share, clock=deps.clock, metrics=deps.metrics)


def _registry_store(deps: Dependencies, options: Options, store: RecoveringStore) -> RegistryStore:
    external = None
    if options.images.private is not None and deps.recorded is not None:
        external = ExternalCopies(deps.recorded, store, deps.clock)
    return RegistryStore(deps.collector, deps.clock, external)


def _node_cleanup(deps: Dependencies, options: Options, needs: Needs) -> NodeCleanup | None:
    nodes, limit = deps.cluster.node_stores, options.node_images
    if nodes is None or not limit.limited:
        return None
    return NodeCleanup(nodes, needs, limit, clock=deps.clock, metrics=deps.metrics)


def _registry_cleanups(
    deps: Dependencies, options: Options, needs: Needs, store: RegistryStore
) -> tuple[RegistryCleanup | None, RecordedCleanup | None]:
    """The clean-up of the own registry, or of recorded copies in one that somebody else looks after."""
    private, copies, clock, metrics = options.images.private, store.copies, deps.clock, deps.metrics
    if private is None or copies is None:
        return None, None
    if deps.collector is not None:
        own = RegistryCleanup(deps.collector, private, needs, options.images, store=store, clock=clock, metrics=metrics)
        return own, None
    removals = CopyRemovals(copies, needs, options.images.recorded_bytes, clock=clock, metrics=metrics)
    return None, RecordedCleanup(copies, private, needs, removals, store=store)


def _own_ports(deps: Dependencies, options: Options) -> frozenset[int]:
    return deps.cluster.own_ports | (options.egress.ports if options.egress is not None else frozenset())


def _queue(
    deps: Dependencies, store: RecoveringStore, quotas: Quotas, abandonments: Abandonments
) -> tuple[CreateQueue, Lines]:
    queue = CreateQueue(store, quotas.limits, abandonments.unwanted, deps.clock, deps.metrics.waited)
    return queue, Lines(queue, store, deps.clock, deps.store.replica)


def _scaler(
    deps: Dependencies,
    options: Options,
    store: RecoveringStore,
    *,
    warm: WarmStarts,
    pools: Pools,
    group: asyncio.TaskGroup,
) -> Scaler | None:
    if options.scaling is None or deps.node_pools is None:
        return None
    return Scaler(
        options.scaling,
        deps.node_pools,
        deps.cluster,
        store,
        warm=warm,
        missing=pools.missing,
        clock=deps.clock,
        metrics=deps.metrics,
        group=group,
        max_sandboxes=options.max_sandboxes,
    )


def _rights(deps: Dependencies, options: Options, group: asyncio.TaskGroup) -> Rights | None:
    if deps.registry is None or deps.keyrings is None:
        return None
    return Rights(deps.registry, deps.keyrings, deps.clock, group, options.images.private)


async def _unfinished(tasks: set[asyncio.Task[Any]], within_s: float) -> set[asyncio.Task[Any]]:
    """Those that have not ended in time."""
    return (await asyncio.wait(tasks, timeout=within_s))[1] if tasks else set()
