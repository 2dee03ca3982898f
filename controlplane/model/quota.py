"""Quotas and usage of owners, and the usage of one sandbox. Pure values; cpu and memory count by their requests."""

from dataclasses import dataclass, field, fields
from typing import Final, Self

from controlplane.model.sandbox import Sandbox


@dataclass(frozen=True, slots=True)
class Quota:
    """The limits of one owner, for what is in use at the same time; 0 = no limit.

    Attributes:
        starting: sandboxes that are not ready yet.
    """

    sandboxes: int = 0
    cpu_millicores: int = 0
    memory_bytes: int = 0
    gpu: int = 0
    starting: int = 0


@dataclass(frozen=True, slots=True)
class Usage:
    """How much of each resource is in use; see ``Quota``."""

    sandboxes: int = 0
    cpu_millicores: int = 0
    memory_bytes: int = 0
    gpu: int = 0
    starting: int = 0

    @classmethod
    def of(cls, sandbox: Sandbox) -> Self:
        """What one sandbox counts; nothing once its end has begun."""
        if not sandbox.state.counted:
            return cls()
        spec = sandbox.spec
        return cls(1, spec.cpu_millicores.request, spec.memory_bytes.request, spec.gpu, int(sandbox.state.unready))

    def __add__(self, other: "Usage") -> "Usage":
        """The sum of both."""
        return Usage(*(getattr(self, name) + getattr(other, name) for name in RESOURCES))

    def __sub__(self, other: "Usage") -> "Usage":
        """The difference."""
        return Usage(*(getattr(self, name) - getattr(other, name) for name in RESOURCES))

    def excess(self, more: "Usage", quota: Quota) -> str | None:
        """The first resource of which ``more`` would exceed ``quota``; None when all of it fits."""
        for name in RESOURCES:
            limit, wanted = getattr(quota, name), getattr(more, name)
            if limit and wanted and getattr(self, name) + wanted > limit:
                return name
        return None


RESOURCES: Final = tuple(one.name for one in fields(Quota))


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits that an admission must respect.

    Attributes:
        total: sandboxes of all owners together, warm ones included; 0 = no limit.
        quota: the owner's quota.
    """

    total: int = 0
    quota: Quota = field(default_factory=Quota)
