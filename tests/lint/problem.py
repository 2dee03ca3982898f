"""What the rules report."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Problem:
    """A place and what is wrong there."""

    path: str
    line: int
    words: str
