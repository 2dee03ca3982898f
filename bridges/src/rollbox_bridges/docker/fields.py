"""Reading JSON as Go does, where nothing that has a meaning may be ignored. Pure.

Go's names of fields have no case, and an absent field is its zero value: so a zero asks for nothing, whatever it is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from rollbox_bridges.docker.words import Refusal, not_honoured

_ZEROS: Final[tuple[Any, ...]] = (None, False, 0, "", [], {})


def is_zero(value: Any) -> bool:  # noqa: ANN401 - JSON
    """Whether a value asks for nothing."""
    return value in _ZEROS


def taken(
    place: str,
    body: Any,  # noqa: ANN401 - JSON
    known: Collection[str],
    harmless: Mapping[str, Sequence[Any]],
    reasons: Mapping[str, str],
) -> dict[str, Any]:
    """Return the known fields of an object, in their own case, without zeros.

    Args:
        place: of the object, for messages: "HostConfig." or "".
        body: the object; None is an empty one.
        known: fields that are read.
        harmless: other fields, with values that ask for nothing beside zeros.
        reasons: why a field is not honoured.

    Raises:
        Refusal: it is no object, or another field has a value that asks for something.
    """
    if body is None:
        return {}
    if not isinstance(body, dict):
        raise Refusal(400, f"{place.removesuffix('.') or 'the body'} is not a JSON object")
    cases = {name.lower(): name for group in (known, harmless, reasons) for name in group}
    found: dict[str, Any] = {}
    for given, value in body.items():
        name = cases.get(str(given).lower(), str(given))
        if is_zero(value) or value in harmless.get(name, ()):
            continue
        if name not in known:
            why = reasons.get(name, "the bridge does not know this field, and would ignore it")
            raise not_honoured(f"{place}{given} {_shown(value)}", why)
        found[name] = value
    return found


def text(name: str, value: Any) -> str:  # noqa: ANN401 - JSON
    """Read text; None is empty.

    Raises:
        Refusal: it is none, or holds NUL.
    """
    if value is None:
        return ""
    if not isinstance(value, str) or "\0" in value:
        raise Refusal(400, f"{name} {_shown(value)} is not text")
    return value


def flag(name: str, value: Any) -> bool:  # noqa: ANN401 - JSON
    """Read true or false; None is false.

    Raises:
        Refusal: it is neither.
    """
    if value is not None and not isinstance(value, bool):
        raise Refusal(400, f"{name} {_shown(value)} is neither true nor false")
    return bool(value)


def whole(name: str, value: Any, least: int = 0) -> int:  # noqa: ANN401 - JSON
    """Read a whole number; None is 0.

    Raises:
        Refusal: it is none, or less than `least`.
    """
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**63:
        raise Refusal(400, f"{name} {_shown(value)} is not a whole number from {least} on")
    return value


def words(name: str, value: Any) -> list[str]:  # noqa: ANN401 - JSON
    """Read a list of texts; a text is a list of itself, None is empty.

    Raises:
        Refusal: it is neither.
    """
    if value is None:
        return []
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list):
        raise Refusal(400, f"{name} {_shown(value)} is not a list of texts")
    return [text(f"an entry of {name}", one) for one in value]


def texts(name: str, value: Any) -> dict[str, str]:  # noqa: ANN401 - JSON
    """Read an object of texts; None is empty.

    Raises:
        Refusal: it is none.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Refusal(400, f"{name} {_shown(value)} is not an object of texts")
    return {key: text(f"{name}[{key!r}]", one) for key, one in value.items()}


def variables(value: Any) -> dict[str, str]:  # noqa: ANN401 - JSON
    """Read `Env`, a list of NAME=VALUE.

    Raises:
        Refusal: it is none, or would take a variable of the image away.
    """
    found: dict[str, str] = {}
    for one in words("Env", value):
        name, separator, content = one.partition("=")
        if not name:
            raise Refusal(400, f"the variable {one[:100]!r} of Env has no name")
        if not separator:
            raise not_honoured(f"Env {name!r} without a value", "a variable of the image cannot be taken away")
        found[name] = content
    return found


def size_of(name: str, value: Any) -> tuple[int, int] | None:  # noqa: ANN401 - JSON
    """Read `ConsoleSize`, rows and columns; returns columns and rows, None where it says nothing.

    Raises:
        Refusal: it is none.
    """
    if is_zero(value) or value == [0, 0]:
        return None
    if not isinstance(value, list) or len(value) != 2:
        raise Refusal(400, f"{name} {_shown(value)} is not rows and columns")
    rows, columns = (whole(name, one, least=1) for one in value)
    return columns, rows


def _shown(value: Any) -> str:  # noqa: ANN401 - JSON
    shown = repr(value)
    return shown if len(shown) <= 100 else f"{shown[:100]}..."
