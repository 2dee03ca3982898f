"""Bringing one sandbox up: its turn, the cluster, the push, the configuration. Bounded, with one deadline."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from controlplane.clock import Clock
from controlplane.cluster import Boot
from controlplane.errors import Problem
from controlplane.lifecycle.ledger import Ledger
from controlplane.lifecycle.parts import Parts
from controlplane.lifecycle.readiness import Push, Readiness
from controlplane.lifecycle.states import Change, Event
from controlplane.model import Sandbox, State, dump_record


class Turns:
    """The start queue: so many at once, the others in the order in which they came."""

    def __init__(self, at_once: int) -> None:
        self._free = asyncio.Semaphore(at_once)  # hands its slots out first come, first served
        self.waiting = 0
        self.taken = 0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Waits for a slot and holds it."""
        self.waiting += 1
        try:
            await self._free.acquire()
        finally:
            self.waiting -= 1
        self.taken += 1
        try:
            yield
        finally:
            self.taken -= 1
            self._free.release()


class _Phases:
    """A stopwatch with named laps."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begin_ms = self._lap_ms = clock.now_ms()
        self.timings_ms: dict[str, int] = {}

    def lap(self, phase: str) -> None:
        now_ms = self._clock.now_ms()
        self.timings_ms[phase] = max(0, now_ms - self._lap_ms)
        self._lap_ms = now_ms

    def total(self) -> None:
        self.timings_ms["total"] = max(0, self._clock.now_ms() - self._begin_ms)


class Starter:
    """Runs starts. Owns no task: whoever calls ``bring_up`` does."""

    def __init__(self, parts: Parts, ledger: Ledger, readiness: Readiness, at_once: int) -> None:
        self._cluster = parts.cluster
        self._sidecars = parts.sidecars
        self._ledger = ledger
        self._readiness = readiness
        self._key = parts.key
        self._clock = parts.clock
        self._metrics = parts.metrics
        self.turns = Turns(at_once)

    async def bring_up(self, sandbox: Sandbox) -> None:
        """Takes an admitted sandbox to ``running``.

        Raises:
            Problem: what the cluster, the push or the sidecar said. The caller ends the sandbox with it and stops
                what was begun. So it does when this call is cancelled; it has no deadline of its own.
        """
        phases = _Phases(self._clock)
        await self._ledger.take(sandbox.id, Event.QUEUE)
        async with self.turns.turn():
            phases.lap("queue")
            await self._start(sandbox, phases)

    def overdue(self, sandbox: Sandbox) -> Problem:
        """What a start ends with whose deadline has come: start_queue_timeout or start_timeout."""
        within = f"within its start timeout of {sandbox.spec.start_timeout_ms} ms"
        if sandbox.state in (State.REQUESTED, State.QUEUED):
            ahead = f"{self.turns.taken} starts were in flight, {self.turns.waiting} waited"
            return Problem("start_queue_timeout", f"{sandbox.id} got no turn {within}; {ahead}")
        return Problem("start_timeout", f"{sandbox.id} was not ready {within}")

    async def _start(self, sandbox: Sandbox, phases: _Phases) -> None:
        if await self._ledger.take(sandbox.id, Event.START) is None:
            return  # ended while it waited
        with self._readiness.awaited(sandbox.id) as pushed:
            boot = Boot(self._key.readiness(sandbox).text, self._key.public_text, dump_record(sandbox))
            started = await self._cluster.start(sandbox.id, sandbox.spec, boot)
            phases.lap("start")
            phases.timings_ms.update(started.timings_ms)
            push = await pushed
            phases.lap("ready_push")
            phases.timings_ms["boot"] = push.boot_ms
        if push.failure is not None:
            raise push.failure
        # The cluster's word first: a push comes from inside the sandbox.
        address = started.address or push.address
        if not address:
            raise Problem("internal", f"neither the cluster nor the push of {sandbox.id} says where it is")
        await self._sidecars.configure(address, self._key.token(sandbox).text, sandbox.spec)
        phases.lap("configure")
        await self._settle(sandbox, push, address, phases)

    async def _settle(self, sandbox: Sandbox, push: Push, address: str, phases: _Phases) -> None:
        ready_at_ms = self._clock.now_ms()
        # Before anybody is told: a restart adopts only what it finds marked as ready.
        await self._cluster.annotate(
            sandbox.id, {"ready_at_ms": str(ready_at_ms), "address": address, "kernel": push.kernel}
        )
        phases.total()
        change = Change(ready_at_ms=ready_at_ms, address=address, kernel=push.kernel, timings_ms=phases.timings_ms)
        if await self._ledger.take(sandbox.id, Event.READY, change) is not None:
            for phase, duration_ms in phases.timings_ms.items():
                self._metrics.phase(phase, duration_ms)
