"""An exec whose input does not go with its request: written to the command while a request waits for its end.

The request is an exec as any other: what it answers, that it never runs twice, and that a command whose caller is gone
is killed. A start with the same parameters goes before it and tells when there is somebody to write to.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from typing import Any

from rollbox._problem import SandboxError
from rollbox.errors import Conflict, InvalidArgument, Unsupported
from rollbox.files.transfer import of_file
from rollbox.gateway import Access, Gateway
from rollbox.process.link import Link
from rollbox.request import Stdin

# Nothing of the output: the answer brings that.
_NO_OUTPUT = 2**62
# Of the end of a sandbox the writer hears as soon as the request that waits, which says what it was.
_VERDICT_S = 20.0
_OLDER = "the gateway, or the sandbox, was made before input could be written to an exec; the command was killed"
_NEWER = (
    "Upgrade the platform and make a new sandbox. A MiB in bytes or text goes with the request everywhere, "
    "sandbox.files.write takes any size."
)


async def run_fed(gateway: Gateway, access: Access, body: Mapping[str, Any], stdin: Stdin) -> dict[str, Any]:
    """Run a command and return its result as it came, `body` being one with `stdin_open`.

    Holds a MiB of the input at a time. An input that the command does not read to its end is no error.

    Raises:
        SandboxError: as an exec; StreamInterrupted also when the input could not be written for 60 s. The command is
            killed then, as after an error of what makes the input, which is raised as it is. Unsupported where the
            platform is older than this.
    Cancel safety: the command is killed on the server, within 2 s.
    """
    started = await gateway.spawn(access, body)
    link = Link(gateway, access, body["exec_id"], (_NO_OUTPUT, _NO_OUTPUT))
    running = asyncio.ensure_future(gateway.exec(access, body))
    feeding = asyncio.ensure_future(_feed(link, stdin))
    try:
        await asyncio.wait((running, feeding), return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            await _await_end(running, feeding.exception())
        # The request came second, so it says this of every command that was quick.
        return {**await running, "replayed": started["replayed"]}
    except InvalidArgument as error:
        if error.details.get("field") != "stdin_open":
            raise
        # Nobody who joins it would end it there.
        await gateway.end_exec(access, body["exec_id"])
        raise Unsupported(_OLDER, hint=_NEWER, request_id=error.request_id, sandbox_id=access.sandbox_id) from error
    finally:
        for task in (feeding, running):
            task.cancel()
        await asyncio.gather(feeding, running, return_exceptions=True)
        await link.close()


async def _await_end(running: asyncio.Future[dict[str, Any]], failure: BaseException | None) -> None:
    if failure is None:
        await asyncio.wait((running,))
        return
    if isinstance(failure, SandboxError):
        await asyncio.wait((running,), timeout=_VERDICT_S)
    if not running.done():
        raise failure


async def _feed(link: Link, stdin: Stdin) -> None:
    async for piece in _pieces(stdin):
        if not isinstance(piece, bytes | bytearray | memoryview):
            raise InvalidArgument(f"stdin gives {type(piece).__name__}, not bytes")
        try:
            await link.write(bytes(piece))
        except Conflict:
            # The command reads no more, or has ended: its result says the rest.
            return
    await link.write_eof()
    try:
        await link.drain()
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
