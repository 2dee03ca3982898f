"""`process.Process`: commands with streams, input, signals and terminals, as E2B's clients call them."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Final

from aiohttp import web

from rollbox import ExecSummary, SandboxError, errors
from rollbox_bridges.connect import codec, serving
from rollbox_bridges.connect.codes import ConnectError
from rollbox_bridges.e2b.messages import PROCESS
from rollbox_bridges.e2b.sessions import Session
from rollbox_bridges.e2b.tags import exec_id_of, on_terminal, tag_of
from rollbox_bridges.e2b.users import user_of
from rollbox_bridges.e2b.words import in_stream
from rollbox_bridges.processes.streaming import Dialect, Telling, stream

_M: Final = PROCESS
_SIGNALS: Final = {9: signal.SIGKILL, 15: signal.SIGTERM}


async def start(request: web.Request, session: Session) -> web.StreamResponse:
    """Start a command, and stream its output and its end."""
    shape, asked = await serving.asked(request, _M["StartRequest"], streams=True)
    config = asked.process
    if not config.cmd:
        raise ConnectError("invalid_argument", "process.cmd is empty")
    terminal = _size(asked.pty) if asked.HasField("pty") else None
    process = await session.commands.start(
        [config.cmd, *config.args],
        exec_id=exec_id_of(asked.tag if asked.HasField("tag") else None, terminal=terminal is not None),
        env=dict(config.envs),
        cwd=config.cwd if config.HasField("cwd") and config.cwd else None,
        user=user_of(request),
        stdin=terminal is not None or not asked.HasField("stdin") or asked.stdin,
        terminal=terminal,
        timeout=serving.timeout_s(request),
    )
    tell = _telling(session, serving.Answers(request, shape), "StartResponse", process.exec_id)
    # Its time is the command's, which the platform ends. A caller that goes away leaves it running, as at E2B.
    return await stream(request, session.commands, process, tell, nullcontext())


async def connect(request: web.Request, session: Session) -> web.StreamResponse:
    """Stream the output of a command that runs, from now on, and its end."""
    shape, asked = await serving.asked(request, _M["ConnectRequest"], streams=True)
    summary = await _selected(session, asked.process)
    process = await session.commands.attach(summary)
    tell = _telling(session, serving.Answers(request, shape), "ConnectResponse", summary.exec_id, summary.pid)
    return await stream(request, session.commands, process, tell, serving.within(request))


async def list_(request: web.Request, session: Session) -> web.StreamResponse:
    """List the commands that run."""
    shape, _ = await serving.asked(request, _M["ListRequest"], streams=False)
    return serving.answer(shape, _M["ListResponse"](processes=[_info(one) for one in await session.commands.list()]))


async def update(request: web.Request, session: Session) -> web.StreamResponse:
    """Set the size of a terminal."""
    shape, asked = await serving.asked(request, _M["UpdateRequest"], streams=False)
    if not asked.HasField("pty"):
        raise ConnectError("invalid_argument", "there is no pty in the update, and nothing else can be updated")
    process = session.commands.writer((await _selected(session, asked.process)).exec_id)
    with _running():
        await process.resize(*_size(asked.pty))
    return serving.answer(shape, _M["UpdateResponse"]())


async def send_input(request: web.Request, session: Session) -> web.StreamResponse:
    """Write input."""
    shape, asked = await serving.asked(request, _M["SendInputRequest"], streams=False)
    await _write(session, asked.process, asked.input)
    return serving.answer(shape, _M["SendInputResponse"]())


async def stream_input(request: web.Request, session: Session) -> web.StreamResponse:
    """Write input as it comes."""
    shape = codec.shape_of(request.headers.get("Content-Type", ""), streams=True)
    answers, selector = serving.Answers(request, shape), None
    async for content in serving.envelopes(request):
        event = codec.decoded(shape.codec, _M["StreamInputRequest"], content)
        if event.HasField("start"):
            selector = event.start.process
            await _selected(session, selector)
        elif event.HasField("data"):
            if selector is None:
                raise ConnectError("invalid_argument", "data come before the start, which names the process")
            await _write(session, selector, event.data.input)
    await answers.send(_M["StreamInputResponse"]())
    await answers.end()
    return answers.response


async def send_signal(request: web.Request, session: Session) -> web.StreamResponse:
    """Send a signal; SIGKILL to all that the command has started."""
    shape, asked = await serving.asked(request, _M["SendSignalRequest"], streams=False)
    number = _SIGNALS.get(asked.signal)
    if number is None:
        raise ConnectError("invalid_argument", f"signal {asked.signal} is neither SIGTERM nor SIGKILL")
    with _running():
        process = await session.commands.attach(await _selected(session, asked.process))
        try:
            await process.signal(number, tree=number == signal.SIGKILL)
        finally:
            await process.aclose()
    return serving.answer(shape, _M["SendSignalResponse"]())


async def close_stdin(request: web.Request, session: Session) -> web.StreamResponse:
    """Close the input."""
    shape, asked = await serving.asked(request, _M["CloseStdinRequest"], streams=False)
    process = session.commands.writer((await _selected(session, asked.process)).exec_id)
    with _running():
        await process.stdin.write_eof()
    return serving.answer(shape, _M["CloseStdinResponse"]())


CALLS: Final[dict[str, tuple[Callable[[web.Request, Session], Awaitable[web.StreamResponse]], bool]]] = {
    "Start": (start, True),
    "Connect": (connect, True),
    "List": (list_, False),
    "Update": (update, False),
    "SendInput": (send_input, False),
    "StreamInput": (stream_input, True),
    "SendSignal": (send_signal, False),
    "CloseStdin": (close_stdin, False),
}
"""Name -> what serves it, and whether its answer is a stream."""


def _telling(session: Session, answers: serving.Answers, kind: str, exec_id: str, pid: int = 0) -> Telling:
    def failed(error: SandboxError) -> ConnectError:
        return in_stream(error, session.sandbox.id)

    # Go, whose words these are, has -1 for the exit code of a command that a signal has ended.
    dialect = Dialect(PROCESS, "ProcessEvent", failed, lambda _: -1)
    return Telling(dialect, answers, kind, pid, terminal=on_terminal(exec_id))


async def _write(session: Session, selector: Any, given: Any) -> None:  # noqa: ANN401 - messages
    process = session.commands.writer((await _selected(session, selector)).exec_id)
    data = given.pty if given.HasField("pty") else given.stdin
    with _running():
        await process.stdin.write(data)


@contextmanager
def _running() -> Iterator[None]:
    """Tell a command that has ended as one that is not there: clients take that for an answer, and not for an error."""
    try:
        yield
    except (errors.Conflict, errors.ExecNotFound) as error:
        raise ConnectError("not_found", f"the command takes nothing any more: {error}") from error


async def _selected(session: Session, selector: Any) -> ExecSummary:  # noqa: ANN401 - a message
    if selector.HasField("tag"):
        tag = selector.tag
        return await session.commands.find(f"tag {tag!r}", lambda one: tag_of(one.exec_id) == tag)
    if not selector.HasField("pid"):
        raise ConnectError("invalid_argument", "the process is named by neither pid nor tag")
    pid = selector.pid
    return await session.commands.find(f"pid {pid}", lambda one: one.pid == pid)


def _size(pty: Any) -> tuple[int, int]:  # noqa: ANN401 - a message
    return pty.size.cols or 80, pty.size.rows or 24


def _info(one: ExecSummary) -> Any:  # noqa: ANN401 - a message
    config = _M["ProcessConfig"](cmd=one.argv[0] if one.argv else "", args=one.argv[1:])
    tag = tag_of(one.exec_id)
    return _M["ProcessInfo"](config=config, pid=one.pid, **({} if tag is None else {"tag": tag}))
