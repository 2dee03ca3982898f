"""The streams of a process over a connection that was taken over, or over an answer: with heads, or bare."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from rollbox import OutputStream, Process, SandboxError, errors
from rollbox_bridges import tasks
from rollbox_bridges.docker.frames import STDERR, STDOUT, frame
from rollbox_bridges.docker.hijacking import Connection
from rollbox_bridges.faults import sentence

_CHUNK_BYTES: Final = 2**16
_INPUT: Final = "rollbox bridge stdin"
Send = Callable[[bytes], Awaitable[None]]


async def output(process: Process, send: Send, *, tty: bool, stdout: bool, stderr: bool) -> None:
    """Send all that a process writes, to its end.

    Raises:
        ConnectionError: the client is gone; the process goes on.
        SandboxError: the sandbox has ended, or output was lost.
    """

    async def pump(stream: OutputStream, number: int, wanted: bool) -> None:
        async for data in stream:
            if wanted:
                await send(data if tty else frame(number, data))
            if stream.gaps:
                break
        if wanted and stream.gaps:
            lost = sum(gap.lost_bytes for gap in stream.gaps)
            raise errors.StreamInterrupted(f"{lost} bytes of output were dropped before they were read")

    pumps = [
        asyncio.create_task(pump(process.stdout, STDOUT, stdout), name="rollbox bridge stdout"),
        asyncio.create_task(pump(process.stderr, STDERR, stderr), name="rollbox bridge stderr"),
    ]
    try:
        await tasks.finished(pumps)
    finally:
        await tasks.over(pumps)


async def both(
    process: Process,
    writer: Process | None,
    connection: Connection,
    *,
    tty: bool,
    stdout: bool,
    stderr: bool,
    closes: bool = True,
) -> None:
    """Send output, and write what comes as input, until the process has ended.

    Args:
        process: whose output is sent.
        writer: whose input is written; None: what comes is not read.
        connection: of the client.
        tty: whether the process has a terminal.
        stdout: whether that is sent.
        stderr: whether that is sent.
        closes: whether the end of what comes is the end of the input.

    Raises:
        ConnectionError: the client is gone; the process goes on.
        SandboxError: as `output`, after the client was told.
    """
    inputs = [] if writer is None else [asyncio.create_task(_input(writer, connection, closes), name=_INPUT)]
    try:
        await output(process, connection.send, tty=tty, stdout=stdout, stderr=stderr)
    except SandboxError as error:
        # No status can be sent any more: it is the last thing on stderr.
        told = f"\r\n{sentence(error)}\r\n".encode()
        with suppress(ConnectionError):
            await connection.send(told if tty else frame(STDERR, told))
        raise
    finally:
        await tasks.over(inputs)


async def _input(process: Process, connection: Connection, closes: bool) -> None:
    """Write what a client sends, to its end. What a process does not take any more is dropped, as by a pipe."""
    with suppress(errors.Conflict):
        while data := await connection.reader.read(_CHUNK_BYTES):
            await process.stdin.write(data)
        if closes:
            await process.stdin.write_eof()
