"""Health probes: the cluster may report a sandbox as running while its sidecar answers no calls."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

import structlog

from controlplane.errors import Problem
from controlplane.lifecycle.dependencies import Dependencies
from controlplane.lifecycle.health.silence import LostSandbox, ProbeResult, lost, suspects, unanswered
from controlplane.lifecycle.health.silence_notes import SilenceNotes
from controlplane.lifecycle.record.ledger import Ledger
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.model import UP, Sandbox

# A health call takes milliseconds; 16 at a time are a light load, and reach a thousand sandboxes in seconds.
AT_ONCE: Final = 16
# A probe that times out costs only time: ten seconds from here, fifteen through a gateway.
SILENT_AT_ONCE: Final = 128

Asked = TypeVar("Asked")


class Prober:
    """Probes every running sandbox, and ends those that are lost by the rule in ``silence``."""

    def __init__(self, deps: Dependencies, store: RecoveringStore, ledger: Ledger) -> None:
        self._store = store
        self._cluster = deps.cluster
        self._sidecars = deps.sidecars
        self._gateways = deps.gateways
        self._key = deps.key
        self._clock = deps.clock
        self._ledger = ledger
        self._silent: dict[str, ProbeResult] = {}  # the sandboxes that did not answer their last probe
        self._notes = SilenceNotes(store, deps.clock)
        self._log = structlog.get_logger("prober")

    async def round(self) -> None:
        """Probes every sandbox that is up, once.

        Raises:
            Problem: the store does not answer.
        """
        running = {one.id: one for one in await self._store.find(None, {}, UP)}
        before = {name: self._silent[name] for name in self._silent.keys() & running.keys()}
        self._silent = dict(before)
        # Separately, so that sandboxes which answer do not wait for those that did not answer the last time.
        answering = [one for one in running.values() if one.id not in before]
        everything = await _each(self._asked, answering, AT_ONCE)
        everything += await _each(self._asked, [running[name] for name in before], SILENT_AT_ONCE)
        doubted = [(running[one.sandbox_id], one) for one in suspects(everything)]
        asked_there = await _each(self._asked_there, doubted, SILENT_AT_ONCE)
        seen = {one.sandbox_id: one for one in (*everything, *asked_there)}
        if len(self._silent) != len(before):
            words = "sandboxes do not answer health probes, they end if it lasts"
            self._log.warning(words, asked=len(seen), silent=len(self._silent))
        await self._notes.write({name: one.here.first_ms for name, one in self._silent.items() if one.here is not None})
        for one in lost([*seen.values()]):
            await self._ledger.end(one.seen.sandbox_id, Problem("sandbox_lost", _words(one)), "prober")

    async def _asked(self, sandbox: Sandbox) -> ProbeResult:
        asked_ms, before, here = self._clock.now_ms(), self._silent.get(sandbox.id), None
        try:
            await self._sidecars.health(sandbox.address or "", self._key.token(sandbox).text)
        except Problem:
            here = unanswered(None if before is None else before.here, asked_ms)
        place = self._cluster.node_of(sandbox.id)
        node, ready = (None, False) if place is None else (place.node, place.ready)
        # An answer here also cancels the failures that gateways saw before.
        there = None if before is None or here is None else before.there
        return self._noted(ProbeResult(sandbox.id, node, ready, here, there))

    async def _asked_there(self, doubted: tuple[Sandbox, ProbeResult]) -> ProbeResult:
        sandbox, seen = doubted
        asked_ms = self._clock.now_ms()
        reaches = await self._gateways.reaches(sandbox.id, self._key.token(sandbox).text)
        # If no gateway can probe, that counts neither as an answer of the sandbox nor as a failure.
        there = None if reaches else seen.there if reaches is None else unanswered(seen.there, asked_ms)
        return self._noted(replace(seen, there=there))

    def _noted(self, seen: ProbeResult) -> ProbeResult:
        # At once, so that a round which is cancelled keeps what it has found out.
        if seen.here is None:
            self._silent.pop(seen.sandbox_id, None)
        else:
            self._silent[seen.sandbox_id] = seen
        return seen


async def _each(
    ask: Callable[[Asked], Awaitable[ProbeResult]], all_asked: Sequence[Asked], at_once: int
) -> list[ProbeResult]:
    free = asyncio.Semaphore(at_once)

    async def asked(one: Asked) -> ProbeResult:
        async with free:
            return await ask(one)

    async with asyncio.TaskGroup() as group:
        answers = [group.create_task(asked(one)) for one in all_asked]
    return [answer.result() for answer in answers]


def _words(one: LostSandbox) -> str:
    here = one.seen.here
    for_s = 0 if here is None else (here.last_ms - here.first_ms) // 1000
    beside = f"{one.answering} of {one.neighbours} others there answer" if one.neighbours else "it is alone there"
    return (
        f"its node {one.seen.node} says that it runs, but for {for_s} s it has answered neither the control plane nor "
        f"a gateway; the node is ready, and {beside}"
    )
