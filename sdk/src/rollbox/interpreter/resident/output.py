"""What cells print: by Python's own streams, and by the descriptors 1 and 2, which sub-processes inherit."""

from __future__ import annotations

import _thread
import io
import os
import select
import sys
import time

from . import wire
from .interrupts import Interrupts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Output of a cell goes at once, and then at most so often.
_HOLD_S = 0.02
_FRAME_BYTES = 2**18
_PIPE_BYTES = 2**16
# What no cell has printed is kept up to here for the next one.
_BACKGROUND_BYTES = 2**16
_STREAMS = (wire.STDOUT, wire.STDERR)
_NAMES = ("stdout", "stderr")


class Output:
    """Collects what is printed, and sends it in frames, with other frames of the cell in the order they came.

    Attributes:
        totals: bytes of stdout and of stderr that the cell has printed.
        forked: whether this is a child of the program, whose output goes to the descriptors like that of others.
    """

    def __init__(self, to: wire.Wire, interrupts: Interrupts) -> None:
        self.totals = [0, 0]
        self.forked = False
        self._wire = to
        self._interrupts = interrupts
        self._lock = _thread.RLock()
        self._most = 0
        self._running = False
        self._sending = False
        self._armed = False
        self._sent_at = 0.0
        self._pending: list[tuple[bytes, Any]] = []
        self._pending_bytes = 0
        self._background = [bytearray(), bytearray()]
        self._pipes = [_piped(fd) for fd in (1, 2)]
        self._wake = _pipe()
        self._ready = select.poll()
        for reading, _ in self._pipes:
            self._ready.register(reading, select.POLLIN)
        for fd in (1, 2):
            self._ready.register(fd, 0)
        self._texts = [_text(self, at) for at in (0, 1)]
        for at, name in enumerate(_NAMES):
            setattr(sys, name, self._texts[at])
            setattr(sys, f"__{name}__", self._texts[at])
        os.register_at_fork(after_in_child=self._after_fork)
        _thread.start_new_thread(self._watch, ())

    def begin(self, most: int) -> None:
        """A cell begins: what comes belongs to it, at most so many bytes of each stream."""
        with self._lock:
            self._most, self._running = most, True
            if self._background[0] or self._background[1]:
                self._tell_background()

    def end(self) -> None:
        """It ends: what the pipes have by now is its own."""
        for at, name in enumerate(_NAMES):
            placed = getattr(sys, name, None)
            if placed is not self._texts[at]:
                _flush(placed)
            _flush(self._texts[at])
        with self._lock:
            closed = self._drain()
            self._running = False
        for fd in closed:
            os.dup2(self._pipes[fd - 1][1], fd)

    def ready(self) -> None:
        """Make ready for the next cell, while the client reads what this one has answered."""
        for at, name in enumerate(_NAMES):
            if not _usable(self._texts[at]):
                self._texts[at] = _text(self, at)
                setattr(sys, f"__{name}__", self._texts[at])
            # Also what a cell has put there: it would take what later cells print.
            setattr(sys, name, self._texts[at])
        with self._lock:
            self.totals, self._sent_at = [0, 0], 0.0

    def flush(self) -> None:
        """Send what is held back: the program ends."""
        if not self.forked:
            with self._interrupts, self._lock:
                self._drain()
                self._flush()

    def finish(self, final: bytes) -> None:
        """Send the rest and the last frame."""
        with self._lock:
            self._pending.append((wire.END, final))
            self._flush()

    def write(self, at: int, data: bytes) -> None:
        """Take what Python has printed to stdout (0) or stderr (1)."""
        if self.forked:
            _write_all(at + 1, data)
            return
        with self._interrupts, self._lock:
            # What a sub-process has printed before comes before.
            if not self._sending:
                events = self._ready.poll(0)
                if events:
                    self._read(events)
            self._add(at, data)

    def frame(self, kind: bytes, data: bytes, *, soon: bool = False) -> None:
        """Send a whole frame behind what was printed: at the end of the cell, or `soon`."""
        with self._interrupts, self._lock:
            self._pending.append((kind, data))
            self._pending_bytes += len(data)
            if soon:
                self._soon()

    def _tell_background(self) -> None:
        for at, data in enumerate(self._background):
            if data:
                self.frame(wire.BACKGROUND, wire.encoded(wire.BACKGROUND, _STREAMS[at], bytes(data)))
                data.clear()

    def _add(self, at: int, data: bytes) -> None:
        if not self._running:
            room = _BACKGROUND_BYTES - len(self._background[at])
            self._background[at] += data[:room]
            return
        size, room = len(data), self._most - self.totals[at]
        self.totals[at] += size
        if room <= 0:
            return
        if size > room:
            data = data[:room]
        if size > _FRAME_BYTES:
            self._append_parts(_STREAMS[at], data)
        else:
            self._append(_STREAMS[at], data)
        self._soon()

    def _append_parts(self, kind: bytes, data: bytes) -> None:
        for start in range(0, len(data), _FRAME_BYTES):
            self._append(kind, data[start : start + _FRAME_BYTES])
            if self._pending_bytes >= _FRAME_BYTES and not self._sending:
                self._flush()

    def _append(self, kind: bytes, part: bytes) -> None:
        pending = self._pending
        if pending and pending[-1][0] == kind and len(pending[-1][1]) + len(part) <= _FRAME_BYTES:
            pending[-1][1].extend(part)
        else:
            pending.append((kind, bytearray(part)))
        self._pending_bytes += len(part)

    def _soon(self) -> None:
        """Send at once what is the first for a while or much, else let the thread do it."""
        if self._sending:
            return
        if self._pending_bytes >= _FRAME_BYTES or (not self._armed and time.monotonic() - self._sent_at > _HOLD_S):
            self._flush()
        elif not self._armed:
            self._armed = True
            os.write(self._wake[1], b"w")

    def _flush(self) -> None:
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        data = b"".join([wire.encoded(kind, bytes(part)) if kind in _STREAMS else part for kind, part in pending])
        self._sending = True
        try:
            self._wire.send(data)
        finally:
            self._sending = False
        self._sent_at = time.monotonic()

    def _drain(self) -> list[int]:
        """Read what the pipes have; returns which of the descriptors 1 and 2 are closed, by the same system call."""
        return self._read(self._ready.poll(0))

    def _read(self, events: list[tuple[int, int]]) -> list[int]:
        closed = []
        for fd, event in events:
            for at, (reading, _) in enumerate(self._pipes):
                if fd == reading:
                    self._add(at, os.read(reading, _PIPE_BYTES))
                elif fd == at + 1 and event & select.POLLNVAL:
                    closed.append(fd)
        return closed

    def _watch(self) -> None:
        """Read the pipes while nobody else does, and send what was held back."""
        watched = select.poll()
        for fd in (*[reading for reading, _ in self._pipes], self._wake[0]):
            watched.register(fd, select.POLLIN)
        while True:
            ready = watched.poll(_HOLD_S * 1000 if self._armed else None)
            if any(fd == self._wake[0] for fd, _ in ready):
                os.read(self._wake[0], 64)
                time.sleep(_HOLD_S)
            with self._lock:
                self._drain()
                if self._armed or not ready:
                    self._armed = False
                    if self._pending and self._running:
                        self._flush()

    def _after_fork(self) -> None:
        # A child of a child has closed them: what has their numbers now is its own.
        if not self.forked:
            self.forked, self._pending = True, []
            self._wire.close()


class _Stream(io.RawIOBase):
    """What is below `sys.stdout` and `sys.stderr`."""

    def __init__(self, output: Output, at: int) -> None:
        self._output = output
        self._at = at

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._at + 1

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self._output.write(self._at, bytes(data))
        return len(data)


def _text(output: Output, at: int) -> io.TextIOWrapper:
    stream: Any = _Stream(output, at)
    return io.TextIOWrapper(stream, "utf-8", "backslashreplace", line_buffering=True)


def _flush(stream: Any) -> None:
    try:
        stream.flush()
    except Exception:
        # Closed, or what a cell has put there fails; `ready` mends both.
        return


def _usable(stream: io.TextIOWrapper) -> bool:
    try:
        return not stream.closed
    except ValueError:
        # Its bytes were given to another one, by `detach`.
        return False


def _pipe() -> tuple[int, int]:
    """A pipe that no sub-process inherits."""
    ends = os.pipe()
    reading, writing = wire.kept_apart(ends[0]), wire.kept_apart(ends[1])
    for end in ends:
        os.close(end)
    return reading, writing


def _piped(fd: int) -> tuple[int, int]:
    """A pipe in place of a descriptor."""
    reading, writing = _pipe()
    os.dup2(writing, fd)
    return reading, writing


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]
