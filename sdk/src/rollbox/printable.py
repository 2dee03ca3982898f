"""Text that came from elsewhere, made harmless for terminals and those that read messages. Pure."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""Write what is not printable, and could control a terminal, as an escape: an ESC becomes `\x1b`."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def printable_lines(text: str) -> str:
    """The same for each line."""
    return "\n".join(map(printable, text.split("\n")))


def what_broke(error: BaseException) -> str:
    """Write what broke a connection: of an answer's error not what its `repr` has, headers with credentials."""
    # Of aiohttp, which is not imported here.
    if getattr(error, "request_info", None) is not None:
        return f"{type(error).__name__}: {getattr(error, 'status', 0)}, {getattr(error, 'message', '')!r}"
    return repr(error)
