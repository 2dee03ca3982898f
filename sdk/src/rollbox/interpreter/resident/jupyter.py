"""Cells in the image's ipykernel: its messages as frames."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import sys
import time

from . import wire
from .display import Display
from .ipykernel_process import LOOK_MS, Kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_FRAME_BYTES = 2**18
_BACKGROUND_BYTES = 2**16
# How long the output of a cell is waited for that has ended, where the kernel has dropped the message that says so.
_QUIET_MS = 2000
# ipykernel hangs when it is interrupted between the start of a cell, which it tells, and that of its code.
_EARLY_MS = 100
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_STREAMS = {"stdout": (0, wire.STDOUT), "stderr": (1, wire.STDERR)}
_LISTED = '''(lambda own: (exec("""
def told(name, value):
    try:
        text = repr(value)[:200]
    except Exception as error:
        text = "<no text: " + type(error).__name__ + ">"
    return name, type(value).__name__, text
shell = get_ipython()
found = __import__("json").dumps([
    told(name, value) for name, value in list(shell.user_ns.items())
    if name[:1] != "_" and name not in shell.user_ns_hidden
])
""", own), own["found"])[1])({"get_ipython": get_ipython})'''


def main() -> None:
    """Serves until its input ends."""
    missing = [name for name in ("ipykernel", "jupyter_client", "zmq") if importlib.util.find_spec(name) is None]
    if missing:
        sys.exit(f"{sys.executable} has no {missing[0]}")
    kernel = Kernel()
    bridge = Bridge(kernel)
    bridge.hello()
    while True:
        request = bridge.wire.receive()
        if request is None:
            kernel.end()
        bridge.answer(*request)


class Told:
    """What is sent of one cell."""

    def __init__(self, to: wire.Wire, most: int) -> None:
        self.totals = [0, 0]
        self._wire = to
        self._most = most

    def frame(self, kind: bytes, data: bytes, *, soon: bool = True) -> None:
        """Send a whole frame."""
        self._wire.send(data)

    def stream(self, name: str, text: str) -> None:
        """Send what was printed, as far as there is room for it."""
        at, kind = _STREAMS.get(name, _STREAMS["stdout"])
        data = text.encode("utf-8", "backslashreplace")
        room = max(0, self._most - self.totals[at])
        self.totals[at] += len(data)
        for start in range(0, min(len(data), room), _FRAME_BYTES):
            self.frame(kind, wire.encoded(kind, data[start : min(start + _FRAME_BYTES, room)]))


class Bridge:
    """Takes requests one by one, and asks the kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self.wire = wire.Wire()
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        # What came before with the file of its own is the wire.
        os.dup2(nothing, 1)
        self._kernel = kernel
        self._begun_at = 0.0
        self._running = False
        self._interrupted = False
        self._passed = False
        self._count = 0
        signal.signal(signal.SIGINT, self._interrupt)

    def hello(self) -> None:
        """Say that cells may come, once the kernel answers on both of its channels."""
        heard = answered = False
        asked = ""
        while not (heard and answered):
            # The first messages to iopub are lost until it knows its subscriber: asked again, so that one comes.
            if not asked or answered:
                asked, answered = self._kernel.ask("kernel_info_request", {}), False
            for socket in self._kernel.ready(LOOK_MS):
                came = self._kernel.receive(socket)
                heard = heard or socket is self._kernel.iopub
                answered = answered or came.get("msg_type") == "kernel_info_reply"
            self._kernel.look()
        self._kernel.unlink()
        version = ".".join(map(str, sys.version_info[:3]))
        self.wire.send(wire.encoded(wire.HELLO, b"1", version.encode()))

    def answer(self, kind: bytes, fields: list[bytes]) -> None:
        """Run a cell, or tell what it has answered before."""
        key = fields[0]
        if self.wire.repeated(key):
            return
        told = Told(self.wire, int(fields[-1]))
        display = Display(told)
        self._tell_background(told)
        started = time.monotonic()
        error = self._run(kind, fields, told, display)
        took_us = int((time.monotonic() - started) * 1e6)
        numbers = b"%d %d %d %d %d" % (self._count, took_us, *told.totals, display.omitted)
        final = wire.encoded(wire.END, key, numbers, *error)
        told.frame(wire.END, final)
        self.wire.keep(key, final)

    def _tell_background(self, told: Told) -> None:
        """Tell what was printed since the cell before."""
        found = {"stdout": bytearray(), "stderr": bytearray()}
        while self._kernel.iopub in self._kernel.ready(0):
            came = self._kernel.receive(self._kernel.iopub)
            if came.get("msg_type") == "stream":
                data = came["content"]["text"].encode("utf-8", "backslashreplace")
                kept = found[came["content"]["name"]]
                kept += data[: _BACKGROUND_BYTES - len(kept)]
        for name, data in found.items():
            if data:
                told.frame(wire.BACKGROUND, wire.encoded(wire.BACKGROUND, _STREAMS[name][1], bytes(data)))
        self._kernel.look()

    def _run(self, kind: bytes, fields: list[bytes], told: Told, display: Display) -> list[bytes]:
        """Run it and return what it has raised: nothing, or name, value and traceback."""
        listing = kind == wire.VARIABLES
        content = {
            "code": "" if listing else fields[1].decode("utf-8", "surrogatepass"),
            "silent": listing,
            "store_history": not listing,
            "user_expressions": {"found": _LISTED} if listing else {},
            "allow_stdin": False,
            "stop_on_error": False,
        }
        self._begun_at, self._interrupted, self._passed, self._running = 0.0, False, False, True
        try:
            reply = self._until_idle(self._kernel.ask("execute_request", content), told, display)
        finally:
            self._running = self._interrupted = False
        self._count = reply.get("execution_count", self._count) if not listing else self._count
        if any(one.get("source") == "ask_exit" and not one.get("keepkernel") for one in reply.get("payload", ())):
            self._kernel.process.wait()
            self._kernel.end()
        if reply.get("status") != "ok":
            name = reply.get("ename", "")
            if self._passed and name == "CancelledError":
                # How a cell is interrupted that awaits.
                name = "KeyboardInterrupt"
            return [_plain(part) for part in (name, reply.get("evalue", ""), "\n".join(reply.get("traceback", ())))]
        if listing:
            _tell_variables(told, reply.get("user_expressions", {}).get("found", {}))
        return []

    def _until_idle(self, asked: str, told: Told, display: Display) -> dict[str, Any]:
        """Tell what comes until the cell has ended, and return its reply."""
        reply: dict[str, Any] | None = None
        idle = False
        while reply is None or not idle:
            ready = self._kernel.ready(_EARLY_MS if self._interrupted else _QUIET_MS)
            self._pass_interrupt()
            if not ready and reply is not None and not self._interrupted:
                break
            for socket in ready:
                came = self._kernel.receive(socket)
                own = came.get("parent_header", {}).get("msg_id") == asked
                if socket is self._kernel.iopub:
                    idle = self._heard(came, own, told, display) or idle
                elif own and came["msg_type"] == "execute_reply":
                    reply = came["content"]
        return reply

    def _heard(self, came: dict[str, Any], own: bool, told: Told, display: Display) -> bool:
        """Tell what a message of the kernel says; whether it says that the cell has ended."""
        kind, content = came.get("msg_type"), came.get("content", {})
        if kind == "stream":
            told.stream(content["name"], content["text"])
        elif kind in ("display_data", "update_display_data", "execute_result"):
            display.send(content["data"], main=own and kind == "execute_result")
        elif own and kind in ("status", "execute_input"):
            if not self._begun_at:
                self._begun_at = time.monotonic()
            return bool(content.get("execution_state") == "idle")
        return False

    def _interrupt(self, number: int, frame: object) -> None:
        """An interrupt for the cell that runs."""
        self._interrupted = self._running
        self._pass_interrupt()

    def _pass_interrupt(self) -> None:
        """Pass it on, once the kernel is so far that it does not lose it, or all that it is sent after it."""
        if self._interrupted and self._begun_at and time.monotonic() - self._begun_at > _EARLY_MS / 1000:
            self._interrupted, self._passed = False, True
            self._kernel.interrupt()
            # Its handler for cells that await does not wake the loop that they run on; a message does.
            self._kernel.ask("kernel_info_request", {})


def _tell_variables(told: Told, found: dict[str, Any]) -> None:
    import ast
    import json

    if found.get("status") != "ok":
        return
    rows = json.loads(ast.literal_eval(found["data"]["text/plain"]))
    parts = [part.encode("utf-8", "backslashreplace") for row in rows[:10_000] for part in row]
    told.frame(wire.RESULT, wire.encoded(wire.RESULT, b"variables", *parts))


def _plain(text: str) -> bytes:
    return _COLOURS.sub("", text).encode("utf-8", "backslashreplace")[: 2**16]
