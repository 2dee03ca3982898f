"""Labels: the names by which sandboxes are listed and deleted. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rollbox.errors import InvalidArgument


def checked(labels: Mapping[str, str] | None) -> dict[str, str]:
    """Copy labels.

    A key cannot hold `=` since a filter is written `key=value`; a value can.

    Raises:
        InvalidArgument: a key is empty or holds `=`, or something is not text.
    """
    found = dict(labels or {})
    for key, value in found.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidArgument(f"label {key!r}: {value!r} is not text: keys and values are strings")
        if not key or "=" in key:
            raise InvalidArgument(f"label key {key!r} is empty or holds '='")
    return found


def parse(pairs: Iterable[str]) -> dict[str, str]:
    """Read `key=value` strings, as typed on a command line; the last one of a key counts.

    Raises:
        InvalidArgument: one has another form.
    """
    found: dict[str, str] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise InvalidArgument(f"{pair!r} is not of the form key=value")
        found[key] = value
    return found


def query(labels: Mapping[str, str] | None) -> list[tuple[str, str]]:
    """Write the query that selects sandboxes with all these labels."""
    return [("label", f"{key}={value}") for key, value in checked(labels).items()]
