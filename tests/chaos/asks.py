"""Who asked for the end of what, what died by itself, and when at the earliest. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tests.chaos.events import Event
from tests.chaos.wishes import LEASE_S


class Asks:
    """Everything that may end a sandbox, by what it was asked with.

    A create that was cancelled, and one of a group that failed, takes back what its key had made.
    """

    def __init__(self, events: Sequence[Event]) -> None:
        self._created: dict[tuple[str, str], list[Event]] = {}
        self._deleted: dict[tuple[str, str, str], float] = {}
        self._died: dict[str, list[Event]] = {}
        for event in events:
            match event.what:
                case "create.asked":
                    self._created.setdefault((event.owner, event.key), []).append(event)
                case "create.cancelled":
                    self._ask("key", event.owner, event.key, event.at_s)
                case "cluster.died":
                    self._died.setdefault(event.id, []).append(event)
                case "delete.asked":
                    for kind in ("id", "key", "label"):
                        self._ask(kind, event.owner, getattr(event, kind), event.at_s)

    def delete_s(self, answered: Event) -> float | None:
        """When the end of this sandbox was first asked for; None: never."""
        owner, wishes = answered.owner, self._wishes(answered)
        named = [("id", owner, answered.id), ("key", owner, answered.key)]
        named += [("label", owner, wish.label) for wish in wishes if wish.label]
        return min((self._deleted[one] for one in named if one in self._deleted), default=None)

    def death(self, sandbox_id: str) -> Event | None:
        """When this sandbox died on the cluster; None: it did not."""
        return next(iter(self._died.get(sandbox_id, ())), None)

    def deaths(self, sandbox_id: str) -> set[str]:
        """All that has killed it there: a sidecar, then its node."""
        return {event.code for event in self._died.get(sandbox_id, ())}

    def leased(self, answered: Event) -> bool:
        """Whether it may go with a client."""
        return any(wish.leased for wish in self._wishes(answered))

    def may_expire_by(self, answered: Event, at_s: float) -> bool:
        """Whether its time may be over then."""
        return any(wish.at_s + wish.ttl_s <= at_s for wish in self._wishes(answered))

    def may_have_ended(self, answered: Event, by_s: float) -> bool:
        """Whether it may have ended by then, for whatever reason that there is."""
        asked_s = self.delete_s(answered)
        asked = asked_s is not None and asked_s <= by_s
        lapsed = self.leased(answered) and answered.at_s + LEASE_S <= by_s
        death = self.death(answered.id)
        died = death is not None and death.at_s <= by_s
        return asked or lapsed or died or self.may_expire_by(answered, by_s)

    def _wishes(self, answered: Event) -> Sequence[Event]:
        return self._created.get((answered.owner, answered.key), ())

    def _ask(self, kind: str, owner: str, value: str, at_s: float) -> None:
        if value:
            self._deleted.setdefault((kind, owner, value), at_s)
