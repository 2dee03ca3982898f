"""Completing a start when its push has come: the promised kernel, late-bound settings, and the announcement."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from controlplane.cluster import Started
from controlplane.errors import Problem
from controlplane.lifecycle.keeper import Keeper
from controlplane.lifecycle.ledger import Ledger
from controlplane.lifecycle.notes import Notes
from controlplane.lifecycle.parts import Parts
from controlplane.lifecycle.phases import Phases
from controlplane.lifecycle.states import Change, Event
from controlplane.model import Sandbox, State
from controlplane.telemetry import PushOutcome

Fail = Callable[[str, Problem], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Push:
    """What a sidecar says when it has run a command in its sandbox, or knows that it never will.

    Attributes:
        sandbox_id: whom it speaks for; must be whom its credential speaks for.
        address: where it answers; empty when the cluster knows.
        kernel: as seen in the sandbox.
        boot_ms: how long its own start took, until a command had run.
        failure: why it will never be ready.
    """

    sandbox_id: str
    address: str = ""
    kernel: str = ""
    boot_ms: int = 0
    failure: Problem | None = None


@dataclass(frozen=True, slots=True)
class Begun:
    """A start that this replica has begun.

    Attributes:
        started: the cluster's answer.
    """

    phases: Phases
    started: asyncio.Future[Started]


class Completion:
    """The last step of a start; any replica can do it.

    Args:
        fail: ends a sandbox whose start has failed.
    """

    def __init__(self, parts: Parts, store: Keeper, ledger: Ledger, notes: Notes, fail: Fail) -> None:
        self._parts = parts
        self._store = store
        self._ledger = ledger
        self._notes = notes
        self._fail = fail
        self._log = structlog.get_logger("completion")

    async def run(self, sandbox: Sandbox, push: Push, begun: Begun | None) -> PushOutcome:
        """Takes a sandbox to ``running``, or, for its pool, to ``warm``, or ends it with what is wrong.

        Args:
            sandbox: as it is on record.
            push: what its sidecar says.
            begun: its start, if it was begun here.

        Raises:
            Problem: the store's, or the cause of an end that came first.
        """
        if sandbox.state is not State.STARTING or (begun is None and not push.address):
            raise Problem("upstream_timeout", f"nobody waits for {push.sandbox_id} here yet", retry_after_ms=100)
        phases = begun.phases if begun else Phases(self._parts.clock)
        address = await self._address(sandbox, push, begun)
        if begun is not None:
            phases.lap("ready_push")
        phases.timings_ms["boot"] = push.boot_ms
        try:
            await self._make_usable(sandbox, push, address)
        except Problem as problem:
            await self._fail(sandbox.id, problem)
            return "failure"
        except Exception:
            self._log.exception("start failed", sandbox_id=sandbox.id)
            detail = f"the start of {sandbox.id} failed in the control plane"
            await self._fail(sandbox.id, Problem("internal", detail))
            return "failure"
        phases.lap("configure")
        return await self._announce(sandbox, push, address, phases)

    async def _address(self, sandbox: Sandbox, push: Push, begun: Begun | None) -> str:
        if begun is None:
            return push.address
        if not begun.started.done() and (push.address and self._parts.cluster.annotates_behind):
            return push.address
        # The cluster's word first: a push comes from inside the sandbox.
        address = (await asyncio.shield(begun.started)).address or push.address
        if not address:
            detail = f"neither the cluster nor the push of {sandbox.id} says where it is"
            await self._fail(sandbox.id, Problem("internal", detail))
            raise Problem("internal", detail)
        return address

    async def _make_usable(self, sandbox: Sandbox, push: Push, address: str) -> None:
        self._parts.cluster.vouch(push.kernel)
        spec = sandbox.spec
        if spec.env or spec.cwd or spec.user:
            await self._parts.sidecars.configure(address, self._parts.key.token(sandbox).text, spec)

    async def _announce(self, sandbox: Sandbox, push: Push, address: str, phases: Phases) -> PushOutcome:
        ready_at_ms = self._parts.clock.now_ms()
        facts = {"ready_at_ms": str(ready_at_ms), "address": address, "kernel": push.kernel}
        behind = self._parts.cluster.annotates_behind
        if not behind:
            # Before anybody is told: a restart adopts only what it finds marked as ready.
            await self._parts.cluster.annotate(sandbox.id, facts)
        phases.total(sandbox.created_at_ms)
        timings_ms = {**sandbox.timings_ms, **phases.timings_ms}
        change = Change(ready_at_ms=ready_at_ms, address=address, kernel=push.kernel, timings_ms=timings_ms)
        after = await self._ledger.take(sandbox.id, Event.READY, change, sandbox)
        if after is None:
            return await self._overtaken(sandbox.id)
        if behind:
            self._notes.write(sandbox.id, facts)
        for phase, duration_ms in timings_ms.items():
            self._parts.metrics.phase(phase, duration_ms)
        return "accepted"

    async def _overtaken(self, sandbox_id: str) -> PushOutcome:
        sandbox = await self._store.get(sandbox_id)
        if sandbox is not None and sandbox.end is not None:
            raise sandbox.end.problem(sandbox_id)
        return "duplicate"
