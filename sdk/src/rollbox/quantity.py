"""Amounts of cpu and memory as people write them, read into millicores and bytes. Pure: no clock, no I/O."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import NamedTuple, TypeAlias

from rollbox.errors import InvalidArgument

Cpu: TypeAlias = float | str | tuple[float | str, float | str]
"""Cores: a limit, or (request, limit); "500m" is half a core. Of a limit alone the installation requests a share."""

Memory: TypeAlias = int | str | tuple[int | str, int | str]
"""Bytes or "512Mi": a limit, or (request, limit). Of a limit alone the installation requests a share."""

Size: TypeAlias = int | str
"""Bytes or "2Gi"."""

_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,18})?) ?([KMGT]i|[kMGT])?B?", re.ASCII)
_CORES = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(m)?", re.ASCII)

# The control plane has the same defaults, so that creates and pools that omit these values match.
DEFAULT_CPU = (0.1, 2)
DEFAULT_MEMORY = ("256Mi", "2Gi")


class Range(NamedTuple):
    """What is reserved and what may be used at most."""

    request: int
    limit: int


class Wanted(NamedTuple):
    """What a create asks for: a request (None: the installation's share of the limit), and the limit."""

    request: int | None
    limit: int

    def to_json(self) -> dict[str, int]:
        """Write the wire form."""
        return {"limit": self.limit} if self.request is None else {"request": self.request, "limit": self.limit}


def parse_memory(value: Size, name: str = "memory") -> int:
    """Read one amount of memory or disk.

    Args:
        value: bytes, or a string with a binary (Ki, Mi, Gi, Ti) or decimal (k, M, G, T) unit: "256Mi", "1.5Gi", "500M".
        name: the argument's name, for the error message.

    Returns:
        bytes, at least 1.

    Raises:
        InvalidArgument: not a size, not a whole number of bytes, or less than one byte.
    """
    if isinstance(value, str):
        match = _SIZE.fullmatch(value.strip())
        exact = Decimal(match[1]) * _UNITS[match[2] or ""] if match else Decimal(0)
        if not match or exact != int(exact):
            raise InvalidArgument(
                f"{name} {value!r} is not a size; sizes are whole bytes or strings like '512Mi' or '2Gi'"
            )
        size_bytes = int(exact)
    elif isinstance(value, int) and not isinstance(value, bool):
        size_bytes = value
    else:
        raise InvalidArgument(f"{name} {value!r} is not a size; sizes are whole bytes or strings like '512Mi' or '2Gi'")
    if size_bytes < 1:
        raise InvalidArgument(f"{name} {value!r} is less than one byte")
    return size_bytes


def parse_cpu(value: float | str) -> int:
    """Read one amount of cpu.

    Args:
        value: cores as a number (0.1, 2) or a string ("0.5", "500m").

    Returns:
        millicores, rounded, at least 1.

    Raises:
        InvalidArgument: not a number of cores, not finite, or less than one millicore.
    """
    if isinstance(value, str):
        match = _CORES.fullmatch(value.strip())
        if not match:
            raise InvalidArgument(f"cpu {value!r} is not a number of cores; write 2, 0.5 or '500m'")
        cores = float(match[1]) / (1000 if match[2] else 1)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        cores = float(value)
    else:
        raise InvalidArgument(f"cpu {value!r} is not a number of cores; write 2, 0.5 or '500m'")
    if not math.isfinite(cores) or cores < 0.001:
        raise InvalidArgument(f"cpu {value!r} is not a finite number of cores of at least 0.001")
    return round(cores * 1000)


def cpu_range(value: Cpu) -> Wanted:
    """Read a limit or (request, limit) of cpu into millicores; InvalidArgument for anything else."""
    return _range("cpu", value, parse_cpu)


def memory_range(value: Memory) -> Wanted:
    """Read a limit or (request, limit) of memory into bytes; InvalidArgument for anything else."""
    return _range("memory", value, parse_memory)


def _range(name: str, value: object, parse: Callable[..., int]) -> Wanted:
    if not isinstance(value, tuple | list):
        return Wanted(None, parse(value))
    if len(value) != 2:
        raise InvalidArgument(f"{name} {value!r} has {len(value)} parts; give a limit or (request, limit)")
    request, limit = parse(value[0]), parse(value[1])
    if request > limit:
        raise InvalidArgument(f"{name} request {value[0]!r} is more than its limit {value[1]!r}")
    return Wanted(request, limit)
