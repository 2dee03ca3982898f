"""``Sandboxes``: what the API asks for, in terms of owners, specs and keys. Everything it starts, it owns."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import structlog

from controlplane.clock import Clock
from controlplane.cluster import Cluster, Description, Sidecars
from controlplane.errors import Code, Problem
from controlplane.lifecycle.ledger import Ledger
from controlplane.lifecycle.readiness import Push, Readiness
from controlplane.lifecycle.reaper import Reaper
from controlplane.lifecycle.rebuild import Rebuilder
from controlplane.lifecycle.reclaim import Reclaimer
from controlplane.lifecycle.routes import RouteBoard
from controlplane.lifecycle.starts import Starter
from controlplane.lifecycle.tokens import SigningKey, Token
from controlplane.model import EndCause, Sandbox, SandboxSpec, State
from controlplane.store import Admitted, Full, Store, Withdrawn
from controlplane.telemetry import Metrics

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
LIVE: Final = frozenset(State) - {State.ENDED}


def new_id() -> str:
    """A sandbox's id: a DNS label of 80 random bits, never used again."""
    return "sb-" + "".join(secrets.choice(_ALPHABET) for _ in range(16))


@dataclass(frozen=True, slots=True)
class Options:
    """Bounds: how many starts at once, how many sandboxes in all (0 = no limit)."""

    starts_in_flight: int = 4
    max_sandboxes: int = 0


@dataclass(frozen=True, slots=True)
class Created:
    """A ready sandbox; ``replayed`` when its key had been used before with the same parameters."""

    sandbox: Sandbox
    replayed: bool


@dataclass(frozen=True, slots=True)
class Deleted:
    """What a delete of many came to: ids, and who could not be confirmed and why."""

    ids: Sequence[str]
    failed: Mapping[str, Problem]


@dataclass(frozen=True, slots=True)
class Parts:
    """What the service is put together from."""

    store: Store
    cluster: Cluster
    sidecars: Sidecars
    key: SigningKey
    clock: Clock
    metrics: Metrics
    board: RouteBoard


class Sandboxes:
    """The lifecycle service. Use ``async with Sandboxes.running(...)``: it owns its loops, starts and reclamations."""

    def __init__(self, parts: Parts, options: Options, group: asyncio.TaskGroup) -> None:
        self._parts = parts
        self._options = options
        self._group = group
        self._ledger = Ledger(parts.store, parts.board, parts.metrics)
        self._readiness = Readiness(parts.key, parts.store)
        self._reaper = Reaper(parts.clock)
        self._reclaimer = Reclaimer(parts.cluster, self._ledger, group)
        self._starter = Starter(
            cluster=parts.cluster,
            sidecars=parts.sidecars,
            ledger=self._ledger,
            readiness=self._readiness,
            key=parts.key,
            clock=parts.clock,
            metrics=parts.metrics,
            at_once=options.starts_in_flight,
        )
        self._starts: dict[str, asyncio.Task[None]] = {}
        self._draining = False
        self._log = structlog.get_logger("sandboxes")

    @classmethod
    @asynccontextmanager
    async def running(cls, parts: Parts, options: Options) -> AsyncIterator["Sandboxes"]:
        """A service that has adopted what ran before it, with its loops running; they end with the block.

        Sandboxes that run at the end of the block run on; call ``drain`` before, to delete them.
        """
        async with asyncio.TaskGroup() as group:
            service = cls(parts, options, group)
            await service._rebuild()
            loops = [group.create_task(service._reap()), group.create_task(service._watch())]
            try:
                yield service
            finally:
                service._draining = True
                for owned in (*loops, *service._starts.values()):
                    owned.cancel()
                await service._reclaimer.close()

    @property
    def description(self) -> Description:
        """What runs the sandboxes."""
        return self._parts.cluster.describe()

    @property
    def starts(self) -> tuple[int, int]:
        """Starts in flight, starts queued."""
        return self._starter.turns.taken, self._starter.turns.waiting

    @property
    def draining(self) -> bool:
        """Whether new creates are refused because the end is near."""
        return self._draining

    async def create(self, owner: str, spec: SandboxSpec, key: str | None = None) -> Created:
        """Creates a sandbox and returns when it is ready.

        A repeated ``key`` with the same spec waits for and answers the same sandbox. A cancelled call does not stop
        the start: the owner may come back for it with its key, or ``abandon`` it.

        Raises:
            Problem: draining, unsupported, conflict, deleted (the key was withdrawn), capacity_unavailable, or why
                the sandbox ended before it was ready.
        """
        sandbox, replayed = await self.request(owner, spec, key)
        return Created(await self.ready(sandbox), replayed)

    async def request(self, owner: str, spec: SandboxSpec, key: str | None = None) -> tuple[Sandbox, bool]:
        """Admits a sandbox and begins its start; the record, and whether the key had been used before."""
        if self._draining:
            raise Problem("draining", "this control plane is stopping", retry_after_ms=1000)
        self._parts.cluster.check(spec)
        candidate = self._candidate(owner, spec, key)
        self._ledger.expect(candidate.id)
        admission = await self._parts.store.admit(candidate, self._options.max_sandboxes)
        if isinstance(admission, Admitted):
            self._begin(admission.sandbox)
            return admission.sandbox, False
        self._ledger.unexpect(candidate.id)
        if isinstance(admission, Withdrawn):
            raise Problem("deleted", f"key {key} was deleted before its create arrived", idempotency_key=key)
        if isinstance(admission, Full):
            raise _full(admission)
        if admission.sandbox.fingerprint != candidate.fingerprint:
            detail = f"key {key} was used with other parameters for {admission.sandbox.id}"
            raise Problem("conflict", detail, idempotency_key=key, sandbox_id=admission.sandbox.id)
        return admission.sandbox, True

    async def ready(self, sandbox: Sandbox) -> Sandbox:
        """Waits until the start has settled; the record of the running sandbox.

        Raises:
            Problem: why it ended.
        """
        settled = await self._ledger.settled(sandbox)
        if settled.end is not None:
            raise settled.end.problem(settled.id)
        return settled

    async def abandon(self, sandbox: Sandbox) -> None:
        """Ends a sandbox whose creator has gone away without a key to come back with."""
        await self._end(sandbox.id, "deleted", "its creator went away before it was ready", "control plane")

    async def get(self, owner: str, sandbox_id: str) -> Sandbox:
        """The record, also of an ended sandbox.

        Raises:
            Problem: sandbox_not_found, also when it belongs to another owner.
        """
        sandbox = await self._parts.store.get(sandbox_id)
        if sandbox is None or sandbox.owner != owner:
            raise Problem("sandbox_not_found", f"there is no sandbox {sandbox_id}", sandbox_id=sandbox_id)
        return sandbox

    async def find(
        self, owner: str, labels: Mapping[str, str], states: Collection[State] | None = LIVE
    ) -> Sequence[Sandbox]:
        """The owner's sandboxes with all these labels in one of these states (None: any), oldest first."""
        return await self._parts.store.find(owner, labels, states)

    async def delete(self, owner: str, sandbox_id: str) -> Sandbox:
        """Ends a sandbox and returns when the cluster has confirmed it. Legal in every state; repeating is success.

        Quota is free and the gateways know before this waits for the cluster.

        Raises:
            Problem: sandbox_not_found, upstream_timeout (not confirmed yet; safe to repeat).
        """
        sandbox = await self.get(owner, sandbox_id)
        await self._end(sandbox_id, "deleted", "it was deleted by its owner", owner)
        await self._reclaimer.confirmed(sandbox)
        return await self.get(owner, sandbox_id)

    async def delete_all(self, owner: str, labels: Mapping[str, str]) -> Deleted:
        """Deletes all the owner's sandboxes with all these labels, together."""
        found = await self._parts.store.find(owner, labels, LIVE)
        return await self._delete(found, "it was deleted by its owner", owner)

    async def delete_key(self, owner: str, key: str) -> Deleted:
        """Deletes the sandbox that took ``key``; if none has, no create may take it any more (for 24 h)."""
        sandbox = await self._parts.store.withdraw(owner, key)
        return await self._delete([] if sandbox is None else [sandbox], "it was deleted by its owner", owner)

    async def extend(self, owner: str, sandbox_id: str, ttl_ms: int) -> Sandbox:
        """Lets a sandbox live at least ``ttl_ms`` from now.

        Raises:
            Problem: sandbox_not_found, or why it has ended.
        """
        await self.alive(owner, sandbox_id)
        sandbox = await self._ledger.extend(sandbox_id, self._parts.clock.now_ms() + ttl_ms)
        if sandbox is None or sandbox.end is not None:
            return await self.alive(owner, sandbox_id)
        self._reaper.watch(sandbox_id, sandbox.expires_at_ms)
        await self._parts.cluster.annotate(sandbox_id, {"expires_at_ms": str(sandbox.expires_at_ms)})
        return sandbox

    async def alive(self, owner: str, sandbox_id: str) -> Sandbox:
        """The record of a sandbox that has not ended.

        Raises:
            Problem: sandbox_not_found, or why it has ended.
        """
        sandbox = await self.get(owner, sandbox_id)
        if sandbox.end is not None:
            raise sandbox.end.problem(sandbox_id)
        return sandbox

    def mint(self, sandbox: Sandbox) -> Token:
        """A token for this sandbox."""
        return self._parts.key.token(sandbox)

    async def accept_push(self, credential: str, push: Push) -> None:
        """Takes a readiness push; see ``Readiness.accept``."""
        await self._readiness.accept(credential, push)

    async def drain(self, *, delete: bool) -> Deleted:
        """Takes no new creates; with ``delete``, ends every sandbox and waits for the cluster."""
        self._draining = True
        if not delete:
            return Deleted((), {})
        everything = await self._parts.store.find(None, {}, LIVE)
        return await self._delete(everything, "the platform was stopped", "operator")

    def _candidate(self, owner: str, spec: SandboxSpec, key: str | None) -> Sandbox:
        now_ms = self._parts.clock.now_ms()
        return Sandbox(
            id=new_id(),
            owner=owner,
            spec=spec,
            created_at_ms=now_ms,
            expires_at_ms=now_ms + spec.ttl_ms,
            fingerprint=spec.fingerprint(),
            idempotency_key=key,
        )

    def _begin(self, sandbox: Sandbox) -> None:
        self._reaper.watch(sandbox.id, sandbox.expires_at_ms)
        start = self._group.create_task(self._start(sandbox), name=f"start {sandbox.id}")
        self._starts[sandbox.id] = start
        start.add_done_callback(lambda _: self._starts.pop(sandbox.id, None))

    async def _start(self, sandbox: Sandbox) -> None:
        try:
            await self._starter.bring_up(sandbox)
        except Problem as problem:
            self._log.warning("start failed", sandbox_id=sandbox.id, code=problem.code, detail=problem.detail)
            await self._end(sandbox.id, problem.code, problem.detail, "control plane")
        except Exception:
            self._log.exception("start failed", sandbox_id=sandbox.id)
            detail = f"the start of {sandbox.id} failed in the control plane"
            await self._end(sandbox.id, "internal", detail, "control plane")

    async def _end(self, sandbox_id: str, cause: Code, detail: str, by: str) -> None:
        end = EndCause(cause, detail, self._parts.clock.now_ms(), by)
        sandbox = await self._ledger.end(sandbox_id, end)
        if sandbox is None:
            return
        self._reaper.forget(sandbox_id)
        start = self._starts.get(sandbox_id)
        start = None if start is asyncio.current_task() else start
        if sandbox.state is State.ENDING:
            self._reclaimer.begin(sandbox_id, start)
        elif start is not None:
            start.cancel()

    async def _delete(self, sandboxes: Sequence[Sandbox], detail: str, by: str) -> Deleted:
        # All ends first: quota and routes of the last one do not wait for the cluster to take the first one off.
        for sandbox in sandboxes:
            await self._end(sandbox.id, "deleted", detail, by)
        confirmations = await asyncio.gather(
            *(self._reclaimer.confirmed(sandbox) for sandbox in sandboxes), return_exceptions=True
        )
        failed: dict[str, Problem] = {}
        for sandbox, confirmation in zip(sandboxes, confirmations, strict=True):
            if isinstance(confirmation, Problem):
                failed[sandbox.id] = confirmation
            elif confirmation is not None:
                raise confirmation
        return Deleted([sandbox.id for sandbox in sandboxes if sandbox.id not in failed], failed)

    async def _rebuild(self) -> None:
        parts = self._parts
        found = await Rebuilder(parts.cluster, parts.sidecars, self._ledger, parts.key, parts.clock).run()
        for sandbox in found.adopted:
            self._reaper.watch(sandbox.id, sandbox.expires_at_ms)
        for sandbox_id in (*(dead.id for dead in found.dead), *found.removed):
            self._reclaimer.begin(sandbox_id)
        if found != type(found)((), (), ()):
            self._log.info("rebuilt", adopted=len(found.adopted), dead=len(found.dead), removed=len(found.removed))

    async def _reap(self) -> None:
        await self._reaper.run(self._expire)

    async def _expire(self, sandbox_id: str) -> None:
        await self._end(sandbox_id, "ttl_expired", "its ttl has passed", "reaper")

    async def _watch(self) -> None:
        async for death in self._parts.cluster.watch():
            await self._end(death.sandbox_id, death.cause, death.detail, self._parts.cluster.describe().backend)


def _full(full: Full) -> Problem:
    knob = "ROLLBOX_CONTROLPLANE_MAX_SANDBOXES"
    detail = f"{full.used} of at most {full.limit} sandboxes are in use here ({knob})"
    return Problem("capacity_unavailable", detail, retry_after_ms=1000, used=full.used, limit=full.limit, knob=knob)
