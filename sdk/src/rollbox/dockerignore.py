"""What a .dockerignore leaves out of a context, as Docker reads it. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

from rollbox.errors import InvalidArgument


class Ignored:
    """Says of names in a context whether they stay out.

    A pattern is one of Go's `filepath.Match`, with `**` for any number of folders, from the root of the context; what
    matches a folder matches all in it. A line that begins with `!` takes names in again. The last line that matches is
    the one that counts.
    """

    def __init__(self, text: str) -> None:
        """Read the file.

        Raises:
            InvalidArgument: a pattern is malformed.
        """
        self._patterns: list[tuple[bool, re.Pattern[str]]] = []
        for line in text.removeprefix("\ufeff").splitlines():
            bare = line.strip()
            if not bare or line.startswith("#"):
                continue
            keep = bare.startswith("!")
            pattern = bare[1:].strip() if keep else bare
            cleaned = posixpath.normpath(pattern).lstrip("/")
            if cleaned not in ("", "."):
                self._patterns.append((keep, _compiled(cleaned)))
        self._keeps = any(keep for keep, _ in self._patterns)

    def __call__(self, name: str) -> bool:
        """Return whether a name stays out."""
        out = False
        parts = name.split("/")
        above = ["/".join(parts[: count + 1]) for count in range(len(parts))]
        for keep, pattern in self._patterns:
            if keep == out and any(pattern.fullmatch(one) for one in above):
                out = not keep
        return out

    def may_hold(self, name: str) -> bool:
        """Return whether something in a folder that stays out may be taken in again."""
        return bool(name) and self._keeps


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile("".join(_parts(pattern)), re.S)
    except (re.error, ValueError) as error:
        raise InvalidArgument(f".dockerignore: the pattern {pattern!r} is malformed: {error}") from error


def _parts(pattern: str) -> Sequence[str]:
    made: list[str] = []
    place = 0
    while place < len(pattern):
        if pattern.startswith("**", place):
            place += 2
            if pattern.startswith("/", place):
                place += 1
                made.append("(?:.*/)?")
            else:
                made.append(".*")
            continue
        one = pattern[place]
        place += 1
        if one == "*":
            made.append("[^/]*")
        elif one == "?":
            made.append("[^/]")
        elif one == "[":
            end = pattern.index("]", place)
            made.append(f"[{_class(pattern[place:end])}]")
            place = end + 1
        elif one == "\\" and place < len(pattern):
            made.append(re.escape(pattern[place]))
            place += 1
        else:
            made.append(re.escape(one))
    return made


def _class(text: str) -> str:
    negated = text.startswith("^")
    inner = text[1:] if negated else text
    return ("^" if negated else "") + re.sub(r"([\[\]^])", r"\\\1", inner)
