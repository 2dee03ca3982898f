"""Clients of the platform by owner's key, and what the bridge holds of each sandbox that is used through it."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from rollbox import Client, Sandbox
from rollbox_bridges.clients import Clients
from rollbox_bridges.e2b.commands import Commands
from rollbox_bridges.e2b.contexts import Contexts
from rollbox_bridges.e2b.users import Names
from rollbox_bridges.e2b.watchers import Watchers

# What was used least recently goes beyond this; a call that needs it again opens it again.
_MOST_SESSIONS: Final = 20_000


class Session:
    """What the bridge holds of one sandbox; nothing that could not be had again.

    Attributes:
        sandbox, key: it, and its owner's key.
        commands: its commands.
        names: of its users.
        watchers, contexts: what its clients have begun here.
    """

    def __init__(self, sandbox: Sandbox, key: str) -> None:
        self.sandbox = sandbox
        self.key = key
        self.commands = Commands(sandbox)
        self.names = Names(sandbox.files)
        self.watchers = Watchers()
        self.contexts = Contexts(sandbox)

    async def aclose(self) -> None:
        """Close its connections; the sandbox and its commands go on, its watchers and interpreters end."""
        await self.commands.aclose()
        await self.watchers.aclose()
        await self.contexts.aclose()


class Owners:
    """Clients and sessions, by key and by sandbox.

    Args:
        url: of the gateway; None: as the SDK finds it.
    """

    def __init__(self, url: str | None) -> None:
        self._clients = Clients(url, self._drop_all)
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    async def client(self, key: str) -> Client:
        """The client of an owner's key; nothing is sent."""
        return await self._clients.client(key)

    async def session(self, sandbox_id: str, key: str) -> Session:
        """The session of a sandbox.

        Raises:
            SandboxError: as `Client.connect`.
        """
        kept = self.known(sandbox_id)
        if kept is not None and kept.key == key:
            return kept
        return await self.keep(await (await self.client(key)).connect(sandbox_id), key)

    async def keep(self, sandbox: Sandbox, key: str) -> Session:
        """Make the session of a sandbox that was opened; another call may have been sooner."""
        kept = self.known(sandbox.id)
        if kept is not None and kept.key == key:
            return kept
        made = self._sessions[sandbox.id] = Session(sandbox, key)
        if len(self._sessions) > _MOST_SESSIONS:
            _, oldest = self._sessions.popitem(last=False)
            await oldest.aclose()
        return made

    def known(self, sandbox_id: str) -> Session | None:
        """The session of a sandbox, where there is one."""
        if sandbox_id in self._sessions:
            self._sessions.move_to_end(sandbox_id)
        return self._sessions.get(sandbox_id)

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
