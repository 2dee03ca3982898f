"""A network that fails: a TCP proxy that cuts every connection after a random number of bytes."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager


class CuttingProxy:
    """Passes bytes on until it cuts.

    Attributes:
        cuts: how many connections it has cut so far.
        mean_bytes: how much a connection carries on average, both ways together, until it is cut; 0: for ever.
    """

    def __init__(self, upstream: str, seed: int, mean_bytes: int) -> None:
        self.cuts = 0
        self.mean_bytes = mean_bytes
        self.url = ""
        host, port = upstream.removeprefix("http://").split(":")
        self._upstream = (host, int(port))
        self._random = random.Random(seed)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, to its cut or its end."""
        up_reader, up_writer = await asyncio.open_connection(*self._upstream)
        left = int(self._random.expovariate(1 / self.mean_bytes)) if self.mean_bytes else None
        budget = _Budget(left)
        passing = [
            asyncio.create_task(_passed(reader, up_writer, budget)),
            asyncio.create_task(_passed(up_reader, writer, budget)),
        ]
        try:
            # The end of either way, or of the budget, is the end of both: a cable knows no half.
            await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.cuts += budget.spent
            for task in passing:
                task.cancel()
            for end in (writer, up_writer):
                end.transport.abort()
            await asyncio.gather(*passing, return_exceptions=True)


class _Budget:
    def __init__(self, left: int | None) -> None:
        self.left = left
        self.spent = False

    def take(self, count: int) -> int:
        """How many of so many bytes may still pass."""
        if self.left is None:
            return count
        granted = min(count, self.left)
        self.left -= granted
        self.spent = self.left == 0
        return granted


async def _passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, budget: _Budget) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(2**16):
            writer.write(data[: budget.take(len(data))])
            await writer.drain()
            if budget.spent:
                return


@asynccontextmanager
async def cutting(upstream: str, *, seed: int, mean_bytes: int) -> AsyncIterator[CuttingProxy]:
    """Such a proxy before `upstream` (http://host:port)."""
    proxy = CuttingProxy(upstream, seed, mean_bytes)
    under_way: set[asyncio.Task[None]] = set()

    def accepted(handle: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.ensure_future(handle(reader, writer))
            under_way.add(task)
            task.add_done_callback(under_way.discard)

        return begin

    server = await asyncio.start_server(accepted(proxy.serve), "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        for task in list(under_way):
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
