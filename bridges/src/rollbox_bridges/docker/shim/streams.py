"""The streams of this program, and those of a connection: copied until the other side ends."""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import struct
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_HEAD: Final = struct.Struct(">BxxxI")
_CHUNK_BYTES: Final = 2**16


class Frames:
    """Writes what comes of two streams to this program's, by the heads before each piece.

    Args:
        bare: there are no heads: all is stdout.
        write: writes to a descriptor.
    """

    def __init__(self, *, bare: bool, write: Callable[[int, bytes], None] | None = None) -> None:
        self._write = write or _write
        self._bare = bare
        self._held = bytearray()
        self._left = 0
        self._to = 1

    def feed(self, data: bytes) -> None:
        """Write what is whole of it, and keep a part of a head."""
        if self._bare:
            self._write(1, data)
            return
        self._held += data
        while self._held:
            if not self._left:
                if len(self._held) < _HEAD.size:
                    return
                self._to, self._left = _HEAD.unpack_from(self._held)
                del self._held[: _HEAD.size]
            part = bytes(self._held[: self._left])
            self._write(self._to, part)
            del self._held[: len(part)]
            self._left -= len(part)


def copy(taken: socket.socket, early: bytes, *, bare: bool, stdin: bool) -> None:
    """Copy output from a connection, and with `stdin` this program's input to it, until the connection ends.

    Args:
        taken: the connection.
        early: what came on it already.
        bare: whether its output has no heads.
        stdin: whether it gets the input.
    """
    frames = Frames(bare=bare)
    frames.feed(early)
    if not stdin:
        taken.shutdown(socket.SHUT_WR)
    watched: list[socket.socket | int] = [taken, *([sys.stdin.fileno()] if stdin else [])]
    while True:
        ready, _, _ = select.select(watched, [], [])
        if taken in ready:
            data = taken.recv(_CHUNK_BYTES)
            if not data:
                return
            frames.feed(data)
        if stdin and sys.stdin.fileno() in ready:
            typed = os.read(sys.stdin.fileno(), _CHUNK_BYTES)
            if not _sent(taken, typed):
                watched = [taken]


def _sent(taken: socket.socket, typed: bytes) -> bool:
    """Send input; returns whether more of it is taken."""
    try:
        if typed:
            taken.sendall(typed)
        else:
            taken.shutdown(socket.SHUT_WR)
    except OSError:
        # The command has ended: its last output is still to be read.
        return False
    return bool(typed)


@contextmanager
def terminal(resize: Callable[[int, int], None]) -> Iterator[None]:
    """Have this program's terminal pass every key on, and tell its size, now and when it changes.

    Args:
        resize: is called with columns and rows.

    Raises:
        SystemExit: the input is no terminal.
    """
    if not sys.stdin.isatty():
        raise SystemExit("the input device is not a TTY")
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def told(*_: object) -> None:
        size = shutil.get_terminal_size()
        resize(size.columns, size.lines)

    signal.signal(signal.SIGWINCH, told)
    try:
        tty.setraw(descriptor)
        told()
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        signal.signal(signal.SIGWINCH, signal.SIG_DFL)


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
