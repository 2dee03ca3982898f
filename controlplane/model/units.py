"""Values of the wire in words: its names end in their unit, which people do not think in. Pure."""

from collections.abc import Mapping
from typing import Final

_SIZES: Final[Mapping[str, tuple[tuple[int, str], ...]]] = {
    "_ms": ((86_400_000, " d"), (3_600_000, " h"), (60_000, " min"), (1000, " s")),
    "_bytes": ((1 << 40, "Ti"), (1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")),
    "_millicores": ((1000, " cores"),),
}


def in_words(field: str, value: float) -> str:
    """A value of a field, and beside it the same in the largest unit that it is a whole number of.

    Args:
        field: its name, with those of what it is in before it: `template.memory_bytes.limit`.
        value: in the unit of the field.
    """
    sizes = next((sizes for end, sizes in _SIZES.items() if any(part.endswith(end) for part in field.split("."))), ())
    for size, unit in sizes:
        if value and value % size == 0:
            return f"{value} ({value // size}{unit})"
    return str(value)


def size(count: int) -> str:
    """Bytes in the largest unit of 1024 that fits."""
    left = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if left < 1024:
            return f"{left:.3g} {unit}" if left < 1000 else f"{left:.0f} {unit}"
        left /= 1024
    return f"{left:.3g} TiB"
