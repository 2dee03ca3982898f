"""Proof of life: a sandbox may be alive for the cluster while its sidecar answers nobody any more."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from controlplane.cluster import Sidecars
from controlplane.errors import Problem
from controlplane.lifecycle.keeper import Keeper
from controlplane.lifecycle.tokens import SigningKey
from controlplane.model import UP, Sandbox

# Health answers in milliseconds; 16 at once are gentle and pass a thousand sandboxes in seconds.
AT_ONCE: Final = 16
MISSES: Final = 3
# Longer than what a network plugin takes to be renewed on a node, when every call there fails at once.
PAUSE_S: Final = 5.0
# When more than this many at once and more than half of all give none, it is rather we who are cut off.
FEW: Final = 3

End = Callable[[str, Problem], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Miss:
    sandbox: Sandbox
    problem: Problem


class Prober:
    """Asks every running sandbox for a proof of life and ends those that give none."""

    def __init__(self, store: Keeper, sidecars: Sidecars, key: SigningKey, end: End) -> None:
        self._store = store
        self._sidecars = sidecars
        self._key = key
        self._end = end
        self._free = asyncio.Semaphore(AT_ONCE)
        self._log = structlog.get_logger("prober")

    async def round(self) -> None:
        """One look at every sandbox that is up.

        Raises:
            Problem: the store does not answer.
        """
        running = await self._store.find(None, {}, UP)
        async with asyncio.TaskGroup() as group:
            looks = [group.create_task(self._look(sandbox)) for sandbox in running]
        misses = [miss for look in looks if (miss := look.result()) is not None]
        if len(misses) > FEW and 2 * len(misses) > len(running):
            self._log.error("no proof of life from most: nothing is ended", asked=len(running), silent=len(misses))
            return
        await self._bury(misses)

    async def _bury(self, misses: Sequence[_Miss]) -> None:
        for miss in misses:
            words = f"alive for the kubelet, but its sidecar does not answer: {miss.problem.detail}"
            await self._end(miss.sandbox.id, Problem("sandbox_lost", words))

    async def _look(self, sandbox: Sandbox) -> _Miss | None:
        for missed in range(1, MISSES + 1):
            try:
                async with self._free:
                    await self._sidecars.health(sandbox.address or "", self._key.token(sandbox).text)
            except Problem as problem:
                last = _Miss(sandbox, problem)
            else:
                return None
            # Without its place: those that answer shall not wait for those that do not.
            if missed < MISSES:
                await asyncio.sleep(PAUSE_S)
        return last
