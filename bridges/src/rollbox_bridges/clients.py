"""Clients of the platform, one for each owner's key that is used through a bridge."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

from rollbox import Client

# What was used least recently goes beyond this; a call that needs it again opens it again.
_MOST: Final = 1_000


class Clients:
    """Clients by owner's key.

    Args:
        url: of the gateway; None: as the SDK finds it.
        ahead: is called with a key before the client of that key is closed, which is not used any more.
    """

    def __init__(self, url: str | None, ahead: Callable[[str | None], Awaitable[None]] | None = None) -> None:
        self._url = url
        self._ahead = ahead
        self._kept: OrderedDict[str | None, Client] = OrderedDict()

    async def client(self, key: str | None) -> Client:
        """The client of an owner's key, or, without one, of the key that the SDK finds; nothing is sent."""
        client = self._kept.pop(key, None) or Client(self._url, key)
        self._kept[key] = client
        if len(self._kept) > _MOST:
            old, oldest = self._kept.popitem(last=False)
            if self._ahead is not None:
                await self._ahead(old)
            await oldest.aclose()
        return client

    async def aclose(self) -> None:
        """Close all; sandboxes go on."""
        kept = [*self._kept.values()]
        self._kept.clear()
        for client in kept:
            await client.aclose()
