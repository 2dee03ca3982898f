"""A person's terminal: a program of this machine on a pseudo-terminal that a test types on."""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
import subprocess
import termios
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from tests.support.eventually import eventually

# Of silence: what goes on showing something is slow and not stuck.
LIMIT_S = 60.0


class Terminal:
    """A program that runs on it, and what it has shown so far."""

    def __init__(self, master: int, process: subprocess.Popen[bytes]) -> None:
        self.shown = b""
        self._master = master
        self._process = process
        self._changed = asyncio.Event()
        asyncio.get_running_loop().add_reader(master, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._master, 2**16)
        except OSError:
            # The program has closed it.
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._master)
        self.shown += data
        self._changed.set()

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._master, keys.encode())

    def resize(self, columns: int, rows: int) -> None:
        """Drag the window's corner."""
        set_size(self._master, columns, rows)

    async def sees(self, text: str) -> None:
        """Wait until `text` is shown; what was shown up to it is forgotten."""
        while text.encode() not in self.shown:
            self._changed.clear()
            async with asyncio.timeout(LIMIT_S):
                await self._changed.wait()
        self.shown = self.shown.split(text.encode(), 1)[1]

    async def ended(self) -> int:
        """Wait for the program; its exit status."""
        await eventually(lambda: self._process.poll() is not None)
        return int(self._process.returncode)

    def close(self) -> None:
        """Hang up."""
        asyncio.get_running_loop().remove_reader(self._master)
        os.close(self._master)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def set_size(terminal: int, columns: int, rows: int) -> None:
    """Give a terminal a size."""
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def modes(terminal: int) -> list[object]:
    """How a terminal is set."""
    return list(termios.tcgetattr(terminal))


@contextmanager
def on_terminal(command: Sequence[str], environ: Mapping[str, str]) -> Iterator[Terminal]:
    """Run a program on a terminal of 100 columns and 30 rows, which is its controlling one; how it was set stays."""
    master, slave = os.openpty()
    set_size(slave, 100, 30)
    before = modes(slave)
    process = subprocess.Popen(
        ["setsid", "--ctty", "--wait", *command], stdin=slave, stdout=slave, stderr=slave, env=dict(environ)
    )
    terminal = Terminal(master, process)
    try:
        yield terminal
        assert modes(slave) == before, "the program left the terminal in another mode"
    finally:
        terminal.close()
        os.close(slave)
