"""The output of commands, made harmless for the terminal of the person who looks at it. Pure."""

from __future__ import annotations

import re

# Colours, and nothing else of what a terminal obeys.
_COLOUR = rb"\x1b\[[0-9;:]*m"
# Letters of more than one byte in UTF-8, but C1 controls: a terminal may obey these, also as a byte outside any letter.
_LETTERS = (
    rb"\xc2[\xa0-\xbf]|[\xc3-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}"
    rb"|\xed[\x80-\x9f][\x80-\xbf]|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2}"
)
# What may become a colour, a letter or a C1 control with the bytes that follow.
_BEGUN = re.compile(
    rb"(?:\x1b(?:\[[0-9;:]{0,64})?|[\xc2-\xdf]|\xe0[\xa0-\xbf]?|[\xe1-\xec\xee\xef][\x80-\xbf]?|\xed[\x80-\x9f]?"
    rb"|\xf0(?:[\x90-\xbf][\x80-\xbf]?)?|[\xf1-\xf3][\x80-\xbf]{0,2}|\xf4(?:[\x80-\x8f][\x80-\xbf]?)?)\Z"
)
_CONTROL = re.compile(rb"((?:" + _COLOUR + rb"|" + _LETTERS + rb")+)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2?[\x80-\x9f]")


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
    if control[-1] >= 0x80:
        return rb"\x%02x" % control[-1]
    return b"^" + bytes([control[0] ^ 0x40])
