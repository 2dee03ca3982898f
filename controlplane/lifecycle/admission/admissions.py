"""Getting a sandbox for an owner: a warm one, bound to it and replaced when it has died; else a cold start."""

import asyncio
from dataclasses import replace
from typing import Final

import structlog

from controlplane.errors import TABLE, Problem
from controlplane.lifecycle.admission.abandonments import Abandonments
from controlplane.lifecycle.admission.candidates import queued
from controlplane.lifecycle.admission.templates import Templates
from controlplane.lifecycle.dependencies import Dependencies
from controlplane.lifecycle.images import Images
from controlplane.lifecycle.record.annotations import Annotations
from controlplane.lifecycle.record.changes import key_freed
from controlplane.lifecycle.record.ledger import PLATFORM, Ledger
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.lifecycle.record.retry import retried_while_away
from controlplane.lifecycle.record.settlements import Settlements
from controlplane.lifecycle.routes import RouteBoard
from controlplane.lifecycle.starting.starts import Starts
from controlplane.model import Limits, Sandbox, dump_record
from controlplane.store import Admission, Admitted, Claim, Claimed, Fence

# One that was claimed longer ago may be in use: its owner is told, and it is not taken away.
REPLACED_WITHIN_MS: Final = 60_000


class Admissions:
    """Admits sandboxes: claims a warm one where a pool has its template, else begins a cold start."""

    def __init__(
        self,
        deps: Dependencies,
        store: RecoveringStore,
        ledger: Ledger,
        settlements: Settlements,
        *,
        annotations: Annotations,
        board: RouteBoard,
        images: Images,
        templates: Templates,
        starts: Starts,
        abandonments: Abandonments,
        group: asyncio.TaskGroup,
    ) -> None:
        self._deps = deps
        self._store = store
        self._ledger = ledger
        self._settlements = settlements
        self._annotations = annotations
        self._board = board
        self._images = images
        self._starts = starts
        self._abandonments = abandonments
        self._group = group
        self._closed = False
        self._templates = templates
        self._log = structlog.get_logger("admissions")

    def close(self) -> None:
        """Finds out nothing more about calls that the store did not answer: the next start finds what they left."""
        self._closed = True

    async def admit(self, wish: Sandbox, limits: Limits, *, cold_reason: str = "") -> Admission | Claim:
        """Asks the store once; a cold start is begun when this returns.

        Args:
            wish: the sandbox that is asked for.
            limits: what it has to keep.
            cold_reason: why no warm one is wanted; empty: one is.

        Raises:
            Problem: the store's.
        """
        if not cold_reason and self._templates.serves(wish.spec):
            claim = await self._claim(wish, limits)
            if claim is not None:
                return claim
        miss = self._templates.miss(wish.spec)
        admission = await self.start(replace(wish, cold_reason=cold_reason or miss.why), limits)
        if isinstance(admission, Admitted):
            self._deps.metrics.created(miss.pool, "dead" if cold_reason else miss.served)
        return admission

    async def start(self, wish: Sandbox, limits: Limits, fence: Fence | None = None) -> Admission:
        """Admits a sandbox and begins its start.

        Raises:
            Problem: the store's.
        """
        admission = None
        # Not by a step of its own: an admitted sandbox waits for its turn from the beginning.
        wish = queued(wish, self._deps.clock.now_ms())
        # Before the store is asked: a call with the same key a moment later waits for the same settlement.
        self._settlements.expect(wish.id)
        try:
            admission = await self._ledger.admit(wish, limits, fence)
        except (Problem, asyncio.CancelledError):
            self._find_out(wish)
            raise
        finally:
            if not isinstance(admission, Admitted):
                self._settlements.unexpect(wish.id)
        if isinstance(admission, Admitted):
            self._starts.begin(admission.sandbox)
        return admission

    async def bind(self, sandbox: Sandbox) -> bool:
        """Gives a claimed sandbox to its owner: the cluster notes the owner's name.

        Every call that answers a claim does this first, also a repetition: the call before may not have come so far.

        Returns:
            False when it is dead: its key is free then, its place too, and the caller asks for another one.

        Raises:
            Problem: why the owner has ended it; that it cannot be noted (claimed before: it may be in use).
        """
        try:
            if self._deps.cluster.annotates_behind:
                # After the answer, which does not wait for it either.
                asyncio.get_running_loop().call_soon(self._note_owner, sandbox)
            else:
                await self._annotations.write(sandbox.id, _owner_fact(sandbox))
        except Problem as problem:
            return await self._dead(sandbox, problem)
        if self._board.ended(sandbox.id):
            return await self._dead(sandbox, Problem("sandbox_lost", "it died while it was claimed"))
        return True

    async def unbound(self, sandbox: Sandbox, why: Problem) -> None:
        """Decides about a sandbox whose promised settings a gateway could not bind.

        Returns when it is replaceable: it has ended and its key is free, so the create is to be repeated.

        Args:
            sandbox: its record.
            why: the sidecar's refusal of the settings, or that it does not answer.

        Raises:
            Problem: what the create answers: ``why`` with the detail ``ended``, the end that came before, or ``why``
                without the detail where the sandbox lives on, since it may be in use by now.
        """
        refused = sandbox.end is None and TABLE[why.code].fault == "caller"
        if sandbox.warm and not refused:
            await self._dead(sandbox, why)
            return
        if sandbox.end is not None:
            raise sandbox.end.problem(sandbox)
        usable_ms = sandbox.claimed_at_ms or sandbox.ready_at_ms or sandbox.created_at_ms
        if self._deps.clock.now_ms() - usable_ms <= REPLACED_WITHIN_MS:
            await self._ledger.end(sandbox.id, why, PLATFORM)
            why.details["ended"] = "true"
        raise why

    async def _claim(self, wish: Sandbox, limits: Limits) -> Claim | None:
        try:
            claim = await self._ledger.claim(wish, limits)
        except (Problem, asyncio.CancelledError):
            self._find_out(wish)
            raise
        if isinstance(claim, Claimed) and not self._images.agrees(claim.sandbox):
            # Its pool has a newer image than the rest of the group: this one starts with the group's.
            await self._set_aside(claim.sandbox.id, "its image is not the one that its group has")
            return None
        if isinstance(claim, Claimed):
            took_ms = max(0, self._deps.clock.now_ms() - wish.created_at_ms)
            self._deps.metrics.phase("total", took_ms, "warm", claim.sandbox.id)
        return claim

    def _note_owner(self, sandbox: Sandbox) -> None:
        if not self._board.ended(sandbox.id):
            self._annotations.add(sandbox.id, _owner_fact(sandbox))

    async def _dead(self, sandbox: Sandbox, why: Problem) -> bool:
        now = await self._store.get(sandbox.id)
        if now is not None and now.end is not None and now.end.by == sandbox.owner:
            raise now.end.problem(now)
        if self._deps.clock.now_ms() - (sandbox.claimed_at_ms or 0) > REPLACED_WITHIN_MS:
            raise why if now is None or now.end is None else now.end.problem(now)
        self._log.warning("claimed sandbox is dead, replaced", sandbox_id=sandbox.id, code=why.code, detail=why.detail)
        await self._set_aside(sandbox.id, f"it did not answer when it was claimed: {why.detail}")
        return False

    async def _set_aside(self, sandbox_id: str, why: str) -> None:
        """Ends a claimed sandbox that its owner is not given; another one takes its place."""
        # First: an owner that deletes its key from now on withdraws it, and gets nothing more for it.
        await self._ledger.change(sandbox_id, key_freed)
        await self._ledger.end(sandbox_id, Problem("sandbox_lost", why), PLATFORM)

    def _find_out(self, wish: Sandbox) -> None:
        """The store did not say whether it has admitted this one: it is begun or ended as soon as it does."""
        if not self._closed:
            self._group.create_task(self._resolve(wish), name=f"resolve {wish.id}")

    async def _resolve(self, wish: Sandbox) -> None:
        try:
            on_record = await retried_while_away(lambda: self._store.get(wish.id))
            if on_record is None:
                on_record = await retried_while_away(lambda: self._ledger.find_claim(wish))
            if on_record is not None and on_record.idempotency_key is not None:
                if on_record.state.unready:
                    self._ledger.publish(on_record)
                    self._starts.begin(on_record)
                for caller in wish.callers:
                    self._abandonments.drop_caller(on_record, caller)
            elif on_record is not None:
                unanswered = Problem("create_abandoned", "its creator was not told of it")
                await self._ledger.end(on_record.id, unanswered, PLATFORM)
        except Problem as away:
            words = "not known whether the store has admitted a sandbox; if it has, start deadline or ttl ends it"
            self._log.error(words, sandbox_id=wish.id, detail=away.detail)


def _owner_fact(sandbox: Sandbox) -> dict[str, str]:
    """What the cluster keeps of a claim."""
    return {"claim": dump_record(sandbox)}
