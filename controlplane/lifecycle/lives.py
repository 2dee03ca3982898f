"""``Lives``: every sandbox from its admission to its confirmed end. Owns the starts, their deadlines and the loops."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import structlog

from controlplane.errors import Problem
from controlplane.lifecycle.claims import Claims
from controlplane.lifecycle.endings import PLATFORM, Endings
from controlplane.lifecycle.keeper import Keeper
from controlplane.lifecycle.ledger import Ledger
from controlplane.lifecycle.notes import Notes
from controlplane.lifecycle.parts import Options, Parts
from controlplane.lifecycle.patience import patiently
from controlplane.lifecycle.preflight import Surveyor
from controlplane.lifecycle.queue import Answer, WaitingRoom
from controlplane.lifecycle.quotas import Quotas
from controlplane.lifecycle.readiness import Readiness
from controlplane.lifecycle.replicas import Replicas
from controlplane.lifecycle.starts import Starter
from controlplane.lifecycle.upkeep import Upkeep
from controlplane.model import Sandbox
from controlplane.store import Admitted, Claimed, Store

CLOSE_WITHIN_S: Final = 10.0
# Ends that the passing of ttls brings about side by side.
EXPIRED_AT_ONCE: Final = 64
# What is left after that waits for an engine which does not answer; this is for the loop to unwind.
UNWIND_WITHIN_S: Final = 0.5
# What is written beside declared quotas, for whoever looks at them there.
REPORT_EVERY_S: Final = 10.0
# A cluster full of sandboxes that do not answer is slow to rebuild from.
OPEN_WITHIN_S: Final = 120.0


class Lives:
    """Begins sandboxes; everything that it starts runs in ``group`` and ends with ``close``."""

    def __init__(self, parts: Parts, options: Options, group: asyncio.TaskGroup) -> None:
        self._parts = parts
        self._options = options
        self._group = group
        self._starts: dict[str, asyncio.Task[None]] = {}
        self._closing = False
        self.store = store = Keeper(parts.store, self._prepare, self._rebuild, self._resume, group)
        self.ledger = ledger = Ledger(store, parts.board, parts.metrics, parts.clock)
        self.notes = Notes(parts.cluster, self._noted)
        self.endings = Endings(parts, store, ledger, notes=self.notes, group=group, starts=self._starts)
        ledger.listen(lambda _, after: self.endings.care.watch(after))
        self.claims = Claims(
            parts, store, ledger, endings=self.endings, notes=self.notes, begin=self.begin, doubt=self.doubt
        )
        self.readiness = Readiness(parts, store, ledger, self.notes, self.endings.fail)
        self.starter = Starter(parts, store, ledger, self.readiness, options.starts_in_flight)
        self.quotas = Quotas(parts.documents, options.max_sandboxes)
        self.room = WaitingRoom(store, self.quotas.limits, self._unwanted, parts.clock)
        self.surveyor = Surveyor(store, parts.cluster, self.quotas, options.starts_in_flight)
        self.quotas.listen(self.room.changed)
        ledger.listen(self.room.freed)
        ledger.listen(self.surveyor.started)
        self._upkeep = Upkeep(
            parts,
            store,
            ledger,
            endings=self.endings,
            notes=self.notes,
            turns=self.starter.turns,
            group=group,
            begin=self.begin,
            end_overdue=self._end_overdue,
        )
        self._replicas = Replicas(store, parts.clock, parts.metrics, self._upkeep, parts.store.replica)
        self._loops: list[asyncio.Task[None]] = []
        self._log = structlog.get_logger("lives")

    async def open(self) -> None:
        """Adopts what ran before, then begins to reap and to watch.

        Raises:
            Problem: the cluster cannot be listed.
        """
        await self.store.ensure(within_s=OPEN_WITHIN_S)
        await self.quotas.open()
        await self._upkeep.reread()
        loops = {
            "quotas": self.quotas.run(),
            "room": self.room.run(),
            "quota use": self._replicas.report(REPORT_EVERY_S, self._report),
            "reaper": self.endings.care.ttl.run(self.endings.expire, EXPIRED_AT_ONCE),
            "idle": self.endings.care.idle.run(),
            "leases": self.endings.care.leases.run(),
            "abandoned": self.endings.care.abandoned.run(),
            "watch": self._watch(),
            "placements": self._follow_placements(),
            "notes": self.notes.run(),
        }
        if self.store.shared:
            replicas = self._replicas
            loops |= {"follow": replicas.follow(), "tend": replicas.tend(), "orphans": replicas.watch_orphans()}
            loops["recount"] = replicas.recount()
        if self._options.probe_every_ms:
            loops["prober"] = self._replicas.probe(self._options.probe_every_ms)
        self._loops = [self._group.create_task(loop, name=name) for name, loop in loops.items()]

    async def close(self) -> None:
        """Ends the loops and gives what is under way a little time, then leaves it: the next start finds it."""
        self._closing = True
        self.room.leave()
        if self.store.shared:
            await self._hand_over()
        self.store.close()
        starts = set(self._starts.values())
        for owned in (*self._loops, *starts):
            owned.cancel()
        left = await _ended({*starts, *self.endings.reclaimer.under_way}, CLOSE_WITHIN_S)
        for _ in range(2):  # the first one is a request: it waits for the engine's answer; the second one insists
            for one in left:
                one.cancel()
            left = await _ended(left, UNWIND_WITHIN_S)
        if self.store.shared:
            await self._replicas.go()

    def begin(self, sandbox: Sandbox) -> bool:
        """Begins the start of an admitted sandbox, or goes on with one that another replica has left.

        Returns:
            False when it is under way here.
        """
        if sandbox.id in self._starts:
            return False
        self.ledger.hold(sandbox)
        self.endings.care.watch(sandbox)
        start = self._group.create_task(self._start(sandbox), name=f"start {sandbox.id}")
        self._starts[sandbox.id] = start
        # Beside the start, not around it: a start that waits for an engine which hangs unwinds too late to tell.
        within_s = max(0, sandbox.start_by_ms - self._parts.clock.now_ms()) / 1000
        deadline = asyncio.get_running_loop().call_later(within_s, self._overdue, sandbox.id)

        def over(_: asyncio.Task[None]) -> None:
            deadline.cancel()
            self._starts.pop(sandbox.id, None)
            self.ledger.release(sandbox.id)

        start.add_done_callback(over)
        return True

    def doubt(self, sandbox: Sandbox) -> None:
        """The store did not say whether it has admitted this one: it is begun or ended as soon as it does."""
        # Whoever closes leaves it to the next start, or to the replica that sweeps.
        if not self._closing:
            self._group.create_task(self._resolve(sandbox), name=f"doubt {sandbox.id}")

    def disown(self, sandbox: Sandbox) -> None:
        """Ends, behind, what its creator will never hear of."""
        gone = Problem("create_abandoned", "its creator went away before it was ready")
        if not self._closing:
            self._group.create_task(self.endings.bury(sandbox.id, gone), name=f"disown {sandbox.id}")

    def drop_caller(self, sandbox: Sandbox, caller: str) -> None:
        """Notes, behind, that this try of a create with a key has gone before it was given the sandbox.

        It ends a while later, if no other create wants it and nobody asks for the key again.
        """
        if not self._closing:
            self._group.create_task(self._drop_caller(sandbox.id, caller), name=f"drop caller of {sandbox.id}")

    def _unwanted(self, answer: Answer) -> None:
        if not isinstance(answer, Admitted | Claimed):
            return
        if answer.sandbox.idempotency_key is None:
            self.disown(answer.sandbox)
        for caller in answer.sandbox.callers:
            self.drop_caller(answer.sandbox, caller)

    async def _drop_caller(self, sandbox_id: str, caller: str) -> None:
        try:
            await patiently(lambda: self.ledger.drop_caller(sandbox_id, caller))
        except Problem as away:
            # Its lease, its idle timeout and its ttl still end it.
            self._log.error("not stored that its creator has gone", sandbox_id=sandbox_id, detail=away.detail)

    async def _start(self, sandbox: Sandbox) -> None:
        try:
            await self.starter.bring_up(sandbox)
        except Problem as problem:
            self._log.warning("start failed", sandbox_id=sandbox.id, code=problem.code, detail=problem.detail)
            await self.endings.fail_patiently(sandbox.id, problem)
        except Exception:
            self._log.exception("start failed", sandbox_id=sandbox.id)
            detail = f"the start of {sandbox.id} failed in the control plane"
            await self.endings.fail_patiently(sandbox.id, Problem("internal", detail))

    def _overdue(self, sandbox_id: str) -> None:
        self._group.create_task(self._end_overdue(sandbox_id), name=f"overdue {sandbox_id}")

    async def _end_overdue(self, sandbox_id: str, before_ms: int | None = None) -> None:
        try:
            sandbox = await patiently(lambda: self.store.get(sandbox_id))
        except Problem as away:
            self._log.error("deadline not kept", sandbox_id=sandbox_id, detail=away.detail)
            return
        if sandbox is not None and (before_ms is None or sandbox.start_by_ms <= before_ms):
            await self.endings.fail_patiently(sandbox_id, self.starter.overdue(sandbox))

    async def _resolve(self, sandbox: Sandbox) -> None:
        try:
            on_record = await patiently(lambda: self.store.get(sandbox.id))
            if on_record is None:
                on_record = await patiently(lambda: self.ledger.find_claim(sandbox))
            if on_record is not None and on_record.idempotency_key is not None:
                if on_record.state.unready:
                    self.begin(on_record)
                for caller in sandbox.callers:
                    self.drop_caller(on_record, caller)
            elif on_record is not None:
                await self.endings.end(
                    on_record.id, Problem("create_abandoned", "its creator was not told of it"), PLATFORM
                )
        except Problem as away:
            self._log.error("not known whether it was admitted", sandbox_id=sandbox.id, detail=away.detail)

    async def _report(self) -> None:
        await self.quotas.report(self.store.usage)

    def _noted(self, sandbox_id: str, facts: Mapping[str, str]) -> None:
        if "claim" in facts:
            self.ledger.written(sandbox_id)

    async def _watch(self) -> None:
        async for death in self._parts.cluster.watch():
            await self.endings.bury(death.sandbox_id, Problem(death.cause, death.detail))

    async def _follow_placements(self) -> None:
        turns = self.starter.turns
        # Side by side: each is a message to the store, and those of a herd would come one after the other.
        async with asyncio.TaskGroup() as hearing:
            async for placement in self._parts.cluster.placements():
                if placement.sandbox_id in turns:
                    hearing.create_task(turns.placed(placement), name=f"placed {placement.sandbox_id}")

    async def _hand_over(self) -> None:
        self.ledger.leave()
        # A call to the cluster that is under way leaves a whole sandbox, whose push lands elsewhere.
        if unanswered := self.readiness.unanswered:
            await asyncio.wait(unanswered, timeout=CLOSE_WITHIN_S)
        await self.notes.flush()

    # The keeper is made before what rebuilds with it.

    async def _prepare(self, store: Store) -> None:
        await self._upkeep.prepare(store)

    async def _rebuild(self) -> None:
        await self._upkeep.rebuild()

    async def _resume(self, store: Store) -> None:
        await self._upkeep.resume(store)


async def _ended(activities: set[asyncio.Task[Any]], within_s: float) -> set[asyncio.Task[Any]]:
    """Those that have not ended in time."""
    return (await asyncio.wait(activities, timeout=within_s))[1] if activities else set()
