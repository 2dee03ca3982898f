"""The part of an output that a model reads at once. Pure."""

from __future__ import annotations

# The longest character of UTF-8, less its first byte.
_MOST_REST = 3
_CONTINUES = 0x80


def excerpt(data: bytes, total: int, most: int, *, start: int = 0, hint: str) -> str:
    """Return an output as text: whole where it fits, else its beginning and its end as far as they are there.

    Args:
        data: what was kept of it.
        total: how many bytes it had.
        most: how many bytes of it to return at most.
        start: the byte of the output that `data` begins with.
        hint: how to read the rest, for the place where something is left out.
    """
    if len(data) <= most and len(data) == total:
        return data.decode("utf-8", "replace")
    begins, ends = start == 0, start + len(data) == total
    head = min(len(data), most // 2 if ends else most) if begins else 0
    tail = min(len(data) - head, most - head) if ends else 0
    first, last = data[: before(data, head)], data[before(data, len(data) - tail) :] if tail else b""
    left_out = f"[... {total - len(first) - len(last)} bytes left out: {hint} ...]"
    parts = (first.decode("utf-8", "replace"), left_out, last.decode("utf-8", "replace"))
    return "\n".join(part for part in parts if part)


def before(data: bytes, at: int) -> int:
    """Return the last place at or before `at` where a character of UTF-8 begins; `at` where there is none near."""
    for back in range(min(at, _MOST_REST) + 1):
        if at - back >= len(data) or data[at - back] & 0xC0 != _CONTINUES:
            return at - back
    return at


def continued(data: bytes) -> int:
    """Return how many bytes at the beginning belong to a character of UTF-8 that has begun before."""
    return next((at for at, byte in enumerate(data[:_MOST_REST]) if byte & 0xC0 != _CONTINUES), 0)
