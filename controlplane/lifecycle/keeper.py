"""The store as the lifecycle sees it: when it is lost, it is rebuilt first, then the question is asked again."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final, TypeVar

import structlog

from controlplane.errors import Problem
from controlplane.model import Limits, Sandbox, State, Usage
from controlplane.store import Admission, Claim, Custody, Due, Fence, Miscount, News, Slot, Store, StoreLostError

# A rebuild lists the cluster once and asks its sandboxes; whoever waits hears after this that it takes longer.
WITHIN_S: Final = 15.0
TURN_MS: Final = 15_000
LOOK_AGAIN_S: Final = 0.2

T = TypeVar("T")


class Keeper:
    """A ``Store`` that is never lost to its users. Of many replicas one rebuilds, the others wait.

    Args:
        store: the real one.
        prepare: called at every replica that finds the store lost: what only it knows goes on record again.
        rebuild: called at the one whose turn it is: reads the cluster's truth.
        resume: called at every replica that found it lost, once it is not any more.
        group: where rebuilds run.
    """

    def __init__(
        self,
        store: Store,
        prepare: Callable[[Store], Awaitable[None]],
        rebuild: Callable[[], Awaitable[None]],
        resume: Callable[[Store], Awaitable[None]],
        group: asyncio.TaskGroup,
    ) -> None:
        self._store = store
        self._prepare = prepare
        self._rebuild = rebuild
        self._resume = resume
        self._group = group
        self._epoch = ""
        self._under_way: asyncio.Task[Problem | None] | None = None
        self._log = structlog.get_logger("keeper")

    def close(self) -> None:
        """Gives a rebuild up; another replica's turn comes."""
        if self._under_way is not None:
            self._under_way.cancel()

    @property
    def shared(self) -> bool:
        """See ``Store.shared``."""
        return self._store.shared

    async def ensure(self, *, within_s: float = WITHIN_S) -> None:
        """Returns when the store holds what it should. A rebuild goes on when its caller has gone away.

        Call it now and then: a store that others have rebuilt between two questions has nothing of this replica.

        Args:
            within_s: how long to wait.

        Raises:
            Problem: upstream_timeout, it does not in time; or the cluster cannot be listed.
        """
        if self._under_way is None or self._under_way.done():
            self._under_way = self._group.create_task(self._restored(), name="rebuild the store")
        try:
            async with asyncio.timeout(within_s):
                problem = await asyncio.shield(self._under_way)
        except TimeoutError as error:
            detail = f"the store was lost and is not rebuilt from the cluster after {within_s:.0f} s"
            raise Problem("upstream_timeout", detail, retry_after_ms=1000) from error
        if problem is not None:
            raise problem

    async def _restored(self) -> Problem | None:
        try:
            await self._restore()
        except Problem as problem:
            return problem
        except StoreLostError as error:
            return Problem("upstream_timeout", f"the store was lost again: {error}", retry_after_ms=1000)
        except Exception as error:
            self._log.exception("not rebuilt")
            return Problem("internal", f"{type(error).__name__} while the store was rebuilt")
        return None

    async def _restore(self) -> None:
        rebuild = await self._store.claim_rebuild(TURN_MS)
        before = said = self._epoch
        if rebuild.custody is Custody.INTACT and rebuild.filling == before:
            return
        while True:
            # Before the first one there is nothing that this replica could know. Once for each loss: it may be emptied
            # again while it is rebuilt, and what was said before has gone then.
            if before and rebuild.filling != said:
                await self._prepare(self._store)
                said = rebuild.filling
            if rebuild.custody is Custody.INTACT:
                break
            if rebuild.custody is Custody.THEIRS:
                await asyncio.sleep(LOOK_AGAIN_S)
            else:
                await self._rebuild()
                if await self._store.rebuilt(rebuild.filling):
                    break
            rebuild = await self._store.claim_rebuild(TURN_MS)
        self._epoch = rebuild.filling
        if before:
            await self._resume(self._store)

    async def peek(self, sandbox_id: str) -> Sandbox | None:
        """See ``Store.peek``; for the rebuild itself."""
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
        self, sandbox_id: str, limit: int, until_ms: int, per_node: int = 0, placement_key: str = ""
    ) -> Slot:
        """See ``Store.take_slot``."""
        return await self._asked(lambda: self._store.take_slot(sandbox_id, limit, until_ms, per_node, placement_key))

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

    async def due(self, now_ms: int, unconfirmed_before_ms: int) -> Due:
        """See ``Store.due``."""
        return await self._asked(lambda: self._store.due(now_ms, unconfirmed_before_ms))

    def feed(self) -> AsyncIterator[News]:
        """See ``Store.feed``."""
        return self._store.feed()
