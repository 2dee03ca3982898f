"""Ports of a container that are reached by ports of this machine: connections are passed on, byte by byte."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from rollbox import Sandbox, SandboxError
from rollbox_bridges.docker.bindings import Binding
from rollbox_bridges.docker.words import Refusal

_Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
_CHUNK_BYTES: Final = 2**16
_MOST_CONNECTIONS: Final = 1000


class Published:
    """The published ports of one container.

    Args:
        sandbox: of it.
        bindings: of its create.
    """

    def __init__(self, sandbox: Sandbox, bindings: tuple[Binding, ...]) -> None:
        self._sandbox = sandbox
        self._bindings = bindings
        self._servers: list[asyncio.Server] = []
        self._serving: set[asyncio.Task[None]] = set()
        self.ports: list[tuple[Binding, int]] = []

    async def open(self) -> None:
        """Listen on all of them.

        Raises:
            Refusal: one is taken, or no address of this machine.
        """
        try:
            for binding in self._bindings:
                server = await asyncio.start_server(self._serve_of(binding.port), binding.address, binding.host_port)
                self._servers.append(server)
                self.ports.append((binding, server.sockets[0].getsockname()[1]))
        except OSError as error:
            await self.aclose()
            place = f"{binding.address}:{binding.host_port}"
            raise Refusal(500, f"Bind for {place} failed: port is already allocated ({error})") from error

    async def aclose(self) -> None:
        """Listen no more, and cut what is open. Idempotent."""
        for server in self._servers:
            server.close()
        for task in self._serving:
            task.cancel()
        if self._serving:
            await asyncio.wait([*self._serving])
        self._servers.clear()
        self.ports.clear()

    def _serve_of(self, port: int) -> _Serve:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None  # noqa: S101 - it is this one
            self._serving.add(task)
            try:
                if len(self._serving) <= _MOST_CONNECTIONS:
                    await _passed(reader, writer, self._sandbox, port)
            except (SandboxError, OSError, asyncio.CancelledError):
                writer.transport.abort()
            finally:
                self._serving.discard(task)
                writer.close()

        return serve


async def _passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sandbox: Sandbox, port: int) -> None:
    """Pass bytes on in both directions, until the server has sent its last one and the client is told."""
    async with await sandbox.ports.connect_tcp(port) as stream:

        async def to_server() -> None:
            while data := await reader.read(_CHUNK_BYTES):
                await stream.write(data)
            await stream.write_eof()

        up = asyncio.create_task(to_server(), name="rollbox bridge port")
        try:
            while data := await stream.read(_CHUNK_BYTES):
                writer.write(data)
                await writer.drain()
            with suppress(OSError):
                writer.write_eof()
        finally:
            up.cancel()
            await asyncio.gather(up, return_exceptions=True)
