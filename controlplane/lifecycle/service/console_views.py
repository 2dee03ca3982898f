"""What people see of an owner's sandboxes in the console: some of many, what they use, which commands run in them."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from controlplane.cluster import Command, SandboxUsage
from controlplane.egress import EgressAttempt
from controlplane.errors import Problem
from controlplane.lifecycle.dependencies import Dependencies
from controlplane.lifecycle.health.silence_notes import SilenceNotes
from controlplane.lifecycle.record.end_times import EndedIn, EndTimes
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.lifecycle.service.searches import Searches
from controlplane.model import Sandbox, State
from controlplane.store import Page

COMPARED_AT_ONCE: Final = 500
# What a look waits for all its sidecars: those that hang take nothing from those that answer.
USED_WITHIN_S: Final = 3.0
# What a look waits for a node, whose word a gateway's caller waits for too (routes.proto).
CPU_WITHIN_S: Final = 2.0
# Calls to sidecars at one time, of all that look.
ASKED_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class Found:
    """Some of the sandboxes that were asked for.

    Attributes:
        page: as the store has them; its counts are of all of the owner's.
        matching: how many match in all, among those that were looked at.
        among: that many of the newest were looked at; None: all.
        as_of_ms: when those were read, in Unix time; the sandboxes of the page are as they are now.
    """

    page: Page
    matching: int
    among: int | None
    as_of_ms: int


class ConsoleViews:
    """Reads, and changes nothing; no look counts as a use of a sandbox."""

    def __init__(self, deps: Dependencies, store: RecoveringStore, end_times: EndTimes) -> None:
        self._sidecars, self._key, self._clock, self._cluster = deps.sidecars, deps.key, deps.clock, deps.cluster
        self._store = store
        self._end_times = end_times
        self._free = asyncio.Semaphore(ASKED_AT_ONCE)
        self._searches = Searches(store, deps.clock)
        self._silences = SilenceNotes(store, deps.clock)

    async def find(self, owner: str, states: Collection[State], words: Sequence[str], offset: int, most: int) -> Found:
        """The newest of an owner's sandboxes in these states that match all words.

        Args:
            owner: whose.
            states: any of them.
            words: ``KEY=VALUE`` is a label, anything else a part of the id, the image, a label or the cause of the end.
            offset: so many of them are left out.
            most: not more than that.

        Raises:
            Problem: the store does not answer.

        Cost: as ``Store.page``; with words as ``Searches.newest``, and a read for each sandbox of the page.
        """
        if not words:
            page = await self._store.page(owner, states, offset, most)
            return Found(page, sum(page.counts[state] for state in states), None, self._clock.now_ms())
        reading = await self._searches.newest(owner, states)
        looked_at = reading.page.sandboxes
        found = list[Sandbox]()
        for at in range(0, len(looked_at), COMPARED_AT_ONCE):
            some = looked_at[at : at + COMPARED_AT_ONCE]
            found += [one for one in some if all(_matches(one, word) for word in words)]
            await asyncio.sleep(0)  # creates do not wait for the whole of it
        among = len(looked_at) if len(looked_at) < sum(reading.page.counts[state] for state in states) else None
        then = found[offset : offset + most]
        page = await self._now(owner, states, then)
        return Found(page, len(found) - len(then) + len(page.sandboxes), among, reading.at_ms)

    async def usage(self, owner: str, ids: Sequence[str]) -> Mapping[str, SandboxUsage]:
        """What these use, those of them that are the owner's, run and answer. Cost: a read and a call for each."""
        found = await asyncio.gather(*(self._store.get(one) for one in ids))
        running = [one for one in found if one is not None and one.owner == owner and one.state is State.RUNNING]
        used = await asyncio.gather(*(self._used(one) for one in running))
        return {one.id: usage for one, usage in zip(running, used, strict=True) if usage is not None}

    async def cpu_us(self, sandbox_id: str) -> int | None:
        """Its time on processors since its start, by its node's word; None: nobody says it within ``CPU_WITHIN_S``."""
        try:
            async with asyncio.timeout(CPU_WITHIN_S):
                return await self._cluster.cpu_us(sandbox_id)
        except (Problem, TimeoutError):
            return None

    async def commands(self, sandbox: Sandbox) -> Sequence[Command]:
        """The commands of a sandbox that runs, newest first.

        Raises:
            Problem: its sidecar does not answer.
        """
        try:
            async with asyncio.timeout(USED_WITHIN_S), self._free:
                return await self._sidecars.commands(sandbox.address or "", self._key.token(sandbox).text)
        except TimeoutError as error:
            detail = f"its sidecar was not asked within {USED_WITHIN_S:.0f} s"
            raise Problem("upstream_timeout", detail, retry_after_ms=1000) from error

    async def refused(self, sandbox: Sandbox) -> Sequence[EgressAttempt]:
        """What a sandbox has refused its programs by itself, oldest first; empty: it does not run, or not answer."""
        if sandbox.state is not State.RUNNING:
            return ()
        try:
            async with asyncio.timeout(USED_WITHIN_S), self._free:
                return await self._sidecars.refused(sandbox.address or "", self._key.token(sandbox).text)
        except (Problem, TimeoutError):
            return ()

    async def silence(self, sandbox: Sandbox) -> str:
        """That one which is on record as running does not answer, for people; empty: it does, or was not asked."""
        if sandbox.state is not State.RUNNING or self._free.locked():
            return ""
        try:
            async with self._free, asyncio.timeout(USED_WITHIN_S):
                await self._sidecars.health(sandbox.address or "", self._key.token(sandbox).text)
        except Problem as problem:
            return problem.detail
        except TimeoutError:
            return f"no answer within {USED_WITHIN_S:.0f} s"
        return ""

    async def silent_since_ms(self) -> Mapping[str, int]:
        """Since when which sandboxes have answered no probe (Unix ms), by the last round; empty where none are made."""
        return await self._silences.since_ms()

    def ends(self, owner: str) -> Sequence[EndedIn]:
        """When the owner's sandboxes ended in the last day, and by which causes."""
        return self._end_times.of(owner, self._clock.now_ms())

    async def _used(self, sandbox: Sandbox) -> SandboxUsage | None:
        try:
            async with asyncio.timeout(USED_WITHIN_S), self._free:
                used = await self._sidecars.usage(sandbox.address or "", self._key.token(sandbox).text)
        except (Problem, TimeoutError):
            return None
        if used.cpu_by_node or (cpu_us := await self.cpu_us(sandbox.id)) is None:
            return used
        return replace(used, cpu_ms=cpu_us // 1000, cpu_by_node=True)

    async def _now(self, owner: str, states: Collection[State], then: Sequence[Sandbox]) -> Page:
        """These as they are now, without those that have left the states; and the counts of now."""
        counted, found = await asyncio.gather(
            self._store.page(owner, (), 0, 1), asyncio.gather(*(self._store.get(one.id) for one in then))
        )
        return Page([one for one in found if one is not None and one.state in states], counted.counts)


def _matches(sandbox: Sandbox, word: str) -> bool:
    key, equals, value = word.partition("=")
    labels = sandbox.spec.labels
    if key and equals:
        return labels.get(key) == value
    texts = (sandbox.id, sandbox.spec.image, sandbox.end.cause if sandbox.end else "", *labels, *labels.values())
    return any(word.lower() in text.lower() for text in texts)
