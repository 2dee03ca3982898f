"""Getting a sandbox for an owner: a warm one, bound to him and replaced when it has died; else a cold start."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import structlog

from controlplane.errors import TABLE, Problem
from controlplane.lifecycle.endings import PLATFORM, Endings
from controlplane.lifecycle.keeper import Keeper
from controlplane.lifecycle.ledger import Ledger
from controlplane.lifecycle.notes import Notes
from controlplane.lifecycle.parts import Parts
from controlplane.lifecycle.states import Event, apply
from controlplane.lifecycle.templates import Templates
from controlplane.lifecycle.timeline import noted
from controlplane.model import Limits, Sandbox, dump_record
from controlplane.store import Admission, Admitted, Claim, Fence

# A sidecar answers in milliseconds; the caller waits for a warm one, and there are others.
BIND_WITHIN_S: Final = 3.0
# One that was claimed longer ago may be in use: its owner is told, and nothing is taken from him.
REPLACED_WITHIN_MS: Final = 60_000


class Claims:
    """Admits sandboxes: claims a warm one where a pool has its template, else begins a cold start.

    Args:
        begin: begins the start of an admitted sandbox.
        doubt: told of a wish of which the store did not say what became of it.
    """

    def __init__(
        self,
        parts: Parts,
        store: Keeper,
        ledger: Ledger,
        *,
        endings: Endings,
        notes: Notes,
        begin: Callable[[Sandbox], bool],
        doubt: Callable[[Sandbox], None],
    ) -> None:
        self._parts = parts
        self._store = store
        self._ledger = ledger
        self._endings = endings
        self._notes = notes
        self._begin = begin
        self._doubt = doubt
        self.templates = Templates()
        self._log = structlog.get_logger("claims")

    async def admit(self, wish: Sandbox, limits: Limits, *, cold_reason: str = "") -> Admission | Claim:
        """Asks the store once; a cold start is begun when this returns.

        Args:
            wish: the sandbox that is asked for.
            limits: what it has to keep.
            cold_reason: why no warm one is wanted; empty: one is.

        Raises:
            Problem: the store's.
        """
        if not cold_reason and self.templates.serves(wish.spec):
            claim = await self._claim(wish, limits)
            if claim is not None:
                return claim
        miss = self.templates.miss(wish.spec)
        admission = await self.start(replace(wish, cold_reason=cold_reason or miss.why), limits)
        if isinstance(admission, Admitted):
            self._parts.metrics.created(miss.pool, "dead" if cold_reason else miss.served)
        return admission

    async def start(self, candidate: Sandbox, limits: Limits, fence: Fence | None = None) -> Admission:
        """Admits a sandbox and begins its start.

        Raises:
            Problem: the store's.
        """
        admission = None
        # At once, and not by a step of its own: whoever is admitted waits for his turn.
        candidate = _queued(candidate, self._parts.clock.now_ms())
        # Before the store is asked: one who comes with the same key a moment later waits for the same settlement.
        self._ledger.expect(candidate.id)
        try:
            admission = await self._store.admit(candidate, limits, fence)
        except (Problem, asyncio.CancelledError):
            self._doubt(candidate)
            raise
        finally:
            if not isinstance(admission, Admitted):
                self._ledger.unexpect(candidate.id)
        if isinstance(admission, Admitted):
            self._begin(admission.sandbox)
        return admission

    async def bind(self, sandbox: Sandbox) -> bool:
        """Makes a claimed sandbox its owner's: late-bound settings, and the cluster's word for whose it is.

        Whoever answers a claim does this first, also when it is a repetition: the one before may not have come so far.

        Returns:
            False when it is dead: its key is free then, its place too, and the caller asks for another one.

        Raises:
            Problem: what of the settings cannot be; why the owner has ended it; that it does not answer (claimed
                before: it may only be away).
        """
        try:
            await self._bind(sandbox)
        except Problem as problem:
            if TABLE[problem.code].fault == "caller":
                await self._endings.end(sandbox.id, problem, PLATFORM)
                raise
            return await self._dead(sandbox, problem)
        if self._parts.board.ended(sandbox.id):
            return await self._dead(sandbox, Problem("sandbox_lost", "it died while it was claimed"))
        return True

    async def _claim(self, wish: Sandbox, limits: Limits) -> Claim | None:
        try:
            return await self._ledger.claim(wish, limits)
        except (Problem, asyncio.CancelledError):
            self._doubt(wish)
            raise

    async def _bind(self, sandbox: Sandbox) -> None:
        if self._parts.cluster.annotates_behind:
            # After the answer, which does not wait for it either.
            asyncio.get_running_loop().call_soon(self._note, sandbox)
        else:
            await self._parts.cluster.annotate(sandbox.id, _whose(sandbox))
            self._ledger.written(sandbox.id)
        spec = sandbox.spec
        if not (spec.env or spec.cwd or spec.user):
            return
        try:
            async with asyncio.timeout(BIND_WITHIN_S):
                token = self._parts.key.token(sandbox).text
                await self._parts.sidecars.configure(sandbox.address or "", token, spec)
        except TimeoutError as error:
            detail = f"its sidecar did not answer within {BIND_WITHIN_S:.0f} s"
            raise Problem("sandbox_unreachable", detail, sandbox_id=sandbox.id) from error

    def _note(self, sandbox: Sandbox) -> None:
        if not self._parts.board.ended(sandbox.id):
            self._notes.write(sandbox.id, _whose(sandbox))

    async def _dead(self, sandbox: Sandbox, why: Problem) -> bool:
        now = await self._store.get(sandbox.id)
        if now is not None and now.end is not None and now.end.by == sandbox.owner:
            raise now.end.problem(sandbox.id)
        if self._parts.clock.now_ms() - (sandbox.claimed_at_ms or 0) > REPLACED_WITHIN_MS:
            raise why if now is None or now.end is None else now.end.problem(sandbox.id)
        self._log.warning("claimed and dead", sandbox_id=sandbox.id, code=why.code, detail=why.detail)
        # First: the owner who deletes his key from now on withdraws it, and gets nothing more for it.
        await self._ledger.free_key(sandbox.id)
        detail = f"it did not answer when it was claimed: {why.detail}"
        await self._endings.end(sandbox.id, Problem("sandbox_lost", detail), PLATFORM)
        return False


def _whose(sandbox: Sandbox) -> dict[str, str]:
    """What the cluster is told of a claim."""
    return {"claim": dump_record(sandbox)}


def _queued(candidate: Sandbox, now_ms: int) -> Sandbox:
    applied = apply(candidate, Event.QUEUE)
    return candidate if applied is None else noted(applied[0], now_ms, Event.QUEUE)
