"""Reads the files in which tests leave a reward. Pure."""

from __future__ import annotations

import json
import math
from typing import Any, Final

HARBOR_REWARD_FILES: Final = ("/logs/verifier/reward.json", "/logs/verifier/reward.txt")
"""Where tests of tasks in Harbor's format leave the reward."""
MOST_BYTES = 2**16
_MOST_NAMES = 100


class Malformed(Exception):  # noqa: N818 - the file is
    """What is wrong with a file of rewards."""


def parsed(path: str, data: bytes) -> dict[str, float]:
    """Read rewards by name: of a `.json` file an object of numbers, of any other one number, by the name `reward`.

    Raises:
        Malformed: it is too large, or something else.
    """
    if len(data) > MOST_BYTES:
        raise Malformed(f"{path} has more than {MOST_BYTES} bytes")
    try:
        text = data.decode()
        if not path.endswith(".json"):
            return {"reward": _number(float(text))}
        told = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"{path} cannot be read: {error}") from error
    if not isinstance(told, dict) or not told or len(told) > _MOST_NAMES:
        raise Malformed(f"{path} is no object of 1 to {_MOST_NAMES} numbers")
    return {name: _number(value) for name, value in told.items()}


def chosen(rewards: dict[str, float]) -> float | None:
    """Return the one that counts: `reward`, or the only one; None: there are several others."""
    return rewards.get("reward", next(iter(rewards.values())) if len(rewards) == 1 else None)


def _number(value: Any) -> float:  # noqa: ANN401 - JSON
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e15 or math.isnan(value):
        raise Malformed(f"a reward is {value!r}: not a number of at most 1e15")
    return float(value)
