"""The store as the lifecycle uses it: when the store is lost, calls wait until it is rebuilt, and are retried."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final, TypeVar

from controlplane.errors import Problem
from controlplane.model import Limits, Sandbox, State, Usage
from controlplane.store import Admission, Claim, Due, FeedMessage, Fence, Miscount, Page, Slot, Store, StoreLostError

# A rebuild lists the cluster once and probes its sandboxes; a caller that waits longer than this gets an error.
WITHIN_S: Final = 15.0

T = TypeVar("T")


class RecoveringStore:
    """A ``Store`` that hides losses: calls wait for a round of recovery, which ``replicas.recovery`` does.

    ``peek``, ``restore`` and ``free_slot`` go to the store directly; recovery itself uses them.

    Args:
        store: the store that may be lost.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._wanted = asyncio.Event()
        self._round: asyncio.Future[Problem | None] | None = None
        self._closed: Problem | None = None

    async def wanted(self) -> None:
        """Returns when a call waits for a round of recovery; for the loop that does the rounds."""
        await self._wanted.wait()

    def close(self, problem: Problem) -> None:
        """Ends recovery for good: a call that finds the store lost from now on gets this problem."""
        self._closed = problem
        self.recovered(problem)

    def recovered(self, problem: Problem | None) -> None:
        """Ends the round; ``problem`` says why the store is not usable, None: it is."""
        self._wanted.clear()
        if self._round is not None and not self._round.done():
            self._round.set_result(problem)

    @property
    def shared(self) -> bool:
        """See ``Store.shared``."""
        return self._store.shared

    async def ensure(self, *, within_s: float = WITHIN_S) -> None:
        """Returns when the store is complete. Cancelling the call does not cancel the recovery.

        Call it periodically: if the store is lost and other replicas rebuild it between two calls of this replica, it
        lacks what only this replica knows, and no call notices.

        Args:
            within_s: how long to wait.

        Raises:
            Problem: upstream_timeout, not within ``within_s``; or the cluster cannot be listed.
        """
        if self._closed is not None:
            raise self._closed
        if self._round is None or self._round.done():
            self._round = asyncio.get_running_loop().create_future()
            self._wanted.set()
        try:
            async with asyncio.timeout(within_s):
                problem = await asyncio.shield(self._round)
        except TimeoutError as error:
            detail = f"the store was lost and is not rebuilt from the cluster after {within_s:.0f} s"
            raise Problem("upstream_timeout", detail, retry_after_ms=1000) from error
        if problem is not None:
            raise problem

    async def peek(self, sandbox_id: str) -> Sandbox | None:
        """See ``Store.peek``; for use by recovery itself."""
        return await self._store.peek(sandbox_id)

    async def _asked(self, question: Callable[[], Awaitable[T]]) -> T:
        try:
            return await question()
        except StoreLostError:
            await self.ensure()
        try:
            return await question()
        except StoreLostError as error:
            raise Problem("upstream_timeout", "the store was lost twice in a row", retry_after_ms=1000) from error

    async def admit(self, sandbox: Sandbox, limits: Limits, fence: Fence | None = None) -> Admission:
        """See ``Store.admit``."""
        return await self._asked(lambda: self._store.admit(sandbox, limits, fence))

    async def claim(self, wish: Sandbox, limits: Limits) -> Claim | None:
        """See ``Store.claim``."""
        return await self._asked(lambda: self._store.claim(wish, limits))

    async def warm(self, template_hash: str) -> int:
        """See ``Store.warm``."""
        return await self._asked(lambda: self._store.warm(template_hash))

    async def usage(self, owner: str | None) -> Usage:
        """See ``Store.usage``."""
        return await self._asked(lambda: self._store.usage(owner))

    async def recount(self) -> Sequence[Miscount]:
        """See ``Store.recount``."""
        return await self._asked(self._store.recount)

    async def get(self, sandbox_id: str) -> Sandbox | None:
        """See ``Store.get``."""
        return await self._asked(lambda: self._store.get(sandbox_id))

    async def replace(self, sandbox: Sandbox, expected_version: int) -> bool:
        """See ``Store.replace``."""
        return await self._asked(lambda: self._store.replace(sandbox, expected_version))

    async def restore(self, sandbox: Sandbox) -> bool:
        """See ``Store.restore``."""
        return await self._store.restore(sandbox)

    async def find(
        self, owner: str | None, labels: Mapping[str, str], states: Collection[State] | None = None
    ) -> Sequence[Sandbox]:
        """See ``Store.find``."""
        return await self._asked(lambda: self._store.find(owner, labels, states))

    async def page(self, owner: str, states: Collection[State], offset: int, most: int) -> Page:
        """See ``Store.page``."""
        return await self._asked(lambda: self._store.page(owner, states, offset, most))

    async def ended_since(self, at_ms: int) -> Sequence[Sandbox]:
        """See ``Store.ended_since``."""
        return await self._asked(lambda: self._store.ended_since(at_ms))

    async def by_key(self, owner: str, key: str) -> Sandbox | None:
        """See ``Store.by_key``."""
        return await self._asked(lambda: self._store.by_key(owner, key))

    async def withdraw(self, owner: str, key: str, call_id: str = "") -> Sandbox | None:
        """See ``Store.withdraw``."""
        return await self._asked(lambda: self._store.withdraw(owner, key, call_id))

    async def counts(self) -> Mapping[State, int]:
        """See ``Store.counts``."""
        return await self._asked(self._store.counts)

    async def take_slot(
        self,
        sandbox_id: str,
        limit: int,
        until_ms: int,
        per_node: int = 0,
        placement_key: str = "",
        *,
        more: bool = False,
    ) -> Slot:
        """See ``Store.take_slot``."""
        asked = sandbox_id, limit, until_ms, per_node, placement_key
        return await self._asked(lambda: self._store.take_slot(*asked, more=more))

    async def place_slot(
        self, sandbox_id: str, node: str, until_ms: int, per_node: int = 0, placement_key: str = ""
    ) -> None:
        """See ``Store.place_slot``."""
        await self._asked(lambda: self._store.place_slot(sandbox_id, node, until_ms, per_node, placement_key))

    async def free_slot(self, sandbox_id: str) -> None:
        """See ``Store.free_slot``."""
        await self._store.free_slot(sandbox_id)

    async def lease(self, name: str, holder: str, ttl_ms: int) -> bool:
        """See ``Store.lease``."""
        return await self._asked(lambda: self._store.lease(name, holder, ttl_ms))

    async def note(self, name: str) -> str:
        """See ``Store.note``."""
        return await self._asked(lambda: self._store.note(name))

    async def write_note(self, name: str, text: str, ttl_ms: int, *, before: str = "") -> bool:
        """See ``Store.write_note``."""
        return await self._asked(lambda: self._store.write_note(name, text, ttl_ms, before=before))

    async def change_note(self, name: str, change: Callable[[str], str | None], ttl_ms: int, *, tries: int = 1) -> bool:
        """Reads a note and writes what becomes of it, anew if another one has written it in between.

        Args:
            name: of the note.
            change: from the text that is there to the one that is to be there (empty: none); None: it stays as it is.
            ttl_ms: as for ``write_note``.
            tries: how often at most.

        Returns:
            Whether that is what is there now.

        Cost: two calls to the store for each try; one, where it stays.
        """
        for _ in range(tries):
            before = await self.note(name)
            text = change(before)
            if text is None or await self.write_note(name, text, ttl_ms, before=before):
                return True
        return False

    async def append(self, name: str, lines: Sequence[str], most: int, ttl_ms: int) -> None:
        """See ``Store.append``."""
        await self._asked(lambda: self._store.append(name, lines, most, ttl_ms))

    async def lines(self, name: str, most: int) -> Sequence[str]:
        """See ``Store.lines``."""
        return await self._asked(lambda: self._store.lines(name, most))

    async def due(self, now_ms: int, unconfirmed_before_ms: int) -> Due:
        """See ``Store.due``."""
        return await self._asked(lambda: self._store.due(now_ms, unconfirmed_before_ms))

    def feed(self) -> AsyncIterator[FeedMessage]:
        """See ``Store.feed``."""
        return self._store.feed()
