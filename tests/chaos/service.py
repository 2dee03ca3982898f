"""What a Service of Kubernetes is to replicas: one address, every new connection to some replica that is there."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager

CHUNK = 65_536


class Service:
    """Passes connections on; use ``serving``.

    Attributes:
        port: of 127.0.0.1, where it listens.
        backends: the ports of the replicas, by name; the owner changes it.
    """

    def __init__(self, draw: random.Random) -> None:
        self.port = 0
        self.backends: dict[str, int] = {}
        self._draw = draw
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Service]:
        """Listen while the block runs; its connections end with it."""
        async with await asyncio.start_server(self._accept, "127.0.0.1", 0) as server:
            self.port = server.sockets[0].getsockname()[1]
            try:
                yield self
            finally:
                server.close()
                for task in self._tasks:
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._pass(near, back))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pass(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        try:
            found = await self._connected()
            if found is not None:
                far, forth = found
                try:
                    await _both(_pump(near, forth), _pump(far, back))
                finally:
                    forth.close()
        finally:
            back.close()

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        ports = [*self.backends.values()]
        self._draw.shuffle(ports)
        for port in ports:
            try:
                return await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                continue
        return None


async def _both(*pumps: Coroutine[object, object, None]) -> None:
    """Until one direction has ended: a replica that has died takes the whole connection with it."""
    tasks = [asyncio.ensure_future(pump) for pump in pumps]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    try:
        while part := await source.read(CHUNK):
            target.write(part)
            await target.drain()
    except OSError:
        pass  # the other direction ends as well
