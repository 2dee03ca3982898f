"""Sizes as Docker writes them, which harnesses hand on."""

from __future__ import annotations

import re

_UNITS = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30}


def size_bytes(value: str | int) -> int:
    """Read a size like 512, "512m" or "4GB", whose units are powers of 1024.

    Raises:
        ValueError: it is none.
    """
    parts = re.fullmatch(r"(\d+)([bkmg]?)b?", str(value).lower())
    if parts is None:
        raise ValueError(f"{value!r} is no size as Docker has them, like '512m'")
    return int(parts[1]) * _UNITS[parts[2]]
