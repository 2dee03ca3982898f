"""The sandboxes that one server holds: no other one of the key's owner is reached by its tools."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from typing import Final, Literal
from uuid import uuid4

from rollbox import Cell, Client, Interpreter, Sandbox, SandboxError
from rollbox.errors import Conflict, SandboxNotFound
from rollbox.options import CreateOptions
from rollbox.record import SandboxRecord
from rollbox_integrations.mcp.settings import Settings

# Seconds that a sandbox outlives a server that was killed.
_LEASE_S: Final = 30
_DELETE_LIMIT_S: Final = 10
_OVER: Final = {"ending", "ended"}
# Of each cell's stdout and stderr, each; of the last cells of a sandbox, for `read_output`.
_KEPT_BYTES: Final = 512 * 1024
_KEPT_CELLS: Final = 8


class Held:
    """A sandbox with the interpreters that run in it, and the last cells whose output was shown in part.

    Attributes:
        sandbox: the SDK's own.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        """Hold it."""
        self.sandbox = sandbox
        self._interpreters: dict[str, Interpreter] = {}
        self._starting = asyncio.Lock()
        self._cells: OrderedDict[str, Cell] = OrderedDict()

    async def interpreter(self, language: Literal["python", "node"], *, restart: bool) -> Interpreter:
        """Return the interpreter of a language, which is started where there is none.

        Raises:
            InvalidArgument: the image has not what it needs.
            SandboxError: the sandbox has ended.
        """
        async with self._starting:
            if (found := self._interpreters.get(language)) is None:
                found = await self.sandbox.interpreter(language, max_output_bytes=_KEPT_BYTES)
                self._interpreters[language] = found
            elif restart:
                await found.restart()
            return found

    def keep(self, cell: Cell) -> None:
        """Keep the output of a cell, in place of that of the oldest."""
        self._cells[cell.cell_id] = cell
        while len(self._cells) > _KEPT_CELLS:
            self._cells.popitem(last=False)

    def cell(self, cell_id: str) -> Cell | None:
        """Return a cell that is kept."""
        return self._cells.get(cell_id)

    async def aclose(self) -> None:
        """Close the connections of its interpreters; the sandbox has ended or is about to."""
        for one in self._interpreters.values():
            with contextlib.suppress(SandboxError):
                await one.aclose()


class Sandboxes:
    """Creates, finds and deletes them; an asynchronous context manager that leaves none."""

    def __init__(self, client: Client, settings: Settings) -> None:
        """Create nothing yet.

        Args:
            client: closed with it.
            settings: its limits.
        """
        self.settings = settings
        self._client = client
        self._labels = {"rollbox.host": "mcp", "rollbox.mcp": uuid4().hex}
        self._held: dict[str, Held] = {}
        self._making = 0

    async def create(self, image: str, options: CreateOptions) -> Sandbox:
        """Create a sandbox; `options` as for `Sandbox.create`, but for labels and lease.

        Raises:
            Conflict: there are as many as there may be.
            SandboxError: as `Sandbox.create`.
        """
        self._making += 1
        try:
            await self._check_room()
            given: CreateOptions = {**options, "labels": self._labels, "lease": _LEASE_S}
            sandbox = await self._client.create(image, **given)
            self._held[sandbox.id] = Held(sandbox)
        finally:
            self._making -= 1
        return sandbox

    def get(self, sandbox_id: str) -> Held:
        """Return a sandbox of this server.

        Raises:
            SandboxNotFound: it is none.
        """
        try:
            return self._held[sandbox_id]
        except KeyError:
            detail = f"sandbox {sandbox_id!r} is none that this server has"
            hint = "Look with list_sandboxes, or create one with create_sandbox."
            raise SandboxNotFound(detail, hint=hint, sandbox_id=sandbox_id) from None

    async def list(self) -> list[SandboxRecord]:
        """Return the records of those that have not ended."""
        found = await self._client.list(self._labels)
        records = [one for one in found if one.id in self._held and one.state not in _OVER]
        return sorted(records, key=lambda one: one.created_at_ms)

    async def delete(self, sandbox_id: str) -> None:
        """Delete one, with all that runs in it.

        Raises:
            SandboxNotFound: it is none of this server.
        """
        held = self.get(sandbox_id)
        await held.sandbox.delete()
        self._held.pop(sandbox_id, None)
        await held.aclose()

    async def _check_room(self) -> None:
        if len(self._held) + self._making <= self.settings.max_sandboxes:
            return
        living = {one.id for one in await self.list()}
        for ended in self._held.keys() - living:
            await self._held.pop(ended).aclose()
        if len(self._held) + self._making > self.settings.max_sandboxes:
            detail = f"{len(self._held)} sandboxes are there, as many as this server may have"
            raise Conflict(detail, hint="Delete one with delete_sandbox.")

    async def __aenter__(self) -> Sandboxes:
        await self._client.__aenter__()
        return self

    async def __aexit__(self, *raised: object) -> None:
        # By their labels: what a create that was cancelled a moment ago has made is among them.
        try:
            with contextlib.suppress(SandboxError, TimeoutError):
                async with asyncio.timeout(_DELETE_LIMIT_S):
                    await self._client.delete(labels=self._labels)
            for one in self._held.values():
                await one.aclose()
        finally:
            await self._client.aclose()
