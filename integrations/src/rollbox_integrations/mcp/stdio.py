"""A server for the client that has started this process, over its standard streams."""

from __future__ import annotations

import asyncio
from typing import Any

from mcp.server import Server
from mcp.server.stdio import stdio_server


async def serve(server: Server[Any], ended: asyncio.Event) -> None:
    """Serve until the client closes standard input, or until `ended`.

    After `ended` a thread may still wait for input, which nothing can interrupt: the process has to end without it.
    """
    serving = asyncio.create_task(_served(server), name="rollbox mcp over stdio")
    waiting = asyncio.create_task(ended.wait(), name="rollbox mcp signals")
    try:
        await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()
    finally:
        waiting.cancel()
        serving.cancel()


async def _served(server: Server[Any]) -> None:
    async with stdio_server() as (received, sent):
        await server.run(received, sent, server.create_initialization_options())
