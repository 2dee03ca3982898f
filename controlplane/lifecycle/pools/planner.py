"""What a pool does next: how many to start, which to stop. Pure; no clock, no client.

Its tests prove over random histories: never more than the maximum (and the surge while a template changes), never two
for one, and the wanted number in the end.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Member:
    """An unclaimed sandbox of a pool.

    Attributes:
        template: the hash of what it is made of.
        version: of its record; the newer one is true.
        ready_at_ms: since when it can be claimed (Unix time); None: it is starting.
        expires_at_ms: when it ends if nobody claims it.
    """

    id: str
    template: str
    version: int
    expires_at_ms: int
    ready_at_ms: int | None = None

    @property
    def ready(self) -> bool:
        """Whether it can be claimed."""
        return self.ready_at_ms is not None


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now.

    Attributes:
        start: how many of the current template.
        stop: ids; ones that are claimed meanwhile stay.
        missing: how many more are wanted than are started; more than ``start`` when something holds them up.
    """

    start: int = 0
    stop: tuple[str, ...] = ()
    missing: int = 0


def plan(current: Sequence[Member], old: Sequence[Member], *, wanted: int, surge: int, allowed: int) -> Plan:
    """One step towards ``wanted`` members that are up to date. Safe to repeat, at any time.

    Args:
        current: up to date.
        old: of a template that is not the pool's any more, or too old: they serve until others are ready.
        wanted: how many up-to-date ones there shall be.
        surge: how many more than wanted there may be while old ones are left.
        allowed: how many starts rate, slots and failures leave.
    """
    stop = (*_surplus(current, wanted), *_replaced(current, old, wanted))
    left = len(current) + len(old) - len(stop)
    most = wanted + surge if len(old) > sum(one.id in stop for one in old) else wanted
    missing = max(0, wanted - len(current))
    return Plan(max(0, min(missing, most - left, allowed)), stop, missing)


def _surplus(current: Sequence[Member], wanted: int) -> Sequence[str]:
    """Mostly there are none, at no cost."""
    return () if len(current) <= wanted else [one.id for one in by_use(current)[: len(current) - wanted]]


def by_use(members: Sequence[Member]) -> Sequence[Member]:
    """In the order in which they are given up: those that are not ready, then the youngest: claims take the oldest."""
    return sorted(members, key=lambda one: (one.ready, -(one.ready_at_ms or 0), one.id))


def _replaced(current: Sequence[Member], old: Sequence[Member], wanted: int) -> Sequence[str]:
    """Old ones that others stand in for: all that are not ready, and as many as are ready of the current template."""
    ready = sorted((one for one in old if one.ready), key=lambda one: (one.ready_at_ms or 0, one.id))
    keep = max(0, wanted - sum(one.ready for one in current))
    return [*(one.id for one in old if not one.ready), *(one.id for one in ready[: max(0, len(ready) - keep)])]


def share(wanting: dict[str, int], budget: int) -> dict[str, int]:
    """Deals ``budget`` starts out, one each in turn, to pools that want so many."""
    dealt = dict.fromkeys(wanting, 0)
    while budget > 0 and (hungry := [name for name, count in wanting.items() if dealt[name] < count]):
        for name in hungry[:budget]:
            dealt[name] += 1
        budget -= min(budget, len(hungry))
    return dealt
