"""The selectors of an expression, and series that they match, to try any panel with made figures; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

_SELECTOR: Final = re.compile(r"\b(rollbox_[a-z0-9_]+)\{([^}]*)\}")
_MATCHER: Final = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')
_MATCHING: Final = re.compile(r"\s*(?:on|ignoring)\s*\([^)]*\)\s*(?:group_left\s*\([^)]*\)\s*)?")
_NUMBER: Final = re.compile(r"\s*[\d.]+")
_WITHOUT_ZEROS: Final = re.compile(r"\s> 0$")


@dataclass(frozen=True)
class Selector:
    """One metric in an expression, and labels that it takes."""

    name: str
    labels: Mapping[str, str]

    def series(self, **more: str) -> str:
        """A series that it takes, as promtool writes one; `more`: labels of a replica."""
        labels = ",".join(f'{name}="{value}"' for name, value in {**self.labels, **more}.items())
        return f"{self.name}{{{labels}}}"


def selectors(expression: str) -> Iterator[Selector]:
    """All of an expression, each with the first value that a matcher takes."""
    for name, inside in _SELECTOR.findall(expression):
        yield Selector(name, {label: _value(how, value) for label, how, value in _MATCHER.findall(inside)})


def _value(how: str, value: str) -> str:
    if how == "=":
        return value
    return "other" if how in ("!=", "!~") else "n" if value == ".*" else value.split("|", maxsplit=1)[0]


def unguarded(expression: str) -> Iterator[str]:
    """What an expression divides by without `> 0`: where that is 0, or held up by a number, a ratio means nothing."""
    bare = re.sub(r"\{[^}]*\}", lambda found: " " * len(found[0]), expression)
    for at in (place for place, one in enumerate(bare) if one == "/"):
        rest = bare[at + 1 :]
        matching = _MATCHING.match(rest)
        rest = (rest[matching.end() :] if matching else rest).lstrip()
        divisor = _parenthesis(rest)
        if not (_NUMBER.match(rest) or (divisor and _WITHOUT_ZEROS.search(divisor))):
            yield rest


def _parenthesis(text: str) -> str:
    """What is in the parenthesis that a text begins with; empty: it begins with none."""
    depth = 0
    for place, one in enumerate(text):
        depth += (one == "(") - (one == ")")
        if depth == 0:
            return text[1:place].rstrip() if place else ""
    return ""
