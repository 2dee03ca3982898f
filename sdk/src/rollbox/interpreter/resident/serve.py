"""Takes requests one by one, and answers each once: a repetition gets the answer that is on record."""

from __future__ import annotations

import builtins
import faulthandler
import os
import sys
import time
import warnings

from . import wire
from .code import Code, told
from .display import Display
from .hooks import Hooks
from .interrupts import Interrupts
from .output import Output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

VERSION = b"1"
_exit = os._exit


def main() -> None:
    """Serves until its input ends."""
    server = Server()
    server.hello()
    while True:
        request = server.wire.receive()
        if request is None:
            _exit(0)
        try:
            server.answer(*request)
        except KeyboardInterrupt:
            # Sent for a cell that has just ended.
            continue


class Server:
    """Runs cells and keeps what it has answered."""

    def __init__(self) -> None:
        self.wire = wire.Wire()
        # What kills the program is told where the client looks at its end.
        faulthandler.enable(wire.kept_apart(2))
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        self._interrupts = Interrupts()
        self._output = Output(self.wire, self._interrupts)
        self._display = Display(self._output)
        self._code = Code()
        self._count = 0
        sys.argv = [""]
        builtins.display = self._display.display  # type: ignore[attr-defined]
        builtins.input = _no_input
        os._exit = self._exit
        filters: Any = warnings.filters
        filters.insert(0, ("ignore", _Forks(), DeprecationWarning, None, 0))
        self._hooks = Hooks(
            {
                "linecache": self._code.lines_for,
                "matplotlib": _without_screen,
                "matplotlib.pyplot": self._inline,
                "IPython.core.display_functions": self._displaying,
            }
        )

    def hello(self) -> None:
        """Say that cells may come."""
        version = ".".join(map(str, sys.version_info[:3]))
        self.wire.send(wire.encoded(wire.HELLO, VERSION, version.encode()))

    def answer(self, kind: bytes, fields: list[bytes]) -> None:
        """Run a cell, or tell what it has answered before."""
        key = fields[0]
        if self.wire.repeated(key):
            return
        self._output.begin(int(fields[-1]))
        started = time.monotonic()
        error = self._run(kind, fields)
        if self._output.forked:
            _leave(error)
        self._output.end()
        took_us = int((time.monotonic() - started) * 1e6)
        numbers = b"%d %d %d %d %d" % (self._count, took_us, *self._output.totals, self._display.omitted)
        final = wire.encoded(wire.END, key, numbers, *error)
        self._output.finish(final)
        self.wire.keep(key, final)
        self._output.ready()
        self._display.ready()

    def _run(self, kind: bytes, fields: list[bytes]) -> list[bytes]:
        """Run it and return what it has raised: nothing, or name, value and traceback."""
        try:
            try:
                self._interrupts.begin()
                return self._outcome(kind, fields)
            finally:
                self._interrupts.running = False
        except KeyboardInterrupt as error:
            return told(error, self._code)

    def _outcome(self, kind: bytes, fields: list[bytes]) -> list[bytes]:
        try:
            if kind == wire.VARIABLES:
                self._tell_variables()
                return []
            self._count += 1
            source = fields[1].decode("utf-8", "surrogatepass")
            self._code.run(source, f"<cell {self._count}>", self._display.value)
            self._display.figures()
        except BaseException as error:
            return told(error, self._code)
        return []

    def _tell_variables(self) -> None:
        parts = [part.encode("utf-8", "backslashreplace") for one in self._code.variables() for part in one]
        self._output.frame(wire.RESULT, wire.encoded(wire.RESULT, b"variables", *parts[: 3 * 10_000]))

    def _exit(self, status: int) -> NoReturn:
        """`os._exit`, with what the cell has printed before."""
        self._output.flush()
        _exit(status)

    def _inline(self, pyplot: Any) -> None:
        """`matplotlib.pyplot.show` shows what is open as results."""

        def show(*_: Any, **__: Any) -> None:
            self._display.figures()

        pyplot.show = show

    def _displaying(self, functions: Any) -> None:
        """What IPython shows by is that of this program; nothing that was shown can be cleared."""
        functions.display = self._display.display
        functions.publish_display_data = self._display.publish
        functions.clear_output = _nothing_cleared


class _Forks:
    """Matches the warning that Python has for every fork beside the thread of this program, which the child lacks."""

    def match(self, text: str) -> bool:
        return "use of fork() may lead to deadlocks" in text


def _without_screen(matplotlib: Any) -> None:
    if "MPLBACKEND" not in os.environ:
        matplotlib.use("agg")


def _nothing_cleared(wait: bool = False) -> None:
    """Leave what is shown: it has been sent."""


def _no_input(prompt: object = "") -> str:
    """Refuse: a cell is answered by nobody."""
    raise RuntimeError("input() has nobody to ask here: give the value in the code")


def _leave(error: list[bytes]) -> None:
    """End a child that has been forked by a cell and has run to the end of it."""
    if error:
        os.write(2, error[-1])
    _exit(1 if error else 0)
