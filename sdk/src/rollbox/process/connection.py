"""The connection of one process: opened when a caller waits for something, reopened at its offsets when it breaks.

There is no background task: one of the waiting callers receives for all of them. So a process without a waiting caller
costs nothing here, and a program that does not read blocks the command (backpressure) instead of filling memory.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import replace
from itertools import takewhile
from typing import Any

import aiohttp

from rollbox._problem import SandboxError
from rollbox.errors import Conflict, Internal, StreamInterrupted
from rollbox.gateway import Gateway, SandboxAccess
from rollbox.printable import what_broke
from rollbox.process import frames
from rollbox.process.streams import OutputStream
from rollbox.result import ExecResult
from rollbox.retry import REPEATABLE, Resumption
from rollbox.transport import abort, error_from_problem

# The gateway pings every 5 s; a connection without a message for so long is dead.
_SILENCE_S = 15.0
_PING_S = 5.0
# A reader that takes nothing for so long counts as gone, here as in the sidecar.
_READER_LIMIT_S = 10.0
_RESUME_BUDGET_S = 60.0
_UNACKNOWLEDGED_BYTES = 2**20
# Small, since the gateway detects silence by whole messages.
_STDIN_MESSAGE_BYTES = 2**16
_BREAK = (aiohttp.ClientError, OSError)
_Receive = Callable[[Callable[[], bool]], Coroutine[Any, Any, None]]


class Connection:
    """Receives stdout, stderr, stdin acknowledgements and the result of one process.

    Attributes:
        exec_id: of the process.
        result: once it was received.
        streams: its outputs, by kind of frame.
        on_end: is called once its result was received, or nobody waits for it any more.
    """

    def __init__(
        self,
        gateway: Gateway,
        access: SandboxAccess,
        exec_id: str,
        offsets: tuple[int, int],
        *,
        stdin_offset: int = 0,
    ) -> None:
        self.exec_id = exec_id
        self.result: ExecResult | None = None
        self.on_end: Callable[[], None] = _nothing
        self.streams = {
            kind: OutputStream(self, at) for kind, at in zip((frames.STDOUT, frames.STDERR), offsets, strict=True)
        }
        self._gateway = gateway
        self._access = access
        self._resumption = Resumption(gateway.retries, _RESUME_BUDGET_S)
        self._ws: aiohttp.ClientWebSocketResponse | None = None
        self._attached_at = 0.0
        self._receiving = False
        self._resending = False
        self._changed: asyncio.Future[SandboxError | None] | None = None
        self._stdin = _Unacknowledged(stdin_offset)
        self._size: tuple[int, int] | None = None

    def now(self) -> float:
        """Return the event loop's clock, seconds."""
        return asyncio.get_running_loop().time()

    async def until(self, done: Callable[[], bool]) -> None:
        """Receive, or wait for the caller that receives, until `done()`. Cancel safety: no received data is lost."""
        while not done():
            if self._receiving:
                await self._wait_for_change()
                continue
            self._receiving = True
            failure: SandboxError | None = None
            try:
                await self._receive_one()
            except SandboxError as error:
                failure = error
                raise
            finally:
                self._receiving = False
                self.announce(failure)

    async def ended(self) -> ExecResult:
        """Wait for the result."""
        await self.until(lambda: self.result is not None)
        assert self.result is not None  # noqa: S101
        return self.result

    async def write(self, data: bytes) -> None:
        """Send stdin; waits while a MiB of it is not acknowledged.

        Raises:
            Conflict: stdin is closed, or the command takes no more input.
        """
        if self._stdin.closing:
            raise Conflict(f"stdin of exec {self.exec_id} is closed: nothing can follow write_eof()", hint="")
        for start in range(0, len(data), _STDIN_MESSAGE_BYTES):
            await self.until(lambda: self._stdin.has_room or self._stdin_ended)
            self._require_open_stdin()
            part = data[start : start + _STDIN_MESSAGE_BYTES]
            await self._send(frames.written(self._stdin.add(part), part))

    async def write_eof(self) -> None:
        """Send the end of stdin, once."""
        if not self._stdin.closing and not self._stdin_ended:
            self._stdin.closing = True
            await self._send(self._stdin.eof())

    async def drain(self) -> None:
        """Wait until the sandbox has acknowledged all of stdin."""
        await self.until(lambda: not self._stdin.parts or self._stdin_ended)
        if self._stdin.parts:
            self._require_open_stdin(f"the stdin from byte {self._stdin.parts[0][0]} on was not confirmed")

    async def resize(self, columns: int, rows: int) -> None:
        """Send the terminal's size; it is sent again with every new connection."""
        self._size = (columns, rows)
        if self.result is None:
            await self._send(_resize(columns, rows))

    async def open(self) -> None:
        """Attach, so that an unknown exec_id fails at once."""
        if self._ws is None:
            await self._attach()

    async def close(self) -> None:
        """Close the connection; the process goes on. Idempotent."""
        ws, self._ws = self._ws, None
        if ws is not None:
            await ws.close()

    def announce(self, failure: SandboxError | None = None) -> None:
        """Wake all waiting callers; with a failure, they raise it."""
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set_result(failure)

    async def _wait_for_change(self) -> None:
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        failure = await asyncio.shield(self._changed)
        if failure is not None:
            raise failure

    async def _receive_one(self) -> None:
        """Receive one message, or wait for a reader, or attach."""
        if any(stream.needs_refetch for stream in self.streams.values()):
            await self.close()
        if self._ws is None:
            await self._attach()
            return
        if await self._wait_for_reader(self._ws):
            return
        message = await self._receive(self._ws)
        if message is None:
            return
        try:
            if isinstance(message, bytes):
                kind, offset, data = frames.read(message)
                self.streams[kind].arrived(offset, data)
                self._resumption.progress()
            else:
                await self._handle_message(json.loads(message))
        except (ValueError, KeyError, TypeError) as error:
            raise Internal(f"the gateway sent a malformed message: {message[:100]!r}") from error

    async def _wait_for_reader(self, ws: aiohttp.ClientWebSocketResponse) -> bool:
        """Wait for the reader of a full stream; returns whether there was one to wait for.

        From a full stream without a reader, output is dropped here until it is read again (`dropped_unread`).
        """
        for stream in self.streams.values():
            if not stream.full:
                continue
            left_s = stream.taken_at + _READER_LIMIT_S - self.now()
            if not stream.was_read or left_s <= 0:
                stream.dropped_unread = True
                continue
            try:
                async with asyncio.timeout(min(left_s, _PING_S)):
                    await self._wait_for_change()
            except TimeoutError:
                await self._pinged(ws)
            return True
        return False

    async def _pinged(self, ws: aiohttp.ClientWebSocketResponse) -> None:
        """Send a ping as a sign of life: while nothing is received, the gateway gets no pongs."""
        try:
            await ws.ping()
        except _BREAK as error:
            await self._drop_connection(error)

    async def _receive(self, ws: aiohttp.ClientWebSocketResponse) -> bytes | str | None:
        try:
            async with asyncio.timeout(_SILENCE_S):
                message = await ws.receive()
            if message.type is aiohttp.WSMsgType.PING:
                await ws.pong(message.data)
                # A quiet command has no other messages than pings, so they are progress; but not the first one, which
                # comes right after the attach.
                if self.now() - self._attached_at >= _PING_S:
                    self._resumption.progress()
        except (TimeoutError, *_BREAK) as error:
            await self._drop_connection(error)
            return None
        if message.type in (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT):
            data: bytes | str = message.data
            return data
        if message.type not in (aiohttp.WSMsgType.PING, aiohttp.WSMsgType.PONG):
            await self._drop_connection(ws.exception() or ConnectionError(f"closed with {ws.close_code}"))
        return None

    async def _handle_message(self, body: dict[str, Any]) -> None:
        match body["type"]:
            case "stdin":
                self._stdin.acknowledged(body["offset"])
                self._resumption.progress()
            case "stdin_closed":
                self._stdin.refused = error_from_problem(body["problem"], {}).detail
            case "result":
                self.result = self._with_tails(ExecResult.from_json(body, self._access.sandbox_id))
                self.streams[frames.STDOUT].finish(self.result.stdout_total_bytes)
                self.streams[frames.STDERR].finish(self.result.stderr_total_bytes)
                self.on_end()
                await self.close()
            case "problem":
                error = error_from_problem(body, {})
                error.sandbox_id = self._access.sandbox_id
                await self.close()
                await self._retry_after(error)
            case _:
                # A message type of a later version, which this one may ignore: the contract only adds types.
                pass

    def _with_tails(self, result: ExecResult) -> ExecResult:
        stdout, stderr = (stream.tail() for stream in self.streams.values())
        return replace(
            result,
            stdout_bytes=stdout,
            stderr_bytes=stderr,
            stdout_truncated=result.stdout_total_bytes > len(stdout),
            stderr_truncated=result.stderr_total_bytes > len(stderr),
        )

    async def _attach(self) -> None:
        offsets = (self.streams[frames.STDOUT].received, self.streams[frames.STDERR].received)
        try:
            ws = await self._gateway.attach(self._access, self.exec_id, offsets)
        except SandboxError as error:
            error.sandbox_id = self._access.sandbox_id
            await self._retry_after(error)
            return
        self._ws, self._attached_at = ws, self.now()
        for stream in self.streams.values():
            stream.dropped_unread = False
        if self.result is None:
            await self._resend()

    async def _resend(self) -> None:
        """Send again what the last connection may have lost; offsets make duplicates harmless.

        What is written meanwhile is sent here too: its writer's message would overtake what is still to be sent, and
        the sandbox takes no stdin of which a part before is missing.
        """
        ws, self._resending = self._ws, True
        try:
            offset, eof, size = 0, False, None
            while self._ws is ws:
                if parts := self._stdin.since(offset):
                    for at, data in parts:
                        await self._send_while_receiving(frames.written(at, data), self._receive_until)
                    offset = at + len(data)
                elif self._stdin.closing and not eof:
                    eof = True
                    await self._send_while_receiving(self._stdin.eof(), self._receive_until)
                elif self._size is not None and self._size != size:
                    size = self._size
                    await self._send_while_receiving(_resize(*size), self._receive_until)
                else:
                    break
        except BaseException:
            # Cancelled half-way: the next connection begins again.
            if ws is not None and self._ws is ws:
                abort(ws)
                self._ws = None
            raise
        finally:
            self._resending = False

    async def _send(self, message: bytes | str) -> None:
        """Send now, or with the next connection, which sends unacknowledged stdin and the size again."""
        if self._ws is None or self._resending:
            await self.until(lambda: self.result is not None or not (self._ws is None or self._resending))
        else:
            await self._send_while_receiving(message, self.until)

    async def _send_while_receiving(self, message: bytes | str, receive: _Receive) -> None:
        """Send a message, and `receive` while that waits: only so are pings of a peer that reads nothing seen."""
        ws = self._ws
        if ws is None:
            return
        sending = asyncio.ensure_future(ws.send_bytes(message) if isinstance(message, bytes) else ws.send_str(message))
        tasks = [sending]
        try:
            # Most sends complete at once.
            await asyncio.sleep(0)
            if not sending.done():
                tasks.append(asyncio.ensure_future(receive(lambda: sending.done() or self._ws is not ws)))
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if self._ws is not ws:
                # The connection was dropped: the sender too waits for the backoff before the next one.
                await asyncio.wait(tasks[-1:])
        finally:
            for task in tasks:
                task.cancel()
            failures = await asyncio.gather(*tasks, return_exceptions=True)
        for failure in failures:
            # The receiver may have dropped the connection already: the next one sends the message again.
            if isinstance(failure, _BREAK):
                if self._ws is ws:
                    await self._drop_connection(failure)
            elif isinstance(failure, Exception):
                raise failure

    async def _receive_until(self, done: Callable[[], bool]) -> None:
        """As `until`, for the caller that already receives."""
        while not done():
            await self._receive_one()
            self.announce()

    async def _drop_connection(self, error: BaseException) -> None:
        if self._ws is not None:
            abort(self._ws)
        await self.close()
        cut = StreamInterrupted(f"the connection of exec {self.exec_id} broke: {what_broke(error)}")
        cut.__cause__ = error
        await self._retry_after(cut)

    async def _retry_after(self, error: SandboxError) -> None:
        """Wait before the next attempt; raises when the error is final or the time for retries is used up."""
        try:
            await self._resumption.after(error)
        except SandboxError as last:
            if last.code not in REPEATABLE:
                raise
            raise self._unreachable(last) from last

    def _unreachable(self, error: SandboxError) -> StreamInterrupted:
        stdout, stderr = (stream.offset for stream in self.streams.values())
        detail = f"exec {self.exec_id} could not be reached for {_RESUME_BUDGET_S:g} s: {error.detail}"
        again = f"processes.attach({self.exec_id!r}, stdout_offset={stdout}, stderr_offset={stderr})"
        hint = f"The command may still run: attach again later with sandbox.{again}."
        return StreamInterrupted(detail, hint=hint, sandbox_id=self._access.sandbox_id)

    @property
    def _stdin_ended(self) -> bool:
        return self.result is not None or bool(self._stdin.refused)

    def _require_open_stdin(self, what: str = "stdin was not written") -> None:
        if self._stdin_ended:
            reason = self._stdin.refused or f"exec {self.exec_id} has ended"
            hint = "Nothing reads this stdin any more; the result tells how the command ended."
            raise Conflict(f"{reason}: {what}", hint=hint, sandbox_id=self._access.sandbox_id)


def _nothing() -> None:
    """Serve as `Connection.on_end` where nobody asks."""


class _Unacknowledged:
    """stdin that was sent and may have to be sent again."""

    def __init__(self, offset: int) -> None:
        self.parts: deque[tuple[int, bytes]] = deque()
        self.closing = False
        self.refused = ""
        self._next = self._confirmed = offset

    @property
    def has_room(self) -> bool:
        return self._next - self._confirmed < _UNACKNOWLEDGED_BYTES

    def add(self, data: bytes) -> int:
        offset = self._next
        self.parts.append((offset, data))
        self._next += len(data)
        return offset

    def acknowledged(self, offset: int) -> None:
        self._confirmed = max(self._confirmed, min(offset, self._next))
        while self.parts and self.parts[0][0] + len(self.parts[0][1]) <= self._confirmed:
            self.parts.popleft()

    def since(self, offset: int) -> list[tuple[int, bytes]]:
        """The parts from this offset on. Cost: O(n) in them, not in all parts."""
        return [*takewhile(lambda part: part[0] >= offset, reversed(self.parts))][::-1]

    def eof(self) -> str:
        return json.dumps({"type": "stdin_eof", "offset": self._next})


def _resize(columns: int, rows: int) -> str:
    return json.dumps({"type": "resize", "columns": columns, "rows": rows})
