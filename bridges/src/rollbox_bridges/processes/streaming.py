"""Streams the events of a command: its start, its output, its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from rollbox import ExecResult, OutputStream, Process, SandboxError
from rollbox_bridges import tasks
from rollbox_bridges.connect import serving
from rollbox_bridges.connect.codes import ConnectError
from rollbox_bridges.processes.alive import keeping_alive
from rollbox_bridges.processes.commands import Commands


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a protocol tells the events of a command.

    Attributes:
        messages: by name; those of events are Started, Data, Ended and KeepAlive.
        event: the name of the message that has one of these.
        failed: what an error in the middle of a stream is called.
        code_of_signal: the exit code of a command that this signal has ended.
    """

    messages: Mapping[str, Any]
    event: str
    failed: Callable[[SandboxError], ConnectError]
    code_of_signal: Callable[[int], int]


@dataclass(frozen=True, slots=True)
class Telling:
    """Tells the events of a command, each in a message of one kind.

    Attributes:
        dialect: of the protocol.
        answers: the stream.
        kind: the name of the message.
        pid: of the command, where its process does not say it.
        terminal: whether all that it writes is told as that of a terminal.
    """

    dialect: Dialect
    answers: serving.Answers
    kind: str
    pid: int = 0
    terminal: bool = False

    def event(self, **event: Any) -> Any:  # noqa: ANN401 - a field of the message, and the message
        """Make the message of an event."""
        messages = self.dialect.messages
        return messages[self.kind](event=messages[self.dialect.event](**event))

    async def __call__(self, **event: Any) -> None:  # noqa: ANN401
        """Tell an event."""
        await self.answers.send(self.event(**event))

    async def end(self, result: ExecResult) -> None:
        """Tell how a command has ended."""
        if result.end == "deadline":
            error = ConnectError("deadline_exceeded", "the command has reached its timeout, and was killed")
            await self.answers.end(error)
            return
        told = ended(result, self.dialect.code_of_signal)
        await self.answers.end(last=self.event(end=self.dialect.messages["Ended"](**told)))


async def stream(
    request: web.Request,
    commands: Commands,
    process: Process,
    tell: Telling,
    limit: AbstractAsyncContextManager[None],
) -> web.StreamResponse:
    """Stream a command to its end. A caller that goes away leaves it running."""
    messages = tell.dialect.messages
    try:
        await tell(start=messages["Started"](pid=process.pid or tell.pid))
        async with keeping_alive(request, lambda: tell(keepalive=messages["KeepAlive"]())), limit:
            await _relay(process, tell)
        await tell.end(await process.wait())
        await commands.forget(process)
    except ConnectError as error:
        await tell.answers.end(error)
    except SandboxError as error:
        await tell.answers.end(tell.dialect.failed(error))
    finally:
        await process.aclose()
    return tell.answers.response


def ended(result: ExecResult, code_of_signal: Callable[[int], int]) -> dict[str, Any]:
    """The end of a command, in the words of Go's processes, which clients know."""
    if result.end == "exited":
        status = f"exit status {result.exit_code}"
        failed = {"error": status} if result.exit_code else {}
        return {"exit_code": result.exit_code, "exited": True, "status": status, **failed}
    name = (result.signal_name or "SIGKILL").removeprefix("SIG").lower()
    status = f"signal: {'killed' if name == 'kill' else name}"
    error = status if result.end == "signalled" else f"{status} ({result.end})"
    return {"exit_code": code_of_signal(result.signal or 9), "exited": False, "status": status, "error": error}


async def _relay(process: Process, tell: Telling) -> None:
    """Tell all that a command writes."""
    named = "pty" if tell.terminal else "stdout"
    pumps = [asyncio.create_task(_pump(*one, tell)) for one in ((process.stdout, named), (process.stderr, "stderr"))]
    try:
        await tasks.finished(pumps)
    finally:
        await tasks.over(pumps)


async def _pump(output: OutputStream, name: str, tell: Telling) -> None:
    async for data in output:
        await tell(data=tell.dialect.messages["Data"](**{name: data}))
        if output.gaps:
            break
    if output.gaps:
        lost = sum(gap.lost_bytes for gap in output.gaps)
        raise ConnectError("data_loss", f"{lost} bytes of {name} were dropped before they were read")
