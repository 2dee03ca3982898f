"""An exec with streamed input: the input is written to the command while an exec request waits for its end.

A spawn with the same exec_id and parameters starts the command first, since input needs a command that runs. The exec
request joins it. So the result, the protection against running twice and the kill of a command whose caller is gone are
those of any exec.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from typing import Any

from rollbox._problem import SandboxError
from rollbox.errors import Conflict, InvalidArgument
from rollbox.files.transfer import of_file
from rollbox.gateway import Gateway, SandboxAccess
from rollbox.process.connection import Connection
from rollbox.request import Stdin

# An offset beyond all output, so that the connection brings none: the exec request returns it.
_NO_OUTPUT = 2**62
# After a failure of the writer, the exec request has this long to return the cause, if the sandbox has ended.
_VERDICT_S = 20.0


async def run_with_streamed_stdin(
    gateway: Gateway, access: SandboxAccess, body: Mapping[str, Any], stdin: Stdin
) -> dict[str, Any]:
    """Run a command with streamed input and return its result as JSON.

    Holds a MiB of the input at a time. It is no error when the command does not read all of the input.

    Args:
        gateway: that is called.
        access: the sandbox, with its token.
        body: of the exec; it has `stdin_open`.
        stdin: where the input comes from.

    Raises:
        StreamInterrupted: the input could not be written for 60 s. The command is killed then, and also when the source
            of the input fails, whose error is raised unchanged.
        SandboxError: as an exec.
    Cancel safety: the command is killed on the server, within 2 s.
    """
    started = await gateway.spawn(access, body)
    connection = Connection(gateway, access, body["exec_id"], (_NO_OUTPUT, _NO_OUTPUT))
    running = asyncio.ensure_future(gateway.exec(access, body))
    writing = asyncio.ensure_future(_write_all(connection, stdin))
    try:
        await asyncio.wait((running, writing), return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            await _await_end(running, writing.exception())
        # That of the spawn: the exec request came second, so it calls every quick command a replay.
        return {**await running, "replayed": started["replayed"]}
    finally:
        for task in (writing, running):
            task.cancel()
        await asyncio.gather(writing, running, return_exceptions=True)
        await connection.close()


async def _await_end(running: asyncio.Future[dict[str, Any]], failure: BaseException | None) -> None:
    if failure is None:
        await asyncio.wait((running,))
        return
    # What this machine's input lacks is no consequence of the sandbox's end.
    if isinstance(failure, SandboxError) and not isinstance(failure, InvalidArgument):
        await asyncio.wait((running,), timeout=_VERDICT_S)
    if not running.done():
        raise failure


async def _write_all(connection: Connection, stdin: Stdin) -> None:
    async for piece in _pieces(stdin):
        if not isinstance(piece, bytes | bytearray | memoryview):
            raise InvalidArgument(f"stdin gives {type(piece).__name__}, not bytes")
        try:
            await connection.write(bytes(piece))
        except Conflict:
            # The command has closed its stdin or ended; its result follows.
            return
    await connection.write_eof()
    try:
        await connection.drain()
    except Conflict:
        return


async def _pieces(stdin: Stdin) -> AsyncIterator[bytes]:
    if isinstance(stdin, AsyncIterable):
        async for piece in stdin:
            yield piece
    elif isinstance(stdin, bytes | bytearray | memoryview):
        yield bytes(stdin)
    elif isinstance(stdin, str):
        yield stdin.encode()
    else:
        async for piece in of_file(stdin):
            yield piece
