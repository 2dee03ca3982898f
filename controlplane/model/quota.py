"""What an owner may use, what he uses, and what one sandbox weighs. Pure values; cpu and memory by their requests."""

from dataclasses import dataclass, field, fields
from typing import Final, Self

from controlplane.model.sandbox import Sandbox


@dataclass(frozen=True, slots=True)
class Quota:
    """At most so much of each at one time; 0 = no limit.

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
    """So much of each is in use; see ``Quota``."""

    sandboxes: int = 0
    cpu_millicores: int = 0
    memory_bytes: int = 0
    gpu: int = 0
    starting: int = 0

    @classmethod
    def of(cls, sandbox: Sandbox) -> Self:
        """What one sandbox weighs; nothing once its end has begun."""
        if not sandbox.state.counted:
            return cls()
        spec = sandbox.spec
        return cls(1, spec.cpu_millicores.request, spec.memory_bytes.request, spec.gpu, int(sandbox.state.unready))

    def __add__(self, other: "Usage") -> "Usage":
        """Both together."""
        return Usage(*(getattr(self, name) + getattr(other, name) for name in RESOURCES))

    def __sub__(self, other: "Usage") -> "Usage":
        """What is left without ``other``."""
        return Usage(*(getattr(self, name) - getattr(other, name) for name in RESOURCES))

    def excess(self, more: "Usage", quota: Quota) -> str | None:
        """The first resource that ``more`` would take beyond ``quota``; None when all of it fits."""
        for name in RESOURCES:
            limit, wanted = getattr(quota, name), getattr(more, name)
            if limit and wanted and getattr(self, name) + wanted > limit:
                return name
        return None


RESOURCES: Final = tuple(one.name for one in fields(Quota))


@dataclass(frozen=True, slots=True)
class Limits:
    """What an admission has to keep.

    Attributes:
        total: sandboxes of all owners together, warm ones among them; 0 = no limit.
        quota: the owner's.
    """

    total: int = 0
    quota: Quota = field(default_factory=Quota)
