"""``OwnerLimits``: what all sandboxes of an owner may use of the network together."""

from dataclasses import dataclass, fields
from typing import Final, Self


@dataclass(frozen=True, slots=True)
class OwnerLimits:
    """Limits of an owner, each at each egress replica; 0: none of its quota.

    Attributes:
        connections: open at once.
        connections_per_second: new ones, after as many at once.
        bytes_per_second: both directions together.
        daily_bytes: both directions together, since midnight UTC.
    """

    connections: int = 0
    connections_per_second: int = 0
    bytes_per_second: int = 0
    daily_bytes: int = 0

    @property
    def text(self) -> str:
        """Different for different limits; empty for none at all."""
        numbers = [getattr(self, one.name) for one in fields(self)]
        return "/".join(map(str, numbers)) if any(numbers) else ""

    @classmethod
    def of(cls, quota: object) -> Self:
        """Those of a declared quota (None: there is none), whose fields begin with ``egress_``."""
        return cls(**{one.name: getattr(quota, f"egress_{one.name}", None) or 0 for one in fields(cls)})


NO_LIMITS: Final = OwnerLimits()
