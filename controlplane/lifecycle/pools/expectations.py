"""The unclaimed sandboxes of a pool, as far as anybody here can know: what was seen, and what was done since.

A view of the store may be older than what we have done or heard. What was started is expected until a view shows it or
has had time enough to; what has gone does not come back with an old view. So a planner that looks twice at the same old
view does not do twice what it has done.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from controlplane.lifecycle.pools.planner import Member

# No view is older than this.
LAG_MS: Final = 30_000


class Members:
    """Members by id. Times are Unix ms, given by the caller."""

    def __init__(self) -> None:
        self._known: dict[str, Member] = {}
        self._heard_ms: dict[str, int] = {}
        self._gone: dict[str, int] = {}

    def all(self) -> Sequence[Member]:
        """All that there are, or will be in a moment."""
        return list(self._known.values())

    def heard(self, member: Member, now_ms: int) -> bool:
        """Takes in what was started here, or has changed; whether it is news."""
        if not self.news(member):
            return False
        self._known[member.id] = member
        self._heard_ms[member.id] = now_ms
        return True

    def gone(self, sandbox_id: str, now_ms: int) -> bool:
        """Takes in that one was claimed, stopped or has died; whether it is news."""
        self._forget(now_ms)
        news = self._gone.pop(sandbox_id, None) is None
        self._gone[sandbox_id] = now_ms
        self._known.pop(sandbox_id, None)
        self._heard_ms.pop(sandbox_id, None)
        return news

    def seen(self, view: Iterable[Member], now_ms: int) -> None:
        """Takes in a view of all of them, perhaps an old one."""
        shown = {member.id: member for member in view}
        self._forget(now_ms)
        for member in shown.values():
            if self.news(member):
                self._known[member.id] = member
        for sandbox_id in [one for one in self._known if one not in shown]:
            if now_ms - self._heard_ms.get(sandbox_id, 0) >= LAG_MS:
                del self._known[sandbox_id]
                self._heard_ms.pop(sandbox_id, None)

    def news(self, member: Member) -> bool:
        """Whether this says something that is not known yet."""
        known = self._known.get(member.id)
        return member.id not in self._gone and (known is None or known.version < member.version)

    def _forget(self, now_ms: int) -> None:
        """Drops what has gone longer ago; in order, for the newest is put last."""
        while self._gone:
            first = next(iter(self._gone))
            if 0 <= now_ms - self._gone[first] < LAG_MS:
                return
            del self._gone[first]
