"""Watchers: changes of directories, gathered until a client asks for them."""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict, deque
from contextlib import aclosing
from typing import Any, Final

from rollbox import Files, SandboxError
from rollbox_bridges.connect.codes import ConnectError
from rollbox_bridges.e2b import entries
from rollbox_bridges.e2b.words import as_connect

LOST: Final = "changes were lost, since there were too many at once: list the directory and watch it anew"
_MOST_EVENTS: Final = 10_000
_MOST_WATCHERS: Final = 64


class Watcher:
    """Gathers changes until they are asked for.

    Args:
        files: of the sandbox.
        top: the directory.
        recursive: whether what is below its directories counts.
        user: in the sandbox, whose rights the watch has.
    """

    def __init__(self, files: Files, top: str, *, recursive: bool, user: str | None) -> None:
        self._changes = files.watch(top, recursive=recursive, user=user)
        self._top = top
        self._came: deque[Any] = deque()
        self._failure: ConnectError | None = None
        self._watching = asyncio.Event()
        self._task = asyncio.create_task(self._gather(), name="rollbox bridge watcher")

    async def watching(self) -> None:
        """Return when every later change is seen.

        Raises:
            ConnectError: it cannot be watched.
        """
        await self._watching.wait()
        if self._failure is not None:
            raise self._failure

    def take(self) -> list[Any]:
        """Give the changes since the last time.

        Raises:
            ConnectError: some were lost, or the watch has ended.
        """
        if self._failure is not None:
            raise self._failure
        came, self._came = list(self._came), deque()
        return came

    async def aclose(self) -> None:
        """End it. Idempotent."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _gather(self) -> None:
        try:
            async with aclosing(self._changes) as changes:
                async for change in changes:
                    if change.change == "overflowed" or len(self._came) > _MOST_EVENTS:
                        raise ConnectError("data_loss", LOST)
                    self._came.extend(entries.changes(change, self._top))
                    self._watching.set()
        except ConnectError as error:
            self._failure = error
        except SandboxError as error:
            self._failure = as_connect(error)
        finally:
            self._watching.set()


class Watchers:
    """The watchers of one sandbox; beyond a number the one that was asked least recently ends."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Watcher] = OrderedDict()

    async def add(self, watcher: Watcher) -> str:
        """Keep one; returns its id."""
        name = secrets.token_hex(8)
        self._kept[name] = watcher
        if len(self._kept) > _MOST_WATCHERS:
            _, oldest = self._kept.popitem(last=False)
            await oldest.aclose()
        return name

    def find(self, name: str) -> Watcher:
        """The one of this id.

        Raises:
            ConnectError: there is none.
        """
        if name not in self._kept:
            raise ConnectError(
                "not_found", f"there is no watcher {name[:64]!r}: it was removed, or the bridge restarted"
            )
        self._kept.move_to_end(name)
        return self._kept[name]

    async def remove(self, name: str) -> None:
        """End the one of this id.

        Raises:
            ConnectError: there is none.
        """
        watcher = self.find(name)
        del self._kept[name]
        await watcher.aclose()

    async def aclose(self) -> None:
        """End all."""
        kept, self._kept = self._kept, OrderedDict()
        for watcher in kept.values():
            await watcher.aclose()
