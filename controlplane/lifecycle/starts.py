"""Bringing one sandbox up: its turn, the cluster, and then the push, wherever it lands. Bounded, with one deadline."""

import asyncio
from collections.abc import Sequence
from typing import Final

from controlplane.cluster import Boot
from controlplane.errors import Problem
from controlplane.lifecycle.keeper import Keeper
from controlplane.lifecycle.ledger import Ledger
from controlplane.lifecycle.parts import Parts
from controlplane.lifecycle.patience import patiently
from controlplane.lifecycle.phases import Phases
from controlplane.lifecycle.readiness import Readiness
from controlplane.lifecycle.states import Change, Event
from controlplane.lifecycle.turns import Turns
from controlplane.model import Sandbox, State, dump_record

# What the one that asks the cluster knows, and whoever takes the push may not.
_OURS: Final = ("pull", "start")


class Starter:
    """Runs starts. Owns no task: whoever calls ``bring_up`` does."""

    def __init__(self, parts: Parts, store: Keeper, ledger: Ledger, readiness: Readiness, at_once: int) -> None:
        self._cluster = parts.cluster
        self._ledger = ledger
        self._readiness = readiness
        self._key = parts.key
        self._clock = parts.clock
        self._metrics = parts.metrics
        self.turns = Turns(store, parts.cluster, at_once)

    async def bring_up(self, sandbox: Sandbox) -> None:
        """Takes an admitted sandbox to ``running``; returns when its start is over, for better or worse.

        One that another replica has begun to start and left is taken on: the cluster is asked again, which is safe.

        Raises:
            Problem: what the cluster said. The caller ends the sandbox with it and stops what was begun. So it does
                when this call is cancelled; it has no deadline of its own.
        """
        phases = Phases(self._clock)
        if sandbox.state is State.REQUESTED:
            queued = await patiently(lambda: self._ledger.take(sandbox.id, Event.QUEUE, known=sandbox))
            if queued is None:
                return
            sandbox = queued
        async with self.turns.turn(sandbox) as avoid:
            phases.lap("queue")
            if sandbox.state is State.QUEUED and self._clock.now_ms() >= sandbox.begin_by_ms:
                # The queue has had its time: the cluster is not asked with none left, and then blamed.
                raise self.overdue(sandbox)
            await self._start(sandbox, phases, avoid)

    def unplaced(self, owner: str) -> Sequence[tuple[Sandbox, Problem]]:
        """The owner's starts of this replica that no node takes, and why, oldest first."""
        found = ((self._ledger.held(one.sandbox_id), one.owner) for one in self.turns.refused)
        waiting = [sandbox for sandbox, whose in found if sandbox is not None and whose == owner]
        return [(one, why) for one in waiting if (why := self.refusal(one)) is not None]

    def refusal(self, sandbox: Sandbox) -> Problem | None:
        """Why no node takes a sandbox that is being started; None: one has, or nobody has looked yet."""
        placement = self._cluster.placement(sandbox.id) if sandbox.state is State.STARTING else None
        if placement is None or placement.node:
            return None
        return Problem("capacity_unavailable", f"no node takes it: {placement.why}", sandbox_id=sandbox.id)

    def overdue(self, sandbox: Sandbox) -> Problem:
        """What a start ends with whose deadline has come: whatever it has waited for is to blame."""
        within = f"within its start timeout of {sandbox.spec.start_timeout_ms} ms"
        if sandbox.state in (State.REQUESTED, State.QUEUED):
            ahead = f"{self.turns.taken} starts were in flight, {self.turns.waiting} waited"
            return Problem("start_queue_timeout", f"{sandbox.id} got no turn {within}; {ahead}")
        return self.refusal(sandbox) or Problem("start_timeout", f"{sandbox.id} was not ready {within}")

    async def _start(self, sandbox: Sandbox, phases: Phases, avoid: Sequence[str]) -> None:
        taken_on = sandbox.state is State.STARTING
        if not taken_on:
            change, queued = Change(timings_ms=dict(phases.timings_ms)), sandbox
            begun = await patiently(lambda: self._ledger.take(sandbox.id, Event.START, change, queued))
            if begun is None:
                return  # ended while it waited
            sandbox = begun
        over = self._ledger.expect(sandbox.id)
        if taken_on:
            # Its push may have landed elsewhere while it waited for its turn here: nobody would say so again.
            await patiently(lambda: self._ledger.look(sandbox.id))
            if over.done():
                return
        # Before the cluster hears of it: a push may be faster than the cluster's answer.
        with self._readiness.awaited(sandbox.id, phases) as started:
            boot = Boot(self._key.readiness(sandbox).text, self._key.public_text, dump_record(sandbox), avoid)
            answer = await self._cluster.start(sandbox.id, sandbox.spec, boot)
            phases.lap("start")
            phases.timings_ms.update(answer.timings_ms)
            started.set_result(answer)
            settled = await asyncio.shield(over)
            if "start" not in settled.timings_ms:
                for phase in set(_OURS) & phases.timings_ms.keys():
                    self._metrics.phase(phase, phases.timings_ms[phase])
