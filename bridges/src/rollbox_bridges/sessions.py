"""What a bridge holds of each sandbox that is used through it, and the clients of the platform by owner's key."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from rollbox import Client, Sandbox
from rollbox_bridges.clients import Clients

# What was used least recently goes beyond this; a call that needs it again opens it again.
_MOST: Final = 20_000


class Held(Protocol):
    """What is held of one sandbox: nothing that could not be had again.

    Attributes:
        sandbox, key: it, and its owner's key.
    """

    sandbox: Sandbox
    key: str

    async def aclose(self) -> None:
        """Close its connections; the sandbox and its commands go on."""


_Session = TypeVar("_Session", bound=Held)


class Owners(Generic[_Session]):
    """Clients by owner's key, and sessions by sandbox.

    Args:
        url: of the gateway; None: as the SDK finds it.
        made: makes the session of a sandbox of an owner's key.
    """

    def __init__(self, url: str | None, made: Callable[[Sandbox, str], _Session]) -> None:
        self._clients = Clients(url, self._drop_all)
        self._made = made
        self._sessions: OrderedDict[str, _Session] = OrderedDict()

    async def client(self, key: str) -> Client:
        """The client of an owner's key; nothing is sent."""
        return await self._clients.client(key)

    async def session(self, sandbox_id: str, key: str) -> _Session:
        """The session of a sandbox.

        Raises:
            SandboxError: as `Client.connect`.
        """
        kept = self.known(sandbox_id)
        if kept is not None and kept.key == key:
            return kept
        return await self.keep(await (await self.client(key)).connect(sandbox_id), key)

    async def keep(self, sandbox: Sandbox, key: str) -> _Session:
        """Make the session of a sandbox that was opened; another call may have been sooner."""
        kept = self.known(sandbox.id)
        if kept is not None and kept.key == key:
            return kept
        made = self._sessions[sandbox.id] = self._made(sandbox, key)
        if len(self._sessions) > _MOST:
            _, oldest = self._sessions.popitem(last=False)
            await oldest.aclose()
        return made

    def known(self, sandbox_id: str) -> _Session | None:
        """The session of a sandbox, where there is one."""
        if sandbox_id in self._sessions:
            self._sessions.move_to_end(sandbox_id)
        return self._sessions.get(sandbox_id)

    def all(self) -> list[_Session]:
        """Those that there are."""
        return [*self._sessions.values()]

    async def drop(self, sandbox_id: str) -> None:
        """Forget a sandbox."""
        session = self._sessions.pop(sandbox_id, None)
        if session is not None:
            await session.aclose()

    async def aclose(self) -> None:
        """Close everything; sandboxes go on."""
        for name in [*self._sessions]:
            await self.drop(name)
        await self._clients.aclose()

    async def _drop_all(self, key: str | None) -> None:
        for name in [name for name, one in self._sessions.items() if one.key == key]:
            await self.drop(name)
