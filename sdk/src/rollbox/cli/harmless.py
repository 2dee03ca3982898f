"""The output of commands, made harmless for the terminal of the person who looks at it. Pure."""

from __future__ import annotations

import re

# Colours, and nothing else of what a terminal obeys.
_COLOUR = rb"\x1b\[[0-9;:]*m"
# What may become a colour, or the second byte of a C1 control, with the bytes that follow.
_BEGUN = re.compile(rb"(?:\x1b(?:\[[0-9;:]{0,64})?|\xc2)\Z")
_CONTROL = re.compile(rb"(" + _COLOUR + rb")|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]")


class Harmless:
    """Takes the output of one stream piece by piece, and gives it back with its control characters made visible.

    Colours, tabs, line ends and carriage returns stay. An ESC becomes `^[`, as `cat -v` writes it; so whatever code in
    a sandbox prints, it changes no title, clipboard or key of the terminal, and moves no cursor but within its line.
    """

    def __init__(self) -> None:
        self._held = b""

    def __call__(self, data: bytes) -> bytes:
        """Take a piece; what may be the beginning of a sequence waits for the next one."""
        data = self._held + data
        begun = _BEGUN.search(data)
        self._held = data[begun.start() :] if begun else b""
        return _made(data[: begun.start()] if begun else data)

    def rest(self) -> bytes:
        """Return what still waits, at the end of the stream."""
        held, self._held = self._held, b""
        return _made(held)


def _made(data: bytes) -> bytes:
    return _CONTROL.sub(lambda found: found[1] or _visible(found[0]), data)


def _visible(control: bytes) -> bytes:
    if len(control) == 2:
        return rb"\x%02x" % control[1]
    return b"^" + bytes([control[0] ^ 0x40])
