"""Manages the renewal process, a separate process that renews leases whatever this program is busy with.

An event loop that is blocked by a training step renews nothing, and neither does a thread while an extension holds the
interpreter's lock (GIL). The renewal process shares only a pipe with this one and ends when that is closed, so together
with this process, however that ends. There is one for all clients and event loops of a process, none without leases.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rollbox._version import __version__
from rollbox.errors import Unsupported
from rollbox.settings import Settings

_log = logging.getLogger("rollbox")
_PROGRAM = Path(__file__).with_name("program.py")
# Only what the dynamic linker may need to find the interpreter's libraries: other variables may hold an API key.
_ENVIRONMENT = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH")
_REPORTS_BYTES = 2**16
_KILL_LIMIT_S = 5.0


def message_of(settings: Settings, name: str, ttl_ms: int, every_s: float) -> dict[str, Any]:
    """Build the message that registers a lease: address, API key, interval and the certificates to trust.

    It has no proxy: the client uses none either, whatever its variables say.

    Args:
        settings: of the client.
        name: of the lease.
        ttl_ms: how long it lasts from each renewal.
        every_s: seconds from one renewal to the next.
    """
    message: dict[str, Any] = {
        "name": name,
        "url": f"{settings.url}/v1/leases/{quote(name, safe='')}",
        "api_key": settings.api_key,
        "agent": f"rollbox/{__version__}",
        "ttl_ms": ttl_ms,
        "every_s": every_s,
        "parent": os.getpid(),
    }
    if settings.url.startswith("https://"):
        trusted = ssl.get_default_verify_paths()
        message |= {"cafile": trusted.cafile, "capath": trusted.capath}
    return message


class Renewer:
    """Starts the renewal process with the first lease, registers each one, ends it with the last. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._orders: dict[str, Mapping[str, Any]] = {}
        self._renewed_at: dict[str, float] = {}
        self._failures: dict[str, str] = {}
        self._unread = b""

    def register(self, name: str, wanted: Mapping[str, Any]) -> None:
        """Register a lease or its new settings; a renewal process that has died is started again. Idempotent.

        Raises:
            Unsupported: the renewal process cannot be started, or reads nothing. It does not renew the lease.
        Cost: the first call starts an interpreter, 1 to 2 ms in this process and 10 ms of cpu in the new one; a
            repetition is one system call.
        """
        with self._lock:
            alive = self._process is not None and self._process.poll() is None
            if alive and self._orders.get(name) == wanted:
                return
            self._orders[name] = wanted
            try:
                if alive:
                    self._send(wanted)
                else:
                    self._stop()
                    self._start()
                    for each in self._orders.values():
                        self._send(each)
            except (OSError, ValueError, NotImplementedError) as error:
                self._stop()
                raise _cannot(error) from error

    def unregister(self, name: str) -> None:
        """Stop renewing a lease; with the last one the process ends. Idempotent."""
        with self._lock:
            if self._orders.pop(name, None) is None:
                return
            self._renewed_at.pop(name, None)
            self._failures.pop(name, None)
            if not self._orders:
                self._stop()
                return
            try:
                self._send({"name": name})
            except OSError:
                # It has died, or reads nothing: the next `register` starts another one for the remaining leases.
                self._stop()

    def renewed_at(self, name: str) -> float:
        """Return when the process last renewed a lease, on the monotonic clock; 0 for never."""
        with self._lock:
            self._listen()
            return self._renewed_at.get(name, 0.0)

    def close(self) -> None:
        """End the process and drop all leases. Idempotent."""
        with self._lock:
            self._orders.clear()
            self._stop()

    def abandon(self) -> None:
        """In a forked child, close its copy of the pipes: the parent's renewal process must end with the parent."""
        process, self._process = self._process, None
        if process is not None:
            # Marks it as ended: Popen would wait for it otherwise, but it is not a child of this process.
            process.returncode = 0
            _close(process)

    def _start(self) -> None:
        if not sys.executable or getattr(sys, "frozen", False) or not _PROGRAM.is_file():
            raise FileNotFoundError(f"{sys.executable!r} is not a Python interpreter that can run {_PROGRAM}")
        self._process = process = subprocess.Popen(
            # Isolated: no module of the caller, no site-packages and no variable changes what runs.
            [sys.executable, "-I", "-S", str(_PROGRAM)],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd="/",
            env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
            # Ctrl-C and Ctrl-Z signal a terminal's whole process group, but this program may survive both.
            start_new_session=True,
        )
        self._unread = b""
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None  # noqa: S101
            os.set_blocking(pipe.fileno(), False)

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process is not None  # noqa: S101
        assert self._process.stdin is not None  # noqa: S101
        line = json.dumps(message).encode() + b"\n"
        if self._process.stdin.write(line) != len(line):
            raise BlockingIOError("the renewal process does not read its pipe")

    def _listen(self) -> None:
        """Read the process's reports. It drops those that do not fit into the pipe, so they may be read late."""
        if self._process is None or self._process.stdout is None:
            return
        while data := self._process.stdout.read(_REPORTS_BYTES):
            *lines, rest = (self._unread + data).split(b"\n")
            self._unread = rest[-_REPORTS_BYTES:]
            for line in lines:
                self._received(line)

    def _received(self, line: bytes) -> None:
        try:
            report = json.loads(line)
            name, failure = report["name"], report["failure"]
        except (ValueError, KeyError, TypeError):
            _log.warning("unexpected output of the renewal process: %s", line.decode("utf-8", "replace"))
            return
        if name not in self._orders:
            return
        if not failure:
            self._renewed_at[name] = report["at"]
        elif self._failures.get(name) != failure:
            _log.warning("lease %s could not be renewed by the renewal process, retrying: %s", name, failure)
        self._failures[name] = failure

    def _stop(self) -> None:
        """Kill the process, which loses no state, and reap it."""
        process, self._process = self._process, None
        if process is not None:
            _close(process)
            process.kill()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_KILL_LIMIT_S)


def _close(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def _cannot(error: Exception) -> Unsupported:
    return Unsupported(
        f"the process that renews leases cannot be used: {error}",
        hint="The event loop of this program renews its leases instead: if it is blocked for longer than a lease, "
        "the sandboxes that nothing uses end. Give them a longer lease, or none.",
    )


_shared = Renewer()


def shared() -> Renewer:
    """Return the Renewer of this process."""
    return _shared


def _forked() -> None:
    """In a forked child: its clients get a renewal process of their own, and the parent's must end with the parent."""
    global _shared  # noqa: PLW0603
    _shared.abandon()
    _shared = Renewer()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


@atexit.register
def _leaving() -> None:
    _shared.close()
