"""Whether a part of a soak is up."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp


async def listens(port: int) -> bool:
    """Whether somebody listens on this port of 127.0.0.1."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


async def opens(socket: Path) -> bool:
    """Whether somebody listens on this socket."""
    try:
        _, writer = await asyncio.open_unix_connection(str(socket))
    except OSError:
        return False
    writer.close()
    return True


async def pong(socket: Path) -> bool:
    """Whether a Redis answers on this socket."""
    try:
        answers, writer = await asyncio.open_unix_connection(str(socket))
        writer.write(b"PING\r\n")
        answer = await answers.readline()
    except OSError:
        return False
    writer.close()
    return answer.startswith(b"+PONG")


async def answers(url: str) -> bool:
    """Whether this address answers 200."""
    try:
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        return False


async def says(path: Path) -> bool:
    """Whether somebody has written into this file."""
    return _has_words(path)


def _has_words(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0
