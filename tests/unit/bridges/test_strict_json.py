"""JSON of clients: what Python's own reader takes beyond the standard is refused, and all else is read as by it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as some

from rollbox_bridges.strict_json import parsed

SOUND = some.recursive(
    some.none() | some.booleans() | some.integers(-(2**70), 2**70) | some.floats(allow_nan=False, allow_infinity=False)
    | some.text(),
    lambda inner: some.lists(inner, max_size=4) | some.dictionaries(some.text(), inner, max_size=4),
)  # fmt: skip


@given(SOUND, some.booleans())
def test_json_is_read_as_by_python(value: object, escaped: bool) -> None:
    text = json.dumps(value, ensure_ascii=escaped)
    assert parsed(text) == parsed(text.encode()) == json.loads(text)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"NaN",
        b"[-Infinity]",
        b"1e400",
        b'"\\ud800"',
        b'{"\\uDC00": 1}',
        b"\xff",
        b"\xed\xa0\x80",
        "{}".encode("utf-16"),
        b"\xef\xbb\xbf{}",
        b"9" * 5000,
        b"[" * 100_000,
    ],
)
def test_what_is_none_is_refused_in_one_way(data: bytes) -> None:
    with pytest.raises(ValueError, match="."):
        parsed(data)


@given(some.binary(max_size=200))
def test_any_bytes_are_json_or_a_value_error(data: bytes) -> None:
    try:
        value = parsed(data)
    except ValueError:
        return
    json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
