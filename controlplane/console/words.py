"""Numbers, times and foreign text as the console writes them. Pure."""

from datetime import UTC, datetime
from typing import Final

_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))


def harmless(value: object) -> object:
    r"""Text with everything that is not printable as an escape (``\x1b``): for terminals that it is copied to.

    Also what changes the direction of writing, or is invisible, so that two names that look alike are alike.
    """
    if not isinstance(value, str) or value.isprintable() or hasattr(value, "__html__"):
        return value
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in value)


def duration(ms: int) -> str:
    """A duration by its largest unit: ``3.2 s``, ``12 min``, ``4 h``, ``2 d``."""
    for name, size in _UNITS:
        if ms >= size:
            return f"{ms / size:.1f} {name}" if ms < 10 * size else f"{ms // size} {name}"
    return f"{max(0, ms)} ms"


def cores(millicores: int) -> str:
    """Processors: ``2``, ``0.05``."""
    return f"{millicores / 1000:.3g}"


def number(count: int) -> str:
    """A count with thousands set apart."""
    return f"{count:,}"


def clock(at_ms: int) -> str:
    """The time of the day of a Unix time in UTC, to the millisecond."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]


def moment(at_ms: int) -> str:
    """A Unix time in UTC, to the second."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
