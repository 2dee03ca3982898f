"""Connects a process of a sandbox to the standard streams of this process, or to its terminal."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from rollbox.cli import output
from rollbox.cli.harmless import Harmless
from rollbox.errors import Conflict, InvalidArgument
from rollbox.process import OutputStream, Process
from rollbox.result import ExecResult

_PIECE_BYTES = 2**16


async def run(process: Process, *, stdin: bool, terminal: bool, raw: bool = False) -> ExecResult:
    """Forward input and output until the command ends.

    Args:
        process: just spawned, or attached to.
        stdin: forward this process's standard input, up to its end.
        terminal: the command has a terminal: the local one is in raw mode meanwhile, and its size is forwarded.
        raw: pass control characters on to a terminal here, too; with `terminal` they always are.

    Raises:
        BrokenPipeError: the reader of this process's stdout or stderr is gone.
    """
    with _raw() if terminal else _as_it_is():
        try:
            async with asyncio.TaskGroup() as group:
                outputs = [
                    group.create_task(_passed(process.stdout, sys.stdout, raw=raw or terminal)),
                    group.create_task(_passed(process.stderr, sys.stderr, raw=raw or terminal)),
                ]
                helpers = [group.create_task(_fed(process))] if stdin else []
                helpers += [group.create_task(_resized(process))] if terminal else []
                result = await process.wait()
                await asyncio.wait(outputs)
                for helper in helpers:
                    helper.cancel()
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
    for name, stream in (("stdout", process.stdout), ("stderr", process.stderr)):
        for gap in stream.gaps:
            output.message(f"{name}: {gap.lost_bytes} bytes from byte {gap.offset} on are lost")
    return result


def window() -> tuple[int, int]:
    """Columns and rows of this terminal."""
    size = os.get_terminal_size(sys.stdin.fileno())
    return (size.columns or 80, size.lines or 24)


async def _passed(stream: OutputStream, target: TextIO, *, raw: bool) -> None:
    harmless = None if raw or not target.isatty() else Harmless()
    async for data in stream:
        # In a thread, so that Ctrl-C works while the reader of this program's output is slow or paused.
        await asyncio.to_thread(_written, target, data if harmless is None else harmless(data))
    if harmless is not None:
        _written(target, harmless.rest())


def _written(target: TextIO, data: bytes) -> None:
    target.buffer.write(data)
    target.flush()


async def _fed(process: Process) -> None:
    # Conflict: the command has ended or closed its stdin; its result follows.
    with suppress(Conflict):
        async for data in local_stdin():
            await process.stdin.write(data)
        await process.stdin.write_eof()


async def local_stdin() -> AsyncIterator[bytes]:
    """Read this process's standard input to its end, as it comes.

    Raises:
        InvalidArgument: it cannot be read.
    """
    try:
        file = sys.stdin.fileno()
    except (OSError, ValueError):
        # Without a file descriptor: a program has put an object in memory there.
        yield sys.stdin.buffer.read()
        return
    try:
        while data := await _read(file):
            yield data
    except OSError as error:
        raise InvalidArgument(f"the standard input cannot be read: {error.strerror}", hint="") from error


async def _read(file: int) -> bytes:
    """Read available input, without a thread, which could not be interrupted."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(file, readable.set)
    except PermissionError:
        # A regular file: epoll refuses it, and it is always ready.
        return os.read(file, _PIECE_BYTES)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(file)
    return os.read(file, _PIECE_BYTES)


async def _resized(process: Process) -> None:
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()
    loop.add_signal_handler(signal.SIGWINCH, changed.set)
    try:
        while True:
            await changed.wait()
            changed.clear()
            await process.resize(*window())
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)


@contextmanager
def _raw() -> Iterator[None]:
    """Put the terminal into raw mode: every key goes to the command, Ctrl-C too. It is restored in any case."""
    file = sys.stdin.fileno()
    before = termios.tcgetattr(file)
    try:
        # Not the default, TCSAFLUSH, which discards what was typed ahead.
        tty.setraw(file, termios.TCSADRAIN)
        yield
    finally:
        termios.tcsetattr(file, termios.TCSADRAIN, before)


@contextmanager
def _as_it_is() -> Iterator[None]:
    yield
