"""`command_session.CommandSession`: commands with streams, input and signals, as the newer generation calls them."""

from __future__ import annotations

import re
import secrets
import signal
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any, Final

from aiohttp import web

from rollbox import ExecSummary, errors
from rollbox_bridges.connect import codec, serving
from rollbox_bridges.connect.codes import ConnectError
from rollbox_bridges.prime.messages import SESSION
from rollbox_bridges.prime.sessions import PREFIX, Session
from rollbox_bridges.prime.words import as_connect
from rollbox_bridges.processes.streaming import Dialect, Telling, stream

_M: Final = SESSION
_SIGNALS: Final = {9: signal.SIGKILL, 15: signal.SIGTERM}
# What a shell says of a command that a signal has ended.
_DIALECT: Final = Dialect(SESSION, "CommandSessionEvent", as_connect, lambda number: 128 + number)
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SESSION: Final = f"{PREFIX}session-"
# A command without a session is nobody's once its caller is gone, also where the bridge is gone too.
_ORPHAN_GRACE_S: Final = 60.0


async def start(request: web.Request, session: Session) -> web.StreamResponse:
    """Start a command, or attach to that of this session, and stream its output and its end."""
    shape, asked = await serving.asked(request, _M["StartRequest"], streams=True)
    command = asked.command
    if not command.cmd:
        raise ConnectError("invalid_argument", "command.cmd is empty")
    uuid = _uuid("session_uuid", asked.session_uuid) if asked.HasField("session_uuid") else None
    terminal = _size(asked.pty) if asked.HasField("pty") else None
    try:
        process = await session.commands.start(
            [command.cmd, *command.args],
            env=dict(command.envs),
            cwd=command.cwd or None,
            user=command.user or None,
            stdin=terminal is not None or asked.stdin,
            terminal=terminal,
            timeout=serving.timeout_s(request),
            orphan_grace=None if uuid else _ORPHAN_GRACE_S,
            exec_id=f"{PREFIX}{secrets.token_hex(12)}" if uuid is None else _SESSION + uuid,
        )
    except errors.Conflict as error:
        raise ConnectError("failed_precondition", f"session {uuid} has another command: {error}") from error
    tell = Telling(_DIALECT, serving.Answers(request, shape), "StartResponse", terminal=terminal is not None)
    # Its time is the command's, which the platform ends.
    streaming = stream(request, session.commands, process, tell, nullcontext())
    if uuid is not None:
        return await streaming
    session.unowned.add(process)
    try:
        return await streaming
    finally:
        if not process.ended:
            await session.kill(process)
        session.unowned.discard(process)


async def connect(request: web.Request, session: Session) -> web.StreamResponse:
    """Stream the output of a session's command, from now on, and its end, also where it has ended already."""
    shape, asked = await serving.asked(request, _M["ConnectRequest"], streams=True)
    summary = await _selected(session, asked.session, ended=True)
    process = await session.commands.attach(summary)
    answers = serving.Answers(request, shape)
    tell = Telling(_DIALECT, answers, "ConnectResponse", summary.pid)
    return await stream(request, session.commands, process, tell, serving.within(request))


async def list_(request: web.Request, session: Session) -> web.StreamResponse:
    """List the commands that run."""
    shape, _ = await serving.asked(request, _M["ListRequest"], streams=False)
    return serving.answer(shape, _M["ListResponse"](sessions=[_info(one) for one in await session.commands.list()]))


async def update(request: web.Request, session: Session) -> web.StreamResponse:
    """Set the size of a terminal."""
    shape, asked = await serving.asked(request, _M["UpdateRequest"], streams=False)
    if not asked.HasField("pty"):
        raise ConnectError("invalid_argument", "there is no pty in the update, and nothing else can be updated")
    process = session.commands.writer((await _selected(session, asked.session)).exec_id)
    await process.resize(*_size(asked.pty))
    return serving.answer(shape, _M["UpdateResponse"]())


async def send_input(request: web.Request, session: Session) -> web.StreamResponse:
    """Write input, once for each id of it."""
    shape, asked = await serving.asked(request, _M["SendInputRequest"], streams=False)
    name = f"input {asked.input_uuid}" if asked.HasField("input_uuid") else None
    await session.once.apply(name, lambda: _write(session, asked.session, asked.input))
    return serving.answer(shape, _M["SendInputResponse"]())


async def stream_input(request: web.Request, session: Session) -> web.StreamResponse:
    """Write input as it comes."""
    shape = codec.shape_of(request.headers.get("Content-Type", ""), streams=True)
    answers, selector = serving.Answers(request, shape), None
    async for content in serving.envelopes(request):
        event = codec.decoded(shape.codec, _M["StreamInputRequest"], content)
        if event.HasField("start"):
            selector = event.start.session
            await _selected(session, selector)
        elif event.HasField("data"):
            if selector is None:
                raise ConnectError("invalid_argument", "data come before the start, which names the session")
            await _write(session, selector, event.data.input)
    await answers.send(_M["StreamInputResponse"]())
    await answers.end()
    return answers.response


async def send_signal(request: web.Request, session: Session) -> web.StreamResponse:
    """Send a signal to all that the command has started, once for each id of it."""
    shape, asked = await serving.asked(request, _M["SendSignalRequest"], streams=False)
    number = _SIGNALS.get(asked.signal)
    if number is None:
        raise ConnectError("invalid_argument", f"signal {asked.signal} is neither SIGTERM nor SIGKILL")
    name = f"signal {asked.signal_uuid}" if asked.HasField("signal_uuid") else None
    await session.once.apply(name, lambda: _signal(session, asked.session, number))
    return serving.answer(shape, _M["SendSignalResponse"]())


CALLS: Final[dict[str, tuple[Callable[[web.Request, Session], Awaitable[web.StreamResponse]], bool]]] = {
    "Start": (start, True),
    "Connect": (connect, True),
    "List": (list_, False),
    "Update": (update, False),
    "SendInput": (send_input, False),
    "StreamInput": (stream_input, True),
    "SendSignal": (send_signal, False),
}
"""Name -> what serves it, and whether its answer is a stream."""


async def _signal(session: Session, selector: Any, number: int) -> None:  # noqa: ANN401 - a message
    process = await session.commands.attach(await _selected(session, selector))
    try:
        # A shell waits for what it runs, so that a signal to itself alone would end neither.
        await process.signal(number, tree=True)
    except (errors.Conflict, errors.ExecNotFound) as error:
        raise ConnectError("not_found", f"the command has ended: {error}") from error
    finally:
        await process.aclose()


async def _write(session: Session, selector: Any, given: Any) -> None:  # noqa: ANN401 - messages
    process = session.commands.writer((await _selected(session, selector)).exec_id)
    data = given.pty if given.HasField("pty") else given.stdin
    try:
        await process.stdin.write(data)
    except errors.Conflict as error:
        raise ConnectError("not_found", f"the input is not taken: {error}") from error


async def _selected(session: Session, selector: Any, *, ended: bool = False) -> ExecSummary:  # noqa: ANN401 - a message
    if selector.HasField("session_uuid"):
        uuid = _uuid("session_uuid", selector.session_uuid)
        is_it = lambda one: _session_of(one) == uuid  # noqa: E731 - short
        return await session.commands.find(f"session {uuid}", is_it, ended=ended)
    if not selector.HasField("pid"):
        raise ConnectError("invalid_argument", "the session is named by neither pid nor session_uuid")
    pid = selector.pid
    return await session.commands.find(f"pid {pid}", lambda one: one.pid == pid)


def _session_of(one: ExecSummary) -> str | None:
    return one.exec_id.removeprefix(_SESSION) if one.exec_id.startswith(_SESSION) else None


def _uuid(name: str, text: str) -> str:
    if not _UUID.fullmatch(text):
        raise ConnectError("invalid_argument", f"{name} {text[:64]!r} is no UUID in small letters with its four dashes")
    return text


def _size(pty: Any) -> tuple[int, int]:  # noqa: ANN401 - a message
    return pty.size.cols or 80, pty.size.rows or 24


def _info(one: ExecSummary) -> Any:  # noqa: ANN401 - a message
    command = _M["CommandSpec"](cmd=one.argv[0] if one.argv else "", args=one.argv[1:])
    uuid = _session_of(one)
    return _M["CommandSessionInfo"](command=command, pid=one.pid, **({} if uuid is None else {"session_uuid": uuid}))
