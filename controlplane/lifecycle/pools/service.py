"""``Pools``: keeps the declared pools filled. Every replica tracks them; the one that holds the lease plans and acts.

Its starts are fenced: the step of the store that admits one checks the lease, so a replica that was paused and has lost
the lease starts nothing. A stop is a compare and set, and loses against a claim.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import structlog

from controlplane.clock import Clock
from controlplane.cluster.documents import Document, Documents
from controlplane.errors import Problem
from controlplane.lifecycle.admission.templates import Templates
from controlplane.lifecycle.admission.warm_starts import WarmStarts
from controlplane.lifecycle.pools.declared import Declared, declared, filled
from controlplane.lifecycle.pools.planner import share
from controlplane.lifecycle.pools.pool import NEWS_MS, Pool
from controlplane.lifecycle.record.ledger import PLATFORM
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.lifecycle.record.transition import Effect, Transition
from controlplane.lifecycle.waiting.creates_first import GAVE_ROOM, LEFT_FREE_MS, CreatesFirst
from controlplane.model import Overcommit, Sandbox, SandboxSpec, State
from controlplane.store import Fence, FencedError, StoreLostError
from controlplane.telemetry import POOLED, Metrics

LEASE: Final = "pools"
LEASE_MS: Final = 6_000
# Three tries before the lease expires.
RENEW_EVERY_MS: Final = 2_000
# Changes wake the planner; this interval is for pauses that end, and for feed messages that were lost.
LOOK_EVERY_S: Final = 1.0
# Changes come in bursts: they are planned for together.
LOOK_AT_MOST_EVERY_S: Final = 0.05
REREAD_EVERY_MS: Final = 5_000
# Without pools a read can find only the leftovers of removed ones.
REREAD_IDLE_MS: Final = 60_000
# A replaced template can be claimed for so long, since warm sandboxes of it may be left.
REPLACED_MS: Final = 600_000
STATUS_EVERY_S: Final = 1.0
STOPS_AT_ONCE: Final = 16
# A place that was freed for a create is not filled again for so long: more creates may come, which would stop the new
# sandbox at once.
# ``end.by`` of unclaimed sandboxes that were ended to make room for a create in the installation.
GIVEN_WAY: Final = "waiting room"
UNCLAIMED: Final = frozenset({State.REQUESTED, State.QUEUED, State.STARTING, State.WARM})


class Pools:
    """The pools as this replica knows them. ``run`` is their loop.

    Args:
        documents: where pools are declared.
        store: has the lease and the unclaimed sandboxes.
        clock: the time of day.
        warm: starts and retires the sandboxes of pools.
        templates: gets the templates of all pools, for creates.
        metrics: counts what gives way.
        overcommit: what is set aside for sandboxes that give limits alone.
        creates_first: whether creates wait for room on nodes, for which nothing is started meanwhile.
        replica: this process's name in the store.
    """

    def __init__(
        self,
        documents: Documents,
        store: RecoveringStore,
        clock: Clock,
        *,
        warm: WarmStarts,
        templates: Templates,
        metrics: Metrics,
        overcommit: Overcommit,
        creates_first: CreatesFirst,
        replica: str,
    ) -> None:
        self._overcommit = overcommit
        self._documents = documents
        self._store = store
        self._clock = clock
        self._warm = warm
        self._templates = templates
        self._metrics = metrics
        self._fence = Fence(LEASE, replica)
        self._pools: dict[str, Pool] = {}
        self._replaced: dict[str, int] = {}
        self._told: dict[str, dict[str, Any]] = {}
        self._given: dict[str, int] = {}
        self._creates_first = creates_first
        self._full: set[Pool] = set()  # pools whose last start was refused, perhaps for want of room
        self._ends = 0
        self._giving = asyncio.Lock()
        self._synced = self._left = False
        self._leads_until_ms = 0
        self._renewed_ms: int | None = None
        self._read_ms: int | None = None
        self._woken = asyncio.Event()
        self._log = structlog.get_logger("pools")

    @property
    def leads(self) -> bool:
        """Whether this replica plans: it holds the lease."""
        return self._clock.now_ms() < self._leads_until_ms

    async def run(self) -> None:
        """Follows the declarations, plans while this replica holds the lease, and writes statuses; until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow(), name="pools follow")
            group.create_task(self._repeat(self.turn, LOOK_EVERY_S, self._woken), name="pools plan")
            group.create_task(self._repeat(self.write_statuses, STATUS_EVERY_S, asyncio.Event()), name="pools status")

    def on(self, transition: Transition) -> None:
        """Takes in a transition of a sandbox, made at this replica or another one."""
        now_ms, sandbox = self._clock.now_ms(), transition.after
        if sandbox.state in (State.REQUESTED, State.QUEUED):
            return  # what is started here is counted when it is, and no other replica tells of it yet
        if Effect.FREE in transition.effects:
            self._room()
        if sandbox.pool:
            if sandbox.end is not None and sandbox.unclaimed and sandbox.end.by == GIVEN_WAY:
                self._given[sandbox.id] = sandbox.end.at_ms
            pool = self._pools.get(sandbox.pool)
            if pool is not None and pool.observe(sandbox, now_ms):
                self._woken.set()
        # Not of an older start: a record is published again whenever it changes.
        elif sandbox.cold_reason and sandbox.state is State.RUNNING and now_ms - (sandbox.ready_at_ms or 0) < NEWS_MS:
            self._miss(sandbox, now_ms)

    def status(self, name: str) -> dict[str, Any] | None:
        """The current status of a pool; None where another replica plans."""
        pool = self._pools.get(name)
        return None if pool is None or not self.leads else pool.status(self._clock.now_ms())

    def levels(self) -> dict[str, dict[str, int]]:
        """Unclaimed sandboxes of each pool by kind, for the metrics; empty where another replica plans."""
        told = {name: self._told[name] for name in self._pools if name in self._told} if self.leads else {}
        return {name: {what: one[what] for what in POOLED} for name, one in told.items()}

    def missing(self, now_ms: int) -> Sequence[tuple[SandboxSpec, int]]:
        """Templates of pools, and how many starts of each are needed that have not begun."""
        wanted = [(pool.template, pool.missing(now_ms)) for pool in self._pools.values()]
        return [(spec, count) for spec, count in wanted if spec is not None and count]

    def declare(self, documents: Sequence[Document]) -> None:
        """Takes in the declarations of all pools."""
        now_ms = self._clock.now_ms()
        there = {one.name: filled(declared(one), self._overcommit) for one in documents}
        for one in there.values():
            self._declare(one, now_ms)
        for name in self._pools.keys() - there.keys():
            self._pools[name].withdraw()
            self._templates.drop(name)
        self._synced = True
        self._woken.set()

    async def give_way(self) -> bool:
        """Ends the unclaimed sandbox that is needed least, to make room for a create; False when there is none.

        Any replica does this, not only the one that plans, since only the create's own replica knows that it waits. A
        sandbox that is claimed meanwhile is kept.

        Raises:
            Problem: the store's.
        Cost: one step of the store; every few seconds a read of all unclaimed sandboxes.
        """
        if not self._synced:
            return False
        async with self._giving:
            await self._know(self._clock.now_ms())
            while found := self._least():
                pool, sandbox_id = found
                why = "it gave way to a create: the installation is full"
                given = await self._warm.retire(sandbox_id, GIVEN_WAY, why)
                pool.stopped(sandbox_id, self._clock.now_ms())
                if given:
                    self._metrics.gave_way("total")
                    return True
            return False

    async def offers(self) -> Mapping[str, Pool]:
        """All unclaimed sandboxes with their pools, the least needed first, as ``give_way`` ends them.

        Raises:
            Problem: the store's.
        """
        now_ms = self._clock.now_ms()
        if not self._synced:
            return {}
        await self._know(now_ms)
        offers = [(*offer, pool) for pool in self._pools.values() for offer in pool.offers(now_ms)]
        offers.sort(key=lambda offer: offer[0])
        return {sandbox_id: pool for _, sandbox_id, pool in offers}

    async def make_room(self, pool: Pool, sandbox_id: str) -> None:
        """Ends a sandbox of ``offers`` for a start that no node has room for, unless it has been claimed meanwhile.

        Raises:
            Problem: the store's.
        """
        why = "it gave way to a create: no node had room for that"
        if await self._warm.retire(sandbox_id, GAVE_ROOM, why):
            self._metrics.gave_way("nodes")
        pool.stopped(sandbox_id, self._clock.now_ms())

    async def turn(self) -> None:
        """Plans and acts once for all pools, if this replica holds the lease.

        Raises:
            Problem: the store's.
        """
        now_ms = self._clock.now_ms()
        self._drop_replaced(now_ms)
        self._given = {one: at_ms for one, at_ms in self._given.items() if 0 <= now_ms - at_ms < LEFT_FREE_MS}
        if self._left or not self._synced or not await self._lead(now_ms):
            return
        await self._know(now_ms)
        steps = {name: pool.next_step(now_ms).plan for name, pool in self._pools.items()}
        if any(step.stop for step in steps.values()):
            await self._stop([(self._pools[name], one) for name, step in steps.items() for one in step.stop])
            steps = {name: pool.next_step(now_ms).plan for name, pool in self._pools.items()}
        for pool in self._pools.values():
            pool.held = self._held(pool, now_ms)
        free = {name: step.start for name, step in steps.items() if not self._pools[name].held}
        await self._start({name: count for name, count in free.items() if count})

    async def write_statuses(self) -> None:
        """Writes the statuses that have changed, if this replica plans."""
        if not self.leads or self._read_ms is None:
            return
        for name, pool in [*self._pools.items()]:
            status = pool.status(self._clock.now_ms())
            if not pool.over and self._told.get(name) != status:
                await self._documents.status("pools", name, status)
                self._told[name] = status

    async def leave(self) -> None:
        """Stops planning, and gives the lease back: another replica continues at once."""
        self._left = True
        if self.leads:
            self._leads_until_ms = 0
            with suppress(Problem, StoreLostError):
                await self._store.lease(LEASE, self._fence.holder, 0)

    async def _follow(self) -> None:
        async for documents in self._documents.watch("pools"):
            self.declare(documents)

    async def _repeat(self, work: Callable[[], Awaitable[None]], every_s: float, woken: asyncio.Event) -> None:
        while True:
            woken.clear()
            try:
                await work()
            except (Problem, StoreLostError) as problem:
                self._log.warning("pools not maintained, retrying", detail=str(problem))
            except Exception:
                # A loop that ends takes the control plane with it; its next round may succeed.
                self._log.exception("pools not maintained, retrying")
            with suppress(TimeoutError):
                async with asyncio.timeout(every_s):
                    await woken.wait()
            # A pause also after a wake-up: claims wake the planner, and their callers wait for answers from this loop.
            await asyncio.sleep(LOOK_AT_MOST_EVERY_S)

    def _declare(self, one: Declared, now_ms: int) -> None:
        known = self._pools.get(one.name)
        before = None if known is None else known.template
        pool = self._pools.setdefault(one.name, Pool(one))
        if known is not None and not known.declare(one):
            return
        # The status has to be written again: a pool that was removed and declared again has none.
        self._told.pop(one.name, None)
        if one.trouble:
            self._log.warning(
                "invalid pool, it starts and stops nothing until it is corrected", pool=one.name, detail=one.trouble
            )
        if pool.template is None:
            return
        if before is not None and before != pool.template:
            replaced = f"{one.name} {before.template_hash()}"
            self._templates.set(replaced, before)
            self._replaced[replaced] = now_ms
        self._templates.set(one.name, pool.template, "" if pool.spec is None else pool.spec.recording_of)

    def _held(self, pool: Pool, now_ms: int) -> str:
        """Why nothing is started for a pool: what is would give way next."""
        return "" if pool.template is None else self._creates_first.why(pool.template.node_selector, now_ms)

    def _drop_replaced(self, now_ms: int) -> None:
        for name in [name for name, at_ms in self._replaced.items() if not 0 <= now_ms - at_ms < REPLACED_MS]:
            self._templates.drop(name)
            del self._replaced[name]

    def _room(self) -> None:
        self._ends += 1
        if self._full:
            self._woken.set()
        while self._full:
            self._full.pop().room()

    def _miss(self, sandbox: Sandbox, now_ms: int) -> None:
        template = sandbox.spec.template_hash()
        for pool in self._pools.values():
            if pool.template_hash == template:
                pool.missed(sandbox.id, now_ms)
                self._woken.set()
                return

    async def _lead(self, now_ms: int) -> bool:
        due = self._renewed_ms is None or not 0 <= now_ms - self._renewed_ms < RENEW_EVERY_MS
        if due:
            self._renewed_ms = now_ms
            led = now_ms < self._leads_until_ms
            mine = await self._store.lease(LEASE, self._fence.holder, LEASE_MS)
            self._leads_until_ms = now_ms + LEASE_MS if mine and not self._left else 0
            if mine and not led:
                # What another replica has planned meanwhile is not known here.
                self._read_ms = None
                self._told.clear()
        return self.leads

    def _reread_every_ms(self) -> int:
        return REREAD_EVERY_MS if self._pools else REREAD_IDLE_MS

    async def _know(self, now_ms: int) -> None:
        if self._read_ms is None or not 0 <= now_ms - self._read_ms < self._reread_every_ms():
            await self._reread(now_ms)

    async def _reread(self, now_ms: int) -> None:
        views: dict[str, list[Sandbox]] = {name: [] for name in self._pools}
        # A replica that begins to plan also counts sandboxes that were claimed lately for the rate: another replica may
        # have started them.
        states = UNCLAIMED | {State.RUNNING} if self._read_ms is None and self.leads else UNCLAIMED
        for sandbox in await self._store.find(None, {}, states):
            if sandbox.unclaimed:
                views.setdefault(sandbox.pool, []).append(sandbox)
            elif (pool := self._pools.get(sandbox.pool)) is not None:
                pool.started_at(sandbox, now_ms)
        for name, view in views.items():
            if name not in self._pools:
                left = Pool(Declared(name, "", None))
                left.withdraw()
                self._pools[name] = left
            self._pools[name].see(view, now_ms)
        for name in [name for name, pool in self._pools.items() if pool.over]:
            del self._pools[name]
            self._told.pop(name, None)
        self._read_ms = now_ms

    def _least(self) -> tuple[Pool, str] | None:
        now_ms = self._clock.now_ms()
        offers = [(*offer, pool) for pool in self._pools.values() if (offer := pool.least(now_ms))]
        if not offers:
            return None
        _, sandbox_id, pool = min(offers, key=lambda offer: offer[:2])
        return pool, sandbox_id

    async def _stop(self, doomed: Sequence[tuple[Pool, str]]) -> None:
        for at in range(0, len(doomed), STOPS_AT_ONCE):
            some = doomed[at : at + STOPS_AT_ONCE]
            await _all(self._retire(pool, sandbox_id) for pool, sandbox_id in some)

    async def _retire(self, pool: Pool, sandbox_id: str) -> None:
        await self._warm.retire(sandbox_id, PLATFORM, "its pool does not keep it any more")
        pool.stopped(sandbox_id, self._clock.now_ms())

    async def _start(self, wanting: dict[str, int]) -> None:
        if not wanting:
            return
        budget = self._warm.at_once() - sum(pool.starting for pool in self._pools.values())
        dealt = share(wanting, budget)
        await _all(self._start_one(self._pools[name]) for name, count in dealt.items() for _ in range(count))

    async def _start_one(self, pool: Pool) -> None:
        spec = pool.template
        if spec is None or self._left:
            return
        ends = self._ends
        try:
            spare = len(self._given)
            sandbox = await self._warm.start(pool.name, spec, self._fence, spare=spare, interpreter=pool.interpreter)
        except FencedError:
            self._leads_until_ms = 0
        except Problem as problem:
            pool.refused(problem.code, problem.detail, self._clock.now_ms())
            if ends == self._ends:
                self._full.add(pool)
            else:  # a sandbox ended during the call, which is published only once
                pool.room()
        else:
            pool.started(sandbox, self._clock.now_ms())


async def _all(calls: Iterable[Awaitable[None]]) -> None:
    """Awaits the calls concurrently; raises the first failure once all are over."""
    for failure in filter(None, await asyncio.gather(*calls, return_exceptions=True)):
        raise failure
