"""A network that fails: a TCP proxy whose connections break after some bytes, or some time, or fall silent."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import random
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

# Of asm-generic/socket.h: the kernel drops what a packet filter does not let through.
_SO_ATTACH_FILTER = 26
_RETURN_NOTHING = struct.pack("HBBI", 0x06, 0, 0, 0)


class CuttingProxy:
    """Passes bytes on until it cuts.

    Attributes:
        cuts: how many connections it has cut so far.
        holes: how many of them fell silent: both ends stay as they are, and nothing is confirmed to either any more.
        mean_bytes: how much a connection carries on average, both ways together, until it is cut; 0: for ever.
        mean_s: how long one lives on average; 0: for ever.
        hole_share: how many of the cuts are silence.
    """

    def __init__(self, upstream: str, seed: int, mean_bytes: int, mean_s: float = 0, hole_share: float = 0) -> None:
        self.cuts = 0
        self.holes = 0
        self.mean_bytes = mean_bytes
        self.mean_s = mean_s
        self.hole_share = hole_share
        self.url = ""
        host, port = upstream.removeprefix("http://").split(":")
        self._upstream = (host, int(port))
        self._random = random.Random(seed)
        self._cut_now = asyncio.Event()

    def good_from_here(self) -> None:
        """Connections that are made from now on are not cut."""
        self.mean_bytes, self.mean_s = 0, 0

    def cut(self) -> None:
        """Cuts every connection that is there."""
        now, self._cut_now = self._cut_now, asyncio.Event()
        now.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, to its cut or its end."""
        up_reader, up_writer = await asyncio.open_connection(*self._upstream)
        budget = _Budget(int(self._random.expovariate(1 / self.mean_bytes)) if self.mean_bytes else None)
        life_s = self._random.expovariate(1 / self.mean_s) if self.mean_s else None
        silent = self._random.random() < self.hole_share
        passing = [
            asyncio.create_task(_passed(reader, up_writer, budget)),
            asyncio.create_task(_passed(up_reader, writer, budget)),
            cut_now := asyncio.create_task(self._cut_now.wait()),
        ]
        try:
            # The end of either way, or of the budget, is the end of both: a cable knows no half.
            ended, _ = await asyncio.wait(passing, timeout=life_s, return_when=asyncio.FIRST_COMPLETED)
            cut = not ended or budget.spent or cut_now in ended
            self.cuts += cut
            if cut and silent:
                self.holes += 1
                for end in (writer, up_writer):
                    _deafen(end)
                    end.transport.pause_reading()  # type: ignore[attr-defined]
                await asyncio.get_running_loop().create_future()
        finally:
            for task in passing:
                task.cancel()
            for end in (writer, up_writer):
                end.transport.abort()
            await asyncio.gather(*passing, return_exceptions=True)


def _deafen(end: asyncio.StreamWriter) -> None:
    """Lets nothing in any more, not even what confirms or asks."""
    program = ctypes.create_string_buffer(_RETURN_NOTHING)
    filtered = struct.pack("@HP", 1, ctypes.addressof(program))
    end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, filtered)


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
async def cutting(
    upstream: str, *, seed: int, mean_bytes: int, mean_s: float = 0, hole_share: float = 0
) -> AsyncIterator[CuttingProxy]:
    """Such a proxy before `upstream` (http://host:port)."""
    proxy = CuttingProxy(upstream, seed, mean_bytes, mean_s, hole_share)
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
