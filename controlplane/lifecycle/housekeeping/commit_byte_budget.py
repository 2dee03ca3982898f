"""``CommitByteBudget``: how many bytes an owner's commits under way may write, at all replicas together."""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final
from uuid import uuid4

import structlog

from controlplane.clock import Clock
from controlplane.errors import Problem
from controlplane.lifecycle.record.recovering_store import RecoveringStore

# What a replica has not given back after that, it never will.
HELD_MS: Final = 900_000
# How often it is looked whether a commit at another replica has ended; those here say so.
LOOKS_EVERY_S: Final = 1.0

# What an owner has left (bytes), without what is shared out; below 1: nothing.
Left = Callable[[], Awaitable[int]]
_Shares = Mapping[str, tuple[int, int]]  # by a name of its own: bytes, and until when it is held


class CommitByteBudget:
    """Shares out what owners have left; the store has who writes how much, so that no two replicas give it twice.

    Args:
        store: has what is shared out.
        clock: the time of day.
    """

    def __init__(self, store: RecoveringStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._freed: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._waiting: defaultdict[str, int] = defaultdict(int)
        self._log = structlog.get_logger("commits")

    @asynccontextmanager
    async def taken(self, owner: str, most: int, left: Left) -> AsyncIterator[int]:
        """What a commit may write, at most ``most``; no other one of the owner gets it until the block ends.

        Where there is less, it waits for the owner's other commits to end, and then gets what there is.

        Args:
            owner: whose bytes they are.
            most: what is asked for.
            left: is asked anew after each commit that has ended.

        Yields:
            below 1: nothing is left.
        """
        share = uuid4().hex
        try:
            yield await self._take(owner, share, most, left)
        finally:
            await self._give_back(owner, share)

    async def _take(self, owner: str, share: str, most: int, left: Left) -> int:
        while True:
            self._freed[owner].clear()
            text, shares = await self._read(owner)
            taken = sum(held for held, _ in shares.values())
            # Asked between the two steps on the note: a commit that ends in between changes that.
            granted = min(most, await left() - taken)
            if granted < most and shares:
                await self._freed_by_another(owner)
                continue
            if granted <= 0:
                return granted
            until_ms = self._clock.now_ms() + HELD_MS
            if await self._write(owner, {**shares, share: (granted, until_ms)}, text):
                return granted

    async def _freed_by_another(self, owner: str) -> None:
        self._waiting[owner] += 1
        try:
            async with asyncio.timeout(LOOKS_EVERY_S):
                await self._freed[owner].wait()
        except TimeoutError:
            return
        finally:
            self._waiting[owner] -= 1

    async def _give_back(self, owner: str, share: str) -> None:
        try:
            while True:
                text, shares = await self._read(owner)
                left = {name: held for name, held in shares.items() if name != share}
                if len(left) == len(shares) or await self._write(owner, left, text):
                    break
        except Problem as problem:
            self._log.warning("bytes of an owner are held for some time", owner=owner, detail=problem.detail)
        self._freed[owner].set()
        if not self._waiting[owner]:
            self._freed.pop(owner, None)
            self._waiting.pop(owner, None)

    async def _read(self, owner: str) -> tuple[str, _Shares]:
        text = await self._store.note(_name(owner))
        shares: dict[str, tuple[int, int]] = json.loads(text)["shares"] if text else {}
        now_ms = self._clock.now_ms()
        return text, {name: (held, until_ms) for name, (held, until_ms) in shares.items() if now_ms < until_ms}

    async def _write(self, owner: str, shares: _Shares, before: str) -> bool:
        text = json.dumps({"shares": shares, "writing": uuid4().hex}) if shares else ""
        return await self._store.write_note(_name(owner), text, HELD_MS, before=before)


def _name(owner: str) -> str:
    return f"commit-bytes:{owner}"
