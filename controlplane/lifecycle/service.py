"""``Sandboxes``: what the API asks for, in terms of owners, specs and keys."""

import asyncio
import random
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

from controlplane.cluster import Description, ImageState
from controlplane.errors import Problem
from controlplane.lifecycle.activity import Activity
from controlplane.lifecycle.completion import Push
from controlplane.lifecycle.endings import PLATFORM, Deleted
from controlplane.lifecycle.lives import Lives
from controlplane.lifecycle.owned import LIVE, Owned
from controlplane.lifecycle.parts import Options, Parts
from controlplane.lifecycle.pools import Desk, Pools
from controlplane.lifecycle.preflight import Foresight
from controlplane.lifecycle.queue import Answer
from controlplane.lifecycle.queue.verdict import TOTAL, TOTAL_KNOB
from controlplane.lifecycle.quotas import Quotas, Standing
from controlplane.lifecycle.states import Event
from controlplane.lifecycle.tokens import Token
from controlplane.model import Lease, Limits, Sandbox, SandboxSpec, pool_owner
from controlplane.model.spec import MIN_START_MS
from controlplane.store import Admitted, Claimed, Fence, Full, Known, Withdrawn
from controlplane.telemetry import Levels

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
# Of one owner's creates that wait, in one answer.
MOST_PLACES: Final = 100
# Of one create; the next sandbox is a cold one.
MOST_REPLACED: Final = 4
# For the cluster's confirmation, where the platform stops with all its sandboxes: nothing of them is to be left.
DRAIN_WAIT_S: Final = 60.0
# Of one that nobody claims: a kernel of days ago, an image that has moved on.
WARM_TTL_MS: Final = 24 * 3_600_000


def new_id() -> str:
    """A sandbox's id: a DNS label of 80 random bits, never used again."""
    return "sb-" + "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in secrets.token_bytes(16))


@dataclass(frozen=True, slots=True)
class Created:
    """A ready sandbox; ``replayed`` when its key had been used before with the same parameters."""

    sandbox: Sandbox
    replayed: bool


class Sandboxes(Owned):
    """The lifecycle service. Use ``async with Sandboxes.running(...)``: what it starts ends with the block."""

    def __init__(self, parts: Parts, options: Options, lives: Lives) -> None:
        super().__init__(parts, lives)
        self._options = options
        self._draining = False
        self._pools = Pools(
            parts.documents,
            lives.store,
            parts.clock,
            hands=self,
            templates=lives.claims.templates,
            replica=parts.store.replica,
        )
        lives.ledger.listen(self._pools.hear)
        self.pools = Desk(parts.documents, parts.cluster, options.max_sandboxes, self._pools.status)

    @classmethod
    @asynccontextmanager
    async def running(cls, parts: Parts, options: Options) -> AsyncIterator["Sandboxes"]:
        """A service that has adopted what ran before it, with its loops running; they end with the block.

        Sandboxes that run at the end of the block run on; call ``drain`` before, to delete them.

        Raises:
            Problem: the cluster cannot be listed (in a group, as everything that fails while the block runs).
        """
        async with asyncio.TaskGroup() as group:
            lives = Lives(parts, options, group)
            await lives.open()
            service = cls(parts, options, lives)
            filling = group.create_task(service._pools.run(), name="pools")
            try:
                yield service
            finally:
                service._draining = True
                await service._pools.leave()
                filling.cancel()
                await lives.close()

    @property
    def description(self) -> Description:
        """What runs the sandboxes."""
        return self._parts.cluster.describe()

    async def levels(self) -> Levels:
        """What is true at this moment, for the metrics; no counts while the store does not answer."""
        try:
            states = await self._lives.store.counts()
        except Problem:
            states = {}
        turns = self._lives.starter.turns
        feeds, behind = self._parts.board.subscribers, self._lives.notes.behind
        pools, waiting = self._pools.levels(), len(self._lives.room)
        unstopped, unplaced = self._lives.endings.reclaimer.unstopped, len(turns.refused)
        return Levels(states, turns.taken, turns.waiting, feeds, behind, pools, waiting, unstopped, unplaced)

    @property
    def draining(self) -> bool:
        """Whether new creates are refused because the end is near."""
        return self._draining

    def deadline_ms(self, spec: SandboxSpec, left_ms: int | None = None) -> int:
        """Until when a create that comes now may take (Unix ms): what is ``left_ms`` of its start timeout, else all."""
        start_ms = spec.start_timeout_ms
        return self._parts.clock.now_ms() + (start_ms if left_ms is None else min(left_ms, start_ms))

    async def create(self, owner: str, spec: SandboxSpec, key: str | None = None) -> Created:
        """Creates a sandbox and returns when it is ready.

        A repeated ``key`` with the same spec waits for and answers the same sandbox. A cancelled call does not stop
        the start: the owner may come back for it with its key, or ``abandon`` it.

        Raises:
            Problem: draining, unsupported, conflict, deleted (the key was withdrawn), capacity_unavailable, or why
                the sandbox ended before it was ready.
        """
        return await self.create_for(owner, spec, key, by_ms=self.deadline_ms(spec), caller="", begun=[])

    async def create_for(
        self, owner: str, spec: SandboxSpec, key: str | None, *, by_ms: int | None, caller: str, begun: list[Sandbox]
    ) -> Created:
        """As ``create``, for a caller that may go away: what was begun for it is then given to ``abandon``.

        Args:
            owner: as for ``create``.
            spec: as for ``create``.
            key: as for ``create``.
            by_ms: as for ``request``.
            caller: this try of a create with a key (``callers.new_caller``).
            begun: gets the sandbox as soon as there is one, and another one in its place.
        """
        sandbox, replayed = await self.request(owner, spec, key, by_ms, caller=caller)
        begun.append(sandbox)
        try:
            begun.append(await self.ready(sandbox, by_ms, fresh=not replayed, lease=spec.lease))
        except Problem as problem:
            # Neither its end, nor sent to another replica: perhaps nobody comes back for it.
            if "ended_at_ms" not in problem.details and problem.code != "draining":
                self.abandon(sandbox, caller)
            raise
        return Created(begun[-1], replayed)

    async def request(
        self, owner: str, spec: SandboxSpec, key: str | None = None, by_ms: int | None = None, *, caller: str = ""
    ) -> tuple[Sandbox, bool]:
        """Claims a warm sandbox, or admits one and begins its start; it is usable once ``ready`` has returned it.

        Args:
            owner: whose it will be.
            spec: what it is to be.
            key: the idempotency key.
            by_ms: the caller's deadline for all that it waits for (Unix ms), where less is left than the spec says.
            caller: as for ``create_for``.

        Returns:
            The record, and whether the key had been used before.
        """
        if self._draining:
            raise Problem("draining", "this control plane is stopping", retry_after_ms=1000)
        self._parts.cluster.check(spec)
        wish = self._candidate(owner, spec, key, by_ms)
        return await self._admitted(replace(wish, callers=(caller,)) if caller and key is not None else wish)

    async def start_warm(self, pool: str, spec: SandboxSpec, fence: Fence | None = None, *, spare: int = 0) -> Sandbox:
        """Begins the start of a sandbox that belongs to a pool until it is claimed; does not wait until it is ready.

        Args:
            pool: its name.
            spec: its template, and how long its start may take.
            fence: the lease that the caller acts under.
            spare: so many places of the installation are left to creates.

        Raises:
            Problem: draining, unsupported, capacity_unavailable (the installation is full), the store's; FencedError.
        """
        if self._draining:
            raise Problem("draining", "this control plane is stopping", retry_after_ms=1000)
        self._parts.cluster.check(spec)
        wish = self._candidate(pool_owner(pool), spec, None)
        # Not the platform's idle timeout: nobody uses it, and that is what it is there for.
        # What is started together must not end together.
        ttl_ms = round(WARM_TTL_MS * random.uniform(0.8, 1.2))  # noqa: S311
        wish = replace(wish, spec=spec, pool=pool, expires_at_ms=wish.created_at_ms + ttl_ms)
        limits = self._lives.quotas.limits(wish.owner)
        left = replace(limits, total=max(1, limits.total - spare)) if limits.total else limits
        admission = await self._lives.claims.start(wish, left, fence)
        if isinstance(admission, Full) and spare:
            detail = f"{admission.used} of {limits.total} sandboxes are in use, and {spare} places are left to creates"
            raise Problem("capacity_unavailable", f"{detail} that found none", knob=TOTAL_KNOB)
        return admission.sandbox if isinstance(admission, Admitted) else _known(admission, wish)

    async def retire_warm(self, sandbox_id: str, by: str, why: str) -> bool:
        """Ends a sandbox of a pool, unless it was claimed; whether it did. Does not wait for the cluster."""
        return await self._lives.endings.end(sandbox_id, Problem("deleted", why), by, Event.RETIRE)

    def starts_at_once(self) -> int:
        """How many starts the nodes and the start queue bear at one time."""
        return min(self._options.starts_in_flight, self._parts.cluster.starts_at_once())

    async def ready(
        self, sandbox: Sandbox, by_ms: int | None = None, *, fresh: bool = False, lease: Lease | None = None
    ) -> Sandbox:
        """Waits until the sandbox is usable; its record. A claimed one that has died meanwhile is replaced.

        Args:
            sandbox: as ``request`` has returned it.
            by_ms: as for ``request``: one that takes the place of a dead one has what is left.
            fresh: its key had not been used before: it is counted as given.
            lease: whose it is from now on: a client that comes back after a restart is another one.

        Raises:
            Problem: why it ended; draining: it gets ready elsewhere, ask there with its key. Without a key it is ended.
        """
        replaced = 0
        try:
            while sandbox.warm and sandbox.end is None and not await self._lives.claims.bind(sandbox):
                replaced += 1
                reason = "" if replaced < MOST_REPLACED else f"{replaced} warm ones were dead when they were claimed"
                again = self._candidate(sandbox.owner, sandbox.spec, sandbox.idempotency_key, by_ms)
                again = replace(again, fingerprint=sandbox.fingerprint, callers=sandbox.callers)
                sandbox, known = await self._admitted(again, reason)
                fresh = fresh and not known
            if fresh and sandbox.warm:
                self._parts.metrics.created(sandbox.pool, "warm")
                # As the store has given it a moment ago, and no end was heard of since.
                return sandbox
            return await self._leased(await self._settled(sandbox), lease)
        except asyncio.CancelledError:
            if replaced and sandbox.idempotency_key is None:
                self._lives.disown(sandbox)
            raise

    async def _admitted(self, wish: Sandbox, cold_reason: str = "") -> tuple[Sandbox, bool]:
        async def attempt(limits: Limits) -> Answer:
            # It may have waited: its life begins when it is let in.
            now = replace(wish, expires_at_ms=self._parts.clock.now_ms() + wish.spec.ttl_ms)
            answer = await self._lives.claims.admit(now, limits, cold_reason=cold_reason)
            while isinstance(answer, Full) and answer.resource == TOTAL and await self._pools.give_way():
                answer = await self._lives.claims.admit(now, limits, cold_reason=cold_reason)
            return answer

        while True:
            answer = await self._lives.room.enter(wish, attempt)
            if isinstance(answer, Admitted | Claimed):
                return answer.sandbox, False
            if (known := await self._joined(_known(answer, wish), wish)) is not None:
                return known, True

    async def _joined(self, known: Sandbox, wish: Sandbox) -> Sandbox | None:
        """The sandbox that has the wish's key, wanted by its caller too; None: its abandonment has freed the key."""
        if not wish.callers or known.end is not None:
            return known
        joined = await self._lives.ledger.add_caller(known.id, wish.callers[0])
        if joined is None or (joined.end is not None and joined.end.cause == "create_abandoned"):
            return None
        return _known(Known(joined), wish)

    async def _leased(self, sandbox: Sandbox, lease: Lease | None) -> Sandbox:
        # Not before it is given: a caller that goes away during the start must not have taken it from another one.
        if lease is None or sandbox.spec.lease in (None, lease):
            return sandbox
        return await self.give_lease(sandbox.owner, sandbox.id, lease)

    @property
    def quotas(self) -> Quotas:
        """What owners may use."""
        return self._lives.quotas

    async def standing(self, owner: str) -> Standing:
        """What an owner may use and uses, and which of his creates wait at this replica."""
        room, quotas, store = self._lives.room, self._lives.quotas, self._lives.store
        places = room.waiting(owner)
        first = [(one, room.wait_ms(owner, position)) for position, one in enumerate(places[:MOST_PLACES], start=1)]
        used, in_all = await store.usage(owner), await store.usage(None)
        total = quotas.limits(owner).total
        unplaced = self._lives.starter.unplaced(owner)
        return Standing(owner, quotas.of(owner), used, total, in_all.sandboxes, len(places), first, unplaced)

    def refusal(self, sandbox: Sandbox) -> Problem | None:
        """Why no node takes a sandbox that is being started, at whichever replica; see ``Starter.refusal``."""
        return self._lives.starter.refusal(sandbox)

    async def foresee(self, owner: str, spec: SandboxSpec, count: int) -> tuple[Foresight, ImageState]:
        """What becomes of a run; see ``Surveyor.foresee``."""
        return await self._lives.surveyor.foresee(owner, spec, count)

    async def _settled(self, sandbox: Sandbox) -> Sandbox:
        try:
            settled = await self._lives.ledger.settled(sandbox)
        except Problem as problem:
            if problem.code == "draining" and sandbox.idempotency_key is None:
                # Not behind: this control plane is leaving.
                gone = Problem("create_abandoned", "it has no key by which its creator could ask another replica")
                await self._lives.endings.end(sandbox.id, gone, PLATFORM)
            if problem.code == "sandbox_not_found":
                detail = f"{sandbox.id} was forgotten with the store before it was ready: ask again with its key"
                raise Problem("upstream_timeout", detail, retry_after_ms=200) from problem
            raise
        if settled.end is not None:
            raise settled.end.problem(settled.id)
        return settled

    def abandon(self, sandbox: Sandbox, caller: str = "") -> None:
        """Notes, in the background, that the creator of a sandbox went away before it was given the sandbox.

        Without a key to come back with it ends now; else a while later, if nobody else wants it and nobody comes back.
        """
        if sandbox.idempotency_key is None:
            self._lives.disown(sandbox)
        else:
            self._lives.drop_caller(sandbox, caller)

    async def delete(self, owner: str, sandbox_id: str, *, wait_s: float = 0.0) -> Sandbox:
        """Ends a sandbox. Legal in every state; repeating is success.

        The end is on record, its quota free and the gateways told when this returns.

        Args:
            owner: whose it is.
            sandbox_id: which one.
            wait_s: how long to wait for the cluster's word that nothing of it runs any more; 0: it is not waited for.

        Raises:
            Problem: sandbox_not_found; upstream_timeout, not confirmed within ``wait_s`` (safe to repeat).
        """
        sandbox = await self.get(owner, sandbox_id)
        await self._lives.endings.end(sandbox_id, _by_owner(), owner, known=sandbox)
        confirmed = await self._lives.endings.confirmed(sandbox, wait_s) if wait_s else None
        return confirmed or await self.get(owner, sandbox_id)

    async def delete_all(self, owner: str, labels: Mapping[str, str], *, wait_s: float = 0.0) -> Deleted:
        """Deletes all the owner's sandboxes with all these labels, together; ``wait_s`` as in ``delete``."""
        found = await self._lives.store.find(owner, labels, LIVE)
        return await self._lives.endings.end_all(found, _by_owner(), owner, wait_s=wait_s)

    async def withdraw(self, owner: str, key: str, call_id: str) -> Deleted:
        """Takes back what the creates of one call asked for; those of other calls with the key are left alone.

        Ends the sandbox if no other call wants it. If none has the key, no create of this call may take it any more.
        """
        sandbox = await self._lives.store.withdraw(owner, key, call_id)
        if sandbox is not None:
            sandbox = await self._lives.ledger.drop_call(sandbox.id, call_id)
        if sandbox is None or sandbox.end is not None or sandbox.abandoned_at_ms is None:
            return Deleted((), {})
        cancelled = Problem("create_abandoned", "the create that asked for it was cancelled, and no other one wants it")
        # Another create may have asked for the key meanwhile.
        ended = await self._lives.endings.end(sandbox.id, cancelled, owner, known=sandbox, once=True)
        return Deleted([sandbox.id] if ended else (), {})

    async def delete_key(self, owner: str, key: str, *, wait_s: float = 0.0) -> Deleted:
        """Deletes the sandbox that took ``key``; if none has, no create may take it for 24 h if the store lasts."""
        sandbox = await self._lives.store.withdraw(owner, key)
        found = [] if sandbox is None else [sandbox]
        return await self._lives.endings.end_all(found, _by_owner(), owner, wait_s=wait_s)

    @property
    def activity(self) -> Activity:
        """What is in use, for the gateways' reports."""
        return self._lives.endings.care.activity

    def mint(self, sandbox: Sandbox) -> Token:
        """A token for this sandbox."""
        return self._parts.key.token(sandbox)

    async def accept_push(self, credential: str, push: Push) -> None:
        """Takes a readiness push; see ``Readiness.accept``."""
        await self._lives.readiness.accept(credential, push)

    async def drain(self, *, delete: bool) -> Deleted:
        """Takes no new creates; with ``delete``, ends every sandbox and waits while the cluster gets on with it.

        Without, and with other replicas about, who waits for a start is sent to them: the sandbox gets ready there.
        """
        self._draining = True
        self._lives.room.leave()
        await self._pools.leave()
        if self._lives.store.shared and not delete:
            self._lives.ledger.leave()
        ids: list[str] = []
        left = Deleted((), {})
        while delete:
            everything = await self._lives.store.find(None, {}, LIVE)
            left = await self._lives.endings.end_all(
                everything, Problem("stopped_by_operator", "the platform was stopped"), "operator", wait_s=DRAIN_WAIT_S
            )
            ids.extend(left.ids)
            delete = bool(left.failed and left.ids)
        return Deleted(ids, left.failed)

    def _candidate(self, owner: str, spec: SandboxSpec, key: str | None, by_ms: int | None = None) -> Sandbox:
        now_ms = self._parts.clock.now_ms()
        left_ms = spec.start_timeout_ms if by_ms is None else min(by_ms - now_ms, spec.start_timeout_ms)
        if left_ms <= 0:
            raise Problem("start_timeout", f"nothing was ready within the start timeout of {spec.start_timeout_ms} ms")
        return Sandbox(
            id=new_id(),
            owner=owner,
            # On record is what it was promised, whatever the default becomes; the fingerprint is of what was asked for.
            spec=self._promised(spec, max(MIN_START_MS, left_ms)),
            created_at_ms=now_ms,
            expires_at_ms=now_ms + spec.ttl_ms,
            fingerprint=spec.fingerprint(),
            idempotency_key=key,
        )

    def _promised(self, spec: SandboxSpec, left_ms: int) -> SandboxSpec:
        promised: dict[str, int] = {}
        if spec.idle_timeout_ms is None and self._options.idle_timeout_ms:
            promised["idle_timeout_ms"] = self._options.idle_timeout_ms
        if left_ms != spec.start_timeout_ms:
            promised["start_timeout_ms"] = left_ms
        return spec.model_copy(update=promised) if promised else spec


def _by_owner() -> Problem:
    return Problem("deleted", "it was deleted by its owner")


def _known(admission: Known | Withdrawn | Full, candidate: Sandbox) -> Sandbox:
    """The sandbox that took the candidate's key with the same parameters, or why there is none."""
    key = candidate.idempotency_key
    if isinstance(admission, Withdrawn):
        raise Problem("deleted", f"key {key} was deleted before its create arrived", idempotency_key=key)
    if isinstance(admission, Full):
        used, limit = admission.used, admission.limit
        detail = f"{used} of at most {limit} sandboxes are in use here ({TOTAL_KNOB})"
        raise Problem("capacity_unavailable", detail, retry_after_ms=1000, used=used, limit=limit, knob=TOTAL_KNOB)
    if admission.sandbox.fingerprint != candidate.fingerprint:
        detail = f"key {key} was used with other parameters for {admission.sandbox.id}"
        raise Problem("conflict", detail, idempotency_key=key, sandbox_id=admission.sandbox.id)
    # A store that was lost has forgotten the environment; of the same fingerprint it is the same.
    spec = admission.sandbox.spec.model_copy(update={"env": candidate.spec.env})
    return replace(admission.sandbox, spec=spec)
