"""What people see of an owner's sandboxes in the console: some of many, what they use, which commands run in them."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from controlplane.cluster import Command, SandboxUsage
from controlplane.errors import Problem
from controlplane.lifecycle.dependencies import Dependencies
from controlplane.lifecycle.record.end_times import EndedIn, EndTimes
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.model import Sandbox, State
from controlplane.store import Page

# A search reads records that no index helps with: the newest so many, once in a while for all that look.
MOST_SEARCHED: Final = 10_000
SEARCHED_FOR_MS: Final = 3_000
COMPARED_AT_ONCE: Final = 500
# What a look waits for all its sidecars: those that hang take nothing from those that answer.
USED_WITHIN_S: Final = 3.0
# Calls to sidecars at one time, of all that look.
ASKED_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class Found:
    """Some of the sandboxes that were asked for.

    Attributes:
        page: as the store has them; its counts are of all of the owner's.
        matching: how many match in all, among the newest ``MOST_SEARCHED``.
    """

    page: Page
    matching: int


class Looks:
    """Reads, and changes nothing; no look counts as a use of a sandbox."""

    def __init__(self, deps: Dependencies, store: RecoveringStore, end_times: EndTimes) -> None:
        self._sidecars, self._key, self._clock = deps.sidecars, deps.key, deps.clock
        self._store = store
        self._end_times = end_times
        self._free = asyncio.Semaphore(ASKED_AT_ONCE)
        self._searched: dict[tuple[str, frozenset[State]], tuple[int, Page]] = {}
        self._searching = asyncio.Lock()

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

        Cost: as ``Store.page``; with words that of a page of ``MOST_SEARCHED``, at most once in three seconds for each
        owner and choice of states.
        """
        if not words:
            page = await self._store.page(owner, states, offset, most)
            return Found(page, sum(page.counts[state] for state in states))
        whole = await self._whole(owner, frozenset(states))
        found = list[Sandbox]()
        for at in range(0, len(whole.sandboxes), COMPARED_AT_ONCE):
            some = whole.sandboxes[at : at + COMPARED_AT_ONCE]
            found += [one for one in some if all(_matches(one, word) for word in words)]
            await asyncio.sleep(0)  # creates do not wait for the whole of it
        return Found(Page(found[offset : offset + most], whole.counts), len(found))

    async def usage(self, owner: str, ids: Sequence[str]) -> Mapping[str, SandboxUsage]:
        """What these use, those of them that are the owner's, run and answer. Cost: a read and a call for each."""
        found = await asyncio.gather(*(self._store.get(one) for one in ids))
        running = [one for one in found if one is not None and one.owner == owner and one.state is State.RUNNING]
        used = await asyncio.gather(*(self._used(one) for one in running))
        return {one.id: usage for one, usage in zip(running, used, strict=True) if usage is not None}

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

    def ends(self, owner: str) -> Sequence[EndedIn]:
        """When the owner's sandboxes ended in the last day, and by which causes."""
        return self._end_times.of(owner, self._clock.now_ms())

    async def _used(self, sandbox: Sandbox) -> SandboxUsage | None:
        try:
            async with asyncio.timeout(USED_WITHIN_S), self._free:
                return await self._sidecars.usage(sandbox.address or "", self._key.token(sandbox).text)
        except (Problem, TimeoutError):
            return None

    async def _whole(self, owner: str, states: frozenset[State]) -> Page:
        # One search at a time: others that look meanwhile get the same answer.
        async with self._searching:
            now_ms = self._clock.now_ms()
            self._searched = {key: kept for key, kept in self._searched.items() if kept[0] > now_ms}
            if (kept := self._searched.get((owner, states))) is not None:
                return kept[1]
            page = await self._store.page(owner, states, 0, MOST_SEARCHED)
            self._searched[owner, states] = (self._clock.now_ms() + SEARCHED_FOR_MS, page)
            return page


def _matches(sandbox: Sandbox, word: str) -> bool:
    key, equals, value = word.partition("=")
    labels = sandbox.spec.labels
    if key and equals:
        return labels.get(key) == value
    texts = (sandbox.id, sandbox.spec.image, sandbox.end.cause if sandbox.end else "", *labels, *labels.values())
    return any(word.lower() in text.lower() for text in texts)
