"""A process of a sandbox on this process's own streams, or on its terminal."""

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
from rollbox.errors import Conflict
from rollbox.process import OutputStream, Process
from rollbox.result import ExecResult

_PIECE_BYTES = 2**16


async def run(process: Process, *, stdin: bool, terminal: bool) -> ExecResult:
    """Pass everything on until the command ends.

    Args:
        process: just spawned, or attached to.
        stdin: pass this process's standard input on, up to its end.
        terminal: the command has a terminal: this one is raw meanwhile, and its size is followed.

    Raises:
        BrokenPipeError: nobody reads what it writes here.
    """
    with _raw() if terminal else _as_it_is():
        try:
            async with asyncio.TaskGroup() as group:
                outputs = [
                    group.create_task(_passed(process.stdout, sys.stdout)),
                    group.create_task(_passed(process.stderr, sys.stderr)),
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
            output.talk(f"{name}: {gap.lost_bytes} bytes from byte {gap.offset} on are lost")
    return result


def window() -> tuple[int, int]:
    """Columns and rows of this terminal."""
    size = os.get_terminal_size(sys.stdin.fileno())
    return (size.columns or 80, size.lines or 24)


async def _passed(stream: OutputStream, target: TextIO) -> None:
    async for data in stream:
        # In a thread: a reader that is slow, or paused, must not keep this program from being interrupted.
        await asyncio.to_thread(_written, target, data)


def _written(target: TextIO, data: bytes) -> None:
    target.buffer.write(data)
    target.flush()


async def _fed(process: Process) -> None:
    # Conflict: the command ended, or reads no more; its result tells the rest.
    with suppress(Conflict):
        async for data in local_stdin():
            await process.stdin.write(data)
        await process.stdin.write_eof()


async def local_stdin() -> AsyncIterator[bytes]:
    """Read this process's standard input to its end, as it comes."""
    try:
        file = sys.stdin.fileno()
    except (OSError, ValueError):
        # Not a file of the system: something in memory that a program put there.
        yield sys.stdin.buffer.read()
        return
    while data := await _read(file):
        yield data


async def _read(file: int) -> bytes:
    """Read what is there, without a thread that could not be interrupted."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(file, readable.set)
    except PermissionError:
        # A plain file: always ready.
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
    """Every key goes to the command, Ctrl-C too; the terminal is as before at the end, whatever happens."""
    file = sys.stdin.fileno()
    before = termios.tcgetattr(file)
    try:
        # Not the default, which throws away what was typed ahead.
        tty.setraw(file, termios.TCSADRAIN)
        yield
    finally:
        termios.tcsetattr(file, termios.TCSADRAIN, before)


@contextmanager
def _as_it_is() -> Iterator[None]:
    yield
