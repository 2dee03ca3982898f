"""Sandboxes that are ready before a request needs one. Each serves one request, and is deleted after it.

A shelf has the sandboxes of one owner, image and memory. Each that is taken is replaced; a shelf from which nothing is
taken for a while is given up.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

from rollbox import Client, CreateOptions, Sandbox, SandboxError
from rollbox_bridges.clients import Clients
from rollbox_bridges.faults import sentence
from rollbox_bridges.fusion.settings import Settings

_log = logging.getLogger("rollbox_bridges")
LABELS: Final = {"bridge": "fusion"}
"""Of all sandboxes of this bridge."""
_MOST_SHELVES: Final = 16
_UNUSED_S: Final = 300.0
# A sandbox outlives its program by no more than this, where nobody deletes it.
_LIFE_S: Final = 3600.0
_SPARE_S: Final = 120.0
# After a bridge that was killed nothing is used any more. A lease would need a process for each key that is tried.
_IDLE_S: Final = 900.0
_MOST_READY_S: Final = 600.0
# Pulls of an image are a part of it.
_START_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class Kind:
    """What the sandboxes of one shelf have in common.

    Attributes:
        key: of the owner; None: that of the bridge.
        image: of them.
        memory_bytes: the most of each; None: what the settings say.
    """

    key: str | None = field(repr=False)
    image: str
    memory_bytes: int | None


@dataclass(slots=True)
class _Shelf:
    ready: deque[tuple[float, Sandbox]] = field(default_factory=deque)
    coming: int = 0
    expiry: asyncio.TimerHandle | None = None


class Shelves:
    """Gives sandboxes, each once.

    Args:
        settings: of the bridge.
        clients: by owner's key.
    """

    def __init__(self, settings: Settings, clients: Clients) -> None:
        self._settings = settings
        self._clients = clients
        self._shelves: OrderedDict[Kind, _Shelf] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False

    async def take(self, kind: Kind, seconds: float) -> Sandbox:
        """Take a sandbox, which is the caller's to give to `end`.

        Args:
            kind: of it.
            seconds: that it is used for at most.

        Raises:
            SandboxError: as `Client.create`.
        Cancel safety: what was not taken is deleted, or stays on its shelf.
        """
        if seconds + 2 * _SPARE_S > _LIFE_S:
            return await self._made(kind, seconds + 2 * _SPARE_S)
        sandbox = self._from_shelf(kind, seconds) or await self._made(kind, _LIFE_S)
        self._refill(kind)
        return sandbox

    def end(self, sandbox: Sandbox) -> None:
        """Delete a sandbox behind the answer to its request."""
        self._begin(self._ended(sandbox), "end")

    async def aclose(self) -> None:
        """Delete all sandboxes; returns when that is done."""
        self._closing = True
        for kind in [*self._shelves]:
            self._give_up(kind)
        for task in self._tasks:
            if task.get_name().endswith("create"):
                task.cancel()
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _from_shelf(self, kind: Kind, seconds: float) -> Sandbox | None:
        shelf = self._shelves.get(kind)
        while shelf is not None and shelf.ready:
            since, sandbox = shelf.ready.popleft()
            ready_s = time.monotonic() - since
            if ready_s < _MOST_READY_S and ready_s + seconds + 2 * _SPARE_S < _LIFE_S:
                return sandbox
            self.end(sandbox)
        return None

    def _give_up(self, kind: Kind) -> None:
        shelf = self._shelves.pop(kind)
        if shelf.expiry is not None:
            shelf.expiry.cancel()
        while shelf.ready:
            self.end(shelf.ready.popleft()[1])

    def _refill(self, kind: Kind) -> None:
        """Have sandboxes ready of what was just given, so that nothing that cannot be had has a shelf."""
        if self._closing or not self._settings.warm:
            return
        shelf = self._shelves.setdefault(kind, _Shelf())
        self._shelves.move_to_end(kind)
        if len(self._shelves) > _MOST_SHELVES:
            self._give_up(next(iter(self._shelves)))
        if shelf.expiry is not None:
            shelf.expiry.cancel()
        shelf.expiry = asyncio.get_running_loop().call_later(_UNUSED_S, self._give_up, kind)
        while len(shelf.ready) + shelf.coming < self._settings.warm:
            shelf.coming += 1
            self._begin(self._filled(kind, shelf), "create")

    async def _filled(self, kind: Kind, shelf: _Shelf) -> None:
        try:
            sandbox = await self._made(kind, _LIFE_S)
        except SandboxError as error:
            # The request that needs one is told the same, and the next that takes one tries again.
            _log.info("no sandbox of %s is kept ready: %s", kind.image, sentence(error))
            return
        finally:
            shelf.coming -= 1
        if self._shelves.get(kind) is shelf:
            shelf.ready.append((time.monotonic(), sandbox))
        else:
            self.end(sandbox)

    async def _made(self, kind: Kind, life_s: float) -> Sandbox:
        client: Client = await self._clients.client(kind.key)
        options: CreateOptions = {
            "labels": LABELS,
            "ttl": life_s,
            "lease": None,
            "idle_timeout": _IDLE_S,
            "egress": self._settings.egress,
            "start_timeout": _START_S,
        }
        memory = kind.memory_bytes or self._settings.memory
        return await client.create(kind.image, **options, **({} if memory is None else {"memory": memory}))

    async def _ended(self, sandbox: Sandbox) -> None:
        try:
            await sandbox.delete()
        except SandboxError as error:
            _log.info("sandbox %s ends by itself: %s", sandbox.id, sentence(error))

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=f"rollbox bridge {name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
