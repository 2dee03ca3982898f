"""JSON as its standard has it: Python's own reader also takes NaN, infinity and halves of characters. Pure."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn


def parsed(data: bytes | bytearray | str) -> Any:  # noqa: ANN401 - JSON
    """Read JSON in UTF-8.

    Args:
        data: all of it.

    Raises:
        ValueError: it is none, or too deep, or has what could not be written again; the message says what.
    Cost: where an escape of half a character is in it, what was read is written once more.
    """
    text = data if isinstance(data, str) else data.decode()
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    # Only an escape can be half of a character.
    if "\\ud" in text or "\\uD" in text:
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text[:40])


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")
