"""What no sound client sends: JSON that is nearly right, and bytes that are nearly whole, for property tests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as some

_TEXT = some.text(some.characters(codec=None), max_size=20) | some.sampled_from(
    ["", "\0", "\ud800", "a\nb", "../..", "/", "9" * 5000, "-1", "1e400", "²", "x" * 3000]
)
_ALONE = (
    some.none()
    | some.booleans()
    | some.integers()
    | some.sampled_from([2**63, -(2**63) - 1, 10**400, 0, 1])
    | some.floats()
    | _TEXT
)
VALUES = some.recursive(
    _ALONE, lambda inner: some.lists(inner, max_size=3) | some.dictionaries(_TEXT, inner, max_size=3), max_leaves=6
)
"""Any JSON, with what Python's own reads and writes beyond it: NaN, and halves of characters."""


@some.composite
def bodies(draw: some.DrawFn, sound: Mapping[str, Any]) -> dict[str, Any]:
    """A sound object in which some fields have another value, are gone, or are more."""
    body = dict(sound)
    for name in draw(some.lists(some.sampled_from([*sound, "later"]), min_size=1, max_size=3)):
        inner = body.get(name)
        if isinstance(inner, dict) and inner and draw(some.booleans()):
            body[name] = {**inner, draw(some.sampled_from(list(inner))): draw(VALUES)}
        elif draw(some.integers(0, 4)):
            body[name] = draw(VALUES)
        else:
            body.pop(name, None)
    return body


def written(body: Any) -> bytes:
    """JSON as Python writes it."""
    return json.dumps(body).encode()


@some.composite
def spoiled(draw: some.DrawFn, sound: bytes) -> bytes:
    """Sound bytes of which some are gone, doubled, or others."""
    data = bytearray(sound)
    for _ in range(draw(some.integers(1, 3))):
        at = draw(some.integers(0, len(data)))
        size = draw(some.integers(0, 8))
        match draw(some.sampled_from(["cut", "out", "in", "twice", "flip"])):
            case "cut":
                del data[at:]
            case "out":
                del data[at : at + size]
            case "in":
                data[at:at] = draw(some.binary(max_size=8))
            case "twice":
                data[at:at] = data[at : at + 40]
            case _ if at < len(data):
                data[at] ^= 1 << size % 8
    return bytes(data)
