"""Parses Kubernetes quantities (``500m``, ``16Gi``, ``1e3``) into whole numbers. Pure."""

import re
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache
from typing import Final

_AMOUNT: Final = re.compile(r"([0-9.]+(?:[eE][+-]?[0-9]+)?)(m|[numkMGTPE]|[KMGTPE]i)?")
_UNITS: Final = {"n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1)} | {
    letter + binary: Decimal((1024 if binary else 1000) ** power)
    for power, letter in enumerate("KMGTPE", start=1)
    for binary in ("i", "")
}
_UNITS["k"] = _UNITS.pop("K")


def amount(text: object, scale: int = 1, *, up: bool = False) -> int:
    """The quantity times ``scale``, rounded down; 0 if ``text`` is no quantity.

    Args:
        text: a number with or without a unit suffix.
        scale: 1000 for millicores of cpu.
        up: it is rounded up: so Kubernetes rounds requests.
    """
    return _amount(str(text or ""), scale, up)


# Pods say the same few amounts, in every event.
@lru_cache(maxsize=1024)
def _amount(text: str, scale: int, up: bool) -> int:
    match = _AMOUNT.fullmatch(text)
    if match is None:
        return 0
    exact = Decimal(match[1]) * _UNITS[match[2] or ""] * scale
    return int(exact.to_integral_value(ROUND_CEILING) if up else exact)
