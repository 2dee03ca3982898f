"""Labels at their limits."""

from __future__ import annotations

MOST, KEY_CHARS, VALUE_CHARS = 64, 128, 256


def longest(letter: str = "x") -> dict[str, str]:
    """As many as there may be, keys and values as long as they may be: 24 kB of one-byte letters."""
    return {f"{n:02}{'k' * (KEY_CHARS - 2)}": letter * VALUE_CHARS for n in range(MOST)}
