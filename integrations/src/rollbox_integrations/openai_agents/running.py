"""Commands that a model starts and goes on with: each has a number, and what it writes is told piece by piece."""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from agents.sandbox.errors import PtySessionNotFoundError
from agents.sandbox.session.pty_types import (
    PTY_PROCESSES_MAX,
    PtyExecUpdate,
    allocate_pty_process_id,
    clamp_pty_yield_time_ms,
    process_id_to_prune_from_meta,
    resolve_pty_write_yield_time_ms,
    truncate_text_by_tokens,
)

from rollbox import OutputStream, Process, Sandbox, SandboxError
from rollbox.errors import Conflict
from rollbox_integrations import outcome

_TERMINAL = (80, 24)
_START_YIELD_S = 10.0
_WRITE_YIELD_S = 0.25
# How much of the last output a command without a reader keeps in its sandbox; it is never held up.
_KEPT_BYTES = 4 * 1024**2
# What one call tells at most, about; the rest is for the next one.
_MOST_LETTERS = 2**20
# What openai-agents looks for to tell the model what to do instead.
_NO_STDIN = "stdin is not available for this process"


@dataclass
class _Command:
    """A command that runs.

    Attributes:
        process: the SDK's.
        tty: whether it has a terminal, and can be typed into.
        owned: kills it and closes its connection.
        used_at: the loop's time of the last call, seconds.
        turn: one call reads at a time.
    """

    process: Process
    tty: bool
    owned: AsyncExitStack
    used_at: float
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class Running:
    """The commands of a session. At most 64: the one that was not used for longest is killed for another."""

    def __init__(self) -> None:
        self._commands: dict[int, _Command] = {}

    async def start(
        self,
        sandbox: Sandbox,
        words: Sequence[str],
        options: Mapping[str, Any],
        *,
        tty: bool,
        yield_s: float | None,
        most_tokens: int | None,
    ) -> PtyExecUpdate:
        """Start a command, wait for its end or a while, and tell what it has written.

        Raises:
            SandboxError: it was not started, or has no result.
        Cancel safety: the command is killed.
        """
        async with AsyncExitStack() as stack:
            process = await stack.enter_async_context(
                await sandbox.spawn(
                    list(words),
                    stdin=tty,
                    terminal=_TERMINAL if tty else None,
                    max_output_bytes=_KEPT_BYTES,
                    output_waits=False,
                    **options,
                )
            )
            command = _Command(process, tty, stack, _now())
            wait_ms = clamp_pty_yield_time_ms(int(1000 * (_START_YIELD_S if yield_s is None else yield_s)))
            update = await _told(command, wait_ms / 1000, most_tokens)
            if update.exit_code is None:
                await self._make_room()
                number = allocate_pty_process_id(set(self._commands))
                # From here on the command is this object's.
                command.owned = stack.pop_all()
                self._commands[number] = command
                update = replace(update, process_id=number)
        return update

    async def write(self, number: int, text: str, *, yield_s: float | None, most_tokens: int | None) -> PtyExecUpdate:
        """Type a text, which may be empty, and tell what the command has written since.

        Raises:
            PtySessionNotFoundError: it has ended, or there was none of this number.
            RuntimeError: it has no terminal, so that nothing can be typed.
            SandboxError: there is no sandbox any more, or the platform does not answer.
        """
        command = self._commands.get(number)
        if command is None:
            raise PtySessionNotFoundError(session_id=number)
        async with command.turn:
            command.used_at = _now()
            if text:
                if not command.tty:
                    raise RuntimeError(_NO_STDIN)
                # That it has ended is told with what it wrote.
                with contextlib.suppress(Conflict):
                    await command.process.stdin.write(text)
            wait_ms = resolve_pty_write_yield_time_ms(
                yield_time_ms=int(1000 * (_WRITE_YIELD_S if yield_s is None else yield_s)), input_empty=not text
            )
            try:
                update = await _told(command, wait_ms / 1000, most_tokens)
            except SandboxError:
                await self._end(number)
                raise
            if update.exit_code is not None:
                await self._end(number)
                return update
            return replace(update, process_id=number)

    async def aclose(self) -> None:
        """Kill all of them."""
        for number in list(self._commands):
            await self._end(number)

    async def _make_room(self) -> None:
        if len(self._commands) >= PTY_PROCESSES_MAX:
            known = [(number, one.used_at, one.process.ended) for number, one in self._commands.items()]
            number = process_id_to_prune_from_meta(known)
            if number is not None:
                await self._end(number)

    async def _end(self, number: int) -> None:
        """Kill a command unless it has ended; one whose sandbox is gone is dead already."""
        command = self._commands.pop(number, None)
        if command is not None:
            with contextlib.suppress(SandboxError):
                await command.owned.aclose()


async def _told(command: _Command, wait_s: float, most_tokens: int | None) -> PtyExecUpdate:
    """Wait for the end of a command, or for some seconds; what it has written since the last time."""
    said, process, status = io.StringIO(), command.process, None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(wait_s) as limit:
            await asyncio.gather(*(_taken(stream, said, limit) for stream in (process.stdout, process.stderr)))
            ended = outcome.ended(replace(await process.wait(), stdout_bytes=b"", stderr_bytes=b""))
            said.write(ended.stderr.decode())
            status = ended.status
    text, tokens = truncate_text_by_tokens(said.getvalue(), most_tokens)
    return PtyExecUpdate(process_id=None, output=text.encode(), exit_code=status, original_token_count=tokens)


async def _taken(stream: OutputStream, said: io.StringIO, limit: asyncio.Timeout) -> None:
    """Take what a stream has until its end, or until there is enough for one answer, which ends the wait.

    That the sandbox has ended is told by the process.
    """
    with contextlib.suppress(SandboxError):
        async for text in stream.text():
            said.write(text)
            if said.tell() >= _MOST_LETTERS:
                limit.reschedule(_now())


def _now() -> float:
    return asyncio.get_running_loop().time()
