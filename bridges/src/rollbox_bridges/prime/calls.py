"""A call of the control plane, as its routes are given it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias

from aiohttp import web

from rollbox import Client
from rollbox_bridges.prime.sessions import Session
from rollbox_bridges.sessions import Owners


class Call(NamedTuple):
    """One call.

    Attributes:
        request: its request.
        owners: clients and sessions.
        key: the key of the owner that has called.
        name: the part of the path that is a name: the id of a sandbox or of a checkpoint; "": it has none.
        more: a second one.
    """

    request: web.Request
    owners: Owners[Session]
    key: str
    name: str = ""
    more: str = ""

    async def client(self) -> Client:
        """The client of the owner."""
        return await self.owners.client(self.key)

    async def session(self) -> Session:
        """The session of the sandbox; raises its end."""
        return await self.owners.session(self.name, self.key)


Route: TypeAlias = Callable[[Call], Awaitable[web.StreamResponse]]
