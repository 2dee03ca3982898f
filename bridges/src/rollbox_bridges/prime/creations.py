"""Creates that are under way: each goes on without the request that has begun it, so that its answer need not wait.

Clients give an answer 30 s, and ask again by the same key where it was lost. So a create is answered when its sandbox
is ready, or else by the record of one that starts. One that nobody asks for any more is withdrawn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from rollbox import Client, Sandbox, SandboxError, SandboxRecord
from rollbox_bridges.prime import labels
from rollbox_bridges.prime.creating import Wish
from rollbox_bridges.prime.sessions import PREFIX
from rollbox_bridges.prime.words import Refusal

START_ID: Final = f"{PREFIX}start"
"""The id of what runs in a sandbox from its start."""
_ANSWER_WITHIN_S: Final = 20.0
_ABANDONED_AFTER_S: Final = 60.0
_log = logging.getLogger("rollbox_bridges")
_Made: TypeAlias = Callable[[Sandbox], Coroutine[Any, Any, None]]


@dataclass(slots=True, eq=False)
class _Creation:
    """One create that is under way.

    Attributes:
        digest: of its body.
        callers: how many requests wait for it.
        answered: whether a client was told of its sandbox, which it will ask for by its id.
    """

    digest: str
    task: asyncio.Task[Sandbox]
    callers: int = 0
    answered: bool = False
    abandoning: asyncio.TimerHandle | None = field(default=None)


class Creations:
    """Creates by owner's key and idempotency key."""

    def __init__(self) -> None:
        self._under_way: dict[tuple[str, str], _Creation] = {}

    async def created(self, client: Client, key: str, wish: Wish, made: _Made) -> Sandbox | SandboxRecord:
        """Create, or join the create of the same key.

        Args:
            client: of the owner.
            key: of the owner.
            wish: what is wanted.
            made: is called with the sandbox once it is ready.

        Returns:
            the sandbox, or the record of one that is not ready yet.

        Raises:
            Refusal: the key is that of another create, or there is not even a record yet.
            SandboxError: as `Client.create`.
        """
        creation = self._joined(client, key, wish, made)
        creation.callers += 1
        try:
            await asyncio.wait({creation.task}, timeout=_ANSWER_WITHIN_S)
            if creation.task.done():
                creation.answered = True
                return creation.task.result()
            record = await _starting(client, wish)
            creation.answered = True
            return record
        finally:
            creation.callers -= 1
            self._watch(creation)

    def _joined(self, client: Client, key: str, wish: Wish, made: _Made) -> _Creation:
        at = (key, wish.key)
        creation = self._under_way.get(at)
        if creation is None:
            task = asyncio.create_task(_create(client, wish, made), name="rollbox bridge create")
            creation = self._under_way[at] = _Creation(wish.digest, task)
            task.add_done_callback(lambda done: self._ended(at, done))
        if creation.digest != wish.digest:
            raise Refusal(409, "the idempotency_key is that of a create with another body", "conflict")
        if creation.abandoning is not None:
            creation.abandoning.cancel()
            creation.abandoning = None
        return creation

    def _watch(self, creation: _Creation) -> None:
        if creation.callers == 0 and not creation.answered and not creation.task.done():
            loop = asyncio.get_running_loop()
            creation.abandoning = loop.call_later(_ABANDONED_AFTER_S, creation.task.cancel)

    def _ended(self, at: tuple[str, str], task: asyncio.Task[Sandbox]) -> None:
        creation = self._under_way.pop(at)
        if creation.abandoning is not None:
            creation.abandoning.cancel()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.info("a create has failed: %s", error)

    async def aclose(self) -> None:
        """Withdraw all that are under way."""
        tasks = [creation.task for creation in self._under_way.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _create(client: Client, wish: Wish, made: _Made) -> Sandbox:
    sandbox = await client.create(wish.image, **wish.options)
    try:
        if wish.start is not None:
            await _begin(sandbox, wish)
    except SandboxError:
        await client.delete(sandbox.id)
        raise
    await made(sandbox)
    return sandbox


async def _begin(sandbox: Sandbox, wish: Wish) -> None:
    """Start what is to run in it; nobody reads its output until its log is asked for."""
    process = await sandbox.spawn(wish.start or "", stdin=False, output_waits=False, exec_id=START_ID)
    process.detach()
    await process.aclose()


async def _starting(client: Client, wish: Wish) -> SandboxRecord:
    """The record of a sandbox that is not ready yet, which is found by its create's key."""
    found = await client.list(labels.of_key(wish.key), all=True)
    if not found:
        raise Refusal(503, "the create waits, and its sandbox is not on record yet: try again", "capacity_unavailable")
    return max(found, key=lambda one: one.created_at_ms)
