"""Text that came from elsewhere, made harmless for terminals. Pure."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""Write what is not printable, and could control a terminal, as an escape: an ESC becomes `\x1b`."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def printable_lines(text: str) -> str:
    """The same for each line."""
    return "\n".join(map(printable, text.split("\n")))
