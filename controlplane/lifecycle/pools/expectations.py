"""The unclaimed sandboxes of a pool, as known to this replica: the last read of the store, and the changes since.

A read of the store may be older than what this replica has done or got from the feed. So a started sandbox is expected
until a read shows it, or until no read can be that old; and one that is gone does not reappear with an old read. This
keeps a planner that plans twice on the same old read from repeating its starts and stops.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from controlplane.lifecycle.pools.planner import Member

# No read of the store is older than this.
LAG_MS: Final = 30_000


class Members:
    """The members of a pool by id. Times are Unix ms and passed by the caller."""

    def __init__(self) -> None:
        self._known: dict[str, Member] = {}
        self._added_ms: dict[str, int] = {}
        self._gone: dict[str, int] = {}

    def all(self) -> Sequence[Member]:
        """All members, with those that were started and no read shows yet."""
        return list(self._known.values())

    def add(self, member: Member, now_ms: int) -> bool:
        """Adds a member that was started here, or that has changed; whether that was not known yet."""
        if not self.is_new(member):
            return False
        self._known[member.id] = member
        self._added_ms[member.id] = now_ms
        return True

    def gone(self, sandbox_id: str, now_ms: int) -> bool:
        """Removes a member that was claimed, stopped or has died; whether that was not known yet."""
        self._forget(now_ms)
        news = self._gone.pop(sandbox_id, None) is None
        self._gone[sandbox_id] = now_ms
        self._known.pop(sandbox_id, None)
        self._added_ms.pop(sandbox_id, None)
        return news

    def seen(self, view: Iterable[Member], now_ms: int) -> None:
        """Merges a read of all members from the store, which may be old."""
        shown = {member.id: member for member in view}
        self._forget(now_ms)
        for member in shown.values():
            if self.is_new(member):
                self._known[member.id] = member
        for sandbox_id in [one for one in self._known if one not in shown]:
            if now_ms - self._added_ms.get(sandbox_id, 0) >= LAG_MS:
                del self._known[sandbox_id]
                self._added_ms.pop(sandbox_id, None)

    def is_new(self, member: Member) -> bool:
        """Whether this version of a member is not known yet."""
        known = self._known.get(member.id)
        return member.id not in self._gone and (known is None or known.version < member.version)

    def _forget(self, now_ms: int) -> None:
        """Drops entries of ``_gone`` that are older than ``LAG_MS``; they are in order of time."""
        while self._gone:
            first = next(iter(self._gone))
            if 0 <= now_ms - self._gone[first] < LAG_MS:
                return
            del self._gone[first]
