"""Starts of pools stand back while creates wait for room, and a minute after warm sandboxes gave way. Pure.

A cluster's scheduler does not know which pod somebody waits for, and what a warm sandbox has given up is free for
seconds before the create's pod comes. So at every replica nothing is started for a pool meanwhile.
"""

from collections.abc import Mapping
from typing import Final

from controlplane.lifecycle.record.transition import Transition
from controlplane.lifecycle.waiting.standings import Standings

# ``end.by`` of unclaimed sandboxes that were ended to make room on nodes for a create.
GAVE_ROOM: Final = "waiting start"
# More creates may come: what is started for pools would give way next.
LEFT_FREE_MS: Final = 60_000


class CreatesFirst:
    """Times are Unix ms and passed by the caller.

    Args:
        standings: which creates wait for room, at all replicas.
    """

    def __init__(self, standings: Standings) -> None:
        self._standings = standings
        self._gave_ms: int | None = None

    def on(self, transition: Transition) -> None:
        """Takes in that a warm sandbox gave way, here or elsewhere."""
        end = transition.after.end
        if end is not None and end.by == GAVE_ROOM and transition.after.unclaimed:
            self._gave_ms = max(end.at_ms, self._gave_ms or 0)

    def why(self, selector: Mapping[str, str], now_ms: int) -> str:
        """Why nothing is started for a pool on nodes with these labels, in words; empty: nothing keeps it from that."""
        if self._gave_ms is not None and 0 <= now_ms - self._gave_ms < LEFT_FREE_MS:
            return "unclaimed sandboxes gave way to creates within the last minute"
        return "creates wait for room" if self._standings.wanted(selector) else ""
