"""Plans the next step of a pool: how many sandboxes to start, and which to stop. Pure; no clock, no client.

Its tests check over random histories: never more than the maximum (plus the surge while the template changes), never
two starts for one missing sandbox, and the wanted number in the end.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Member:
    """An unclaimed sandbox of a pool.

    Attributes:
        form: equal for those that need not replace one another: the hash of its template, and what it keeps running.
        version: of its record; the highest one is current.
        ready_at_ms: since when it can be claimed (Unix ms); None: it is starting.
        expires_at_ms: when it ends if it is not claimed (Unix ms).
    """

    id: str
    form: str
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
        start: how many sandboxes of the current template to start.
        stop: ids to stop; a sandbox that is claimed before its stop is stored is kept.
        missing: how many starts are needed in all; more than ``start`` when starts are throttled.
    """

    start: int = 0
    stop: tuple[str, ...] = ()
    missing: int = 0


def plan(current: Sequence[Member], old: Sequence[Member], *, wanted: int, surge: int, allowed: int) -> Plan:
    """One step towards ``wanted`` up-to-date members. Safe to repeat at any time.

    Args:
        current: the up-to-date members.
        old: members with a replaced template, or about to expire: they serve until others are ready.
        wanted: how many up-to-date members there should be.
        surge: how many more than wanted there may be while old ones are left.
        allowed: how many starts the rate, the failures and the room allow.
    """
    stop = (*_surplus(current, wanted), *_replaced(current, old, wanted))
    left = len(current) + len(old) - len(stop)
    most = wanted + surge if len(old) > sum(one.id in stop for one in old) else wanted
    missing = max(0, wanted - len(current))
    return Plan(max(0, min(missing, most - left, allowed)), stop, missing)


def _surplus(current: Sequence[Member], wanted: int) -> Sequence[str]:
    """The ids of up-to-date members over the wanted number; usually none, without sorting."""
    return () if len(current) <= wanted else [one.id for one in by_use(current)[: len(current) - wanted]]


def by_use(members: Sequence[Member]) -> Sequence[Member]:
    """In the order in which they are given up: first unready ones, then the youngest, since claims take the oldest."""
    return sorted(members, key=lambda one: (one.ready, -(one.ready_at_ms or 0), one.id))


def _replaced(current: Sequence[Member], old: Sequence[Member], wanted: int) -> Sequence[str]:
    """Old members that are not needed: all that are not ready, and those that ready ones of the template replace."""
    ready = sorted((one for one in old if one.ready), key=lambda one: (one.ready_at_ms or 0, one.id))
    keep = max(0, wanted - sum(one.ready for one in current))
    return [*(one.id for one in old if not one.ready), *(one.id for one in ready[: max(0, len(ready) - keep)])]


def share(wanting: dict[str, int], budget: int) -> dict[str, int]:
    """Distributes ``budget`` starts round-robin over pools, to each at most the number in ``wanting``."""
    dealt = dict.fromkeys(wanting, 0)
    while budget > 0 and (hungry := [name for name, count in wanting.items() if dealt[name] < count]):
        for name in hungry[:budget]:
            dealt[name] += 1
        budget -= min(budget, len(hungry))
    return dealt
