"""Proof of life: a sandbox may be alive for the cluster while its sidecar answers nobody any more."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

import structlog

from controlplane.errors import Problem
from controlplane.lifecycle.keeper import Keeper
from controlplane.lifecycle.parts import Parts
from controlplane.lifecycle.silence import Lost, Seen, lost, suspects, unanswered
from controlplane.model import UP, Sandbox

# Health answers in milliseconds; 16 at once are gentle and pass a thousand sandboxes in seconds.
AT_ONCE: Final = 16
# A question that nobody answers costs nothing but its time, ten seconds here and fifteen through a gateway.
SILENT_AT_ONCE: Final = 128

Asked = TypeVar("Asked")
End = Callable[[str, Problem], Awaitable[None]]


class Prober:
    """Asks every running sandbox for a proof of life, and ends those that are lost by the rule of ``silence``."""

    def __init__(self, parts: Parts, store: Keeper, end: End) -> None:
        self._store = store
        self._cluster = parts.cluster
        self._sidecars = parts.sidecars
        self._gateways = parts.gateways
        self._key = parts.key
        self._clock = parts.clock
        self._end = end
        self._silent: dict[str, Seen] = {}  # of those that did not answer the last question
        self._log = structlog.get_logger("prober")

    async def round(self) -> None:
        """One look at every sandbox that is up.

        Raises:
            Problem: the store does not answer.
        """
        running = {one.id: one for one in await self._store.find(None, {}, UP)}
        before = {name: self._silent[name] for name in self._silent.keys() & running.keys()}
        self._silent = dict(before)
        # Those that answer do not wait for those that did not the last time.
        answering = [one for one in running.values() if one.id not in before]
        everything = await _each(self._asked, answering, AT_ONCE)
        everything += await _each(self._asked, [running[name] for name in before], SILENT_AT_ONCE)
        doubted = [(running[one.sandbox_id], one) for one in suspects(everything)]
        asked_there = await _each(self._asked_there, doubted, SILENT_AT_ONCE)
        seen = {one.sandbox_id: one for one in (*everything, *asked_there)}
        if len(self._silent) != len(before):
            self._log.warning("sandboxes that give no proof of life", asked=len(seen), silent=len(self._silent))
        for one in lost([*seen.values()]):
            await self._end(one.seen.sandbox_id, Problem("sandbox_lost", _words(one)))

    async def _asked(self, sandbox: Sandbox) -> Seen:
        asked_ms, before, here = self._clock.now_ms(), self._silent.get(sandbox.id), None
        try:
            await self._sidecars.health(sandbox.address or "", self._key.token(sandbox).text)
        except Problem:
            here = unanswered(None if before is None else before.here, asked_ms)
        place = self._cluster.whereabouts(sandbox.id)
        node, ready = (None, False) if place is None else (place.node, place.ready)
        # Once it has answered, what gateways missed before does not count either.
        there = None if before is None or here is None else before.there
        return self._noted(Seen(sandbox.id, node, ready, here, there))

    async def _asked_there(self, doubted: tuple[Sandbox, Seen]) -> Seen:
        sandbox, seen = doubted
        asked_ms = self._clock.now_ms()
        reaches = await self._gateways.reaches(sandbox.id, self._key.token(sandbox).text)
        # No gateway to ask is no answer of the sandbox, and no silence either.
        there = None if reaches else seen.there if reaches is None else unanswered(seen.there, asked_ms)
        return self._noted(replace(seen, there=there))

    def _noted(self, seen: Seen) -> Seen:
        # At once: a round that is given up has found out what it has.
        if seen.here is None:
            self._silent.pop(seen.sandbox_id, None)
        else:
            self._silent[seen.sandbox_id] = seen
        return seen


async def _each(ask: Callable[[Asked], Awaitable[Seen]], all_asked: Sequence[Asked], at_once: int) -> list[Seen]:
    free = asyncio.Semaphore(at_once)

    async def asked(one: Asked) -> Seen:
        async with free:
            return await ask(one)

    async with asyncio.TaskGroup() as group:
        answers = [group.create_task(asked(one)) for one in all_asked]
    return [answer.result() for answer in answers]


def _words(one: Lost) -> str:
    here = one.seen.here
    for_s = 0 if here is None else (here.last_ms - here.first_ms) // 1000
    beside = f"{one.answering} of {one.neighbours} others there answer" if one.neighbours else "it is alone there"
    return (
        f"its node {one.seen.node} says that it runs, but for {for_s} s it has answered neither the control plane nor "
        f"a gateway; the node is ready, and {beside}"
    )
