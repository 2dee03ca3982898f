"""Which images are removed where they take more bytes than they may. Pure.

The same plan holds for a node, the private registry and what owners have committed: only what is listed differs.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

# Of the budget, in percent: what is left after a removal, so that the next image does not need another one.
LOW_WATER_PERCENT: Final = 80
# What was used or pulled within this time is kept: a pod that does not exist yet, or the next window of a run whose
# images are prefetched, may need it. An estimate; no measurement stands behind half an hour.
YOUNG_MS: Final = 1_800_000


@dataclass(frozen=True, slots=True)
class StoredImage:
    """An image in a store.

    Attributes:
        digest: tells it from all others in this store.
        parts: the bytes of its layers, manifest and configuration, by digest; what several entries have counts once.
        last_used_ms: when it was brought or a sandbox began to run from it, whichever is later (Unix ms).
        named_by: why it has to stay: pools, groups, sandboxes, copies, prefetches that name it; empty: no reason.
    """

    digest: str
    parts: Mapping[str, int]
    last_used_ms: int
    named_by: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Budget:
    """How many bytes a store may have.

    Attributes:
        limit_bytes: above it images are removed.
        low_bytes: removal stops there.
        young_ms: what was used within this time stays.
    """

    limit_bytes: int
    low_bytes: int
    young_ms: int = YOUNG_MS

    @classmethod
    def of(cls, limit_bytes: int) -> "Budget":
        """With the usual low-water mark."""
        return cls(limit_bytes, limit_bytes * LOW_WATER_PERCENT // 100)


@dataclass(frozen=True, slots=True)
class StoreLimit:
    """The most that a store of images may have: so many bytes, or a share of its file system.

    Attributes:
        size_bytes: 0: ``percent`` says it.
        percent: of the file system; 0 too: no limit.
    """

    size_bytes: int = 0
    percent: int = 0

    @classmethod
    def parse(cls, text: str) -> "StoreLimit":
        """Reads ``60%``, ``200Gi``, a number of bytes, or 0 for no limit.

        Raises:
            ValueError: it is none of these; the message is the rule.
        """
        found = _LIMIT.fullmatch(text.strip())
        if found is None or (found["unit"] == "%" and not 1 <= int(found["number"]) <= MAX_PERCENT):
            raise ValueError(f"must be 1% to {MAX_PERCENT}% of the file system, bytes such as 200Gi, or 0 for no limit")
        number = int(found["number"])
        return cls(percent=number) if found["unit"] == "%" else cls(number * _UNITS[found["unit"]])

    @property
    def limited(self) -> bool:
        """Whether there is a limit at all."""
        return bool(self.size_bytes or self.percent)

    def budget(self, disk_bytes: int | None) -> Budget | None:
        """The budget on a file system of this size (None: not known); None: there is no limit."""
        if self.size_bytes:
            return Budget.of(self.size_bytes)
        return Budget.of(disk_bytes * self.percent // 100) if self.percent and disk_bytes else None


MAX_PERCENT: Final = 95
_LIMIT: Final = re.compile(r"(?P<number>[0-9]{1,15})(?P<unit>%|Mi|Gi|Ti|)")
_UNITS: Final = {"": 1, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}


@dataclass(frozen=True, slots=True)
class Removal:
    """An image that goes, and what that frees after those before it are gone."""

    digest: str
    freed_bytes: int


@dataclass(frozen=True, slots=True)
class RemovalPlan:
    """What to remove.

    Attributes:
        removals: in this order.
        total_bytes: what the store has before.
        left_bytes: and after them.
        needed_bytes: what has to stay takes so much.
    """

    removals: Sequence[Removal]
    total_bytes: int
    left_bytes: int
    needed_bytes: int


def plan_removal(entries: Iterable[StoredImage], budget: Budget, now_ms: int) -> RemovalPlan:
    """Plans the removal of those that were not used for the longest time, down to the low-water mark.

    What something names or what is young stays, with all its parts, and so does what frees nothing since others have
    all its parts too. Nothing is removed while the store is within its budget.

    Cost: a pass over all parts, and a sort; 0.1 s for 20,000 entries of ten parts.

    Raises:
        ValueError: two entries have one digest.
    """
    every = list(entries)
    if len({one.digest for one in every}) != len(every):
        raise ValueError("an image is listed twice")
    sizes = {part: size for one in every for part, size in one.parts.items()}
    stays = [one for one in every if one.named_by or now_ms < one.last_used_ms + budget.young_ms]
    needed = {part for one in stays for part in one.parts}
    total = left = sum(sizes.values())
    needed_bytes = sum(sizes[part] for part in needed)
    removals: list[Removal] = []
    if total > budget.limit_bytes:
        kept = {one.digest for one in stays}
        goes = sorted(
            (one for one in every if one.digest not in kept and not one.parts.keys() <= needed),
            key=lambda one: (one.last_used_ms, one.digest),
        )
        users = Counter(part for one in every for part in one.parts)
        for one in goes:
            if left <= budget.low_bytes:
                break
            users.subtract(one.parts.keys())
            freed = sum(sizes[part] for part in one.parts if not users[part])
            removals.append(Removal(one.digest, freed))
            left -= freed
    return RemovalPlan(removals, total, left, needed_bytes)
