"""What those that wait are told, whatever they wait for: where they stand, and when to come again. Pure."""

from dataclasses import dataclass
from typing import Final

from controlplane.errors import Code, Problem
from controlplane.model import Sandbox

NO_ROOM: Final[Code] = "capacity_unavailable"
# A caller that is refused is not asked to come back earlier, or later; the third one is for a pace that is not known.
LEAST_RETRY_MS: Final = 1_000
LONGEST_RETRY_MS: Final = 60_000
RETRY_MS: Final = 5_000


@dataclass(frozen=True, slots=True)
class Position:
    """Where one stands among its owner's that wait for the same.

    Attributes:
        position: from 1, of ``waiting``.
        estimate_ms: how long it will still wait, by the pace of the last ones; None: not known.
    """

    owner: str
    position: int
    waiting: int
    estimate_ms: int | None = None

    def among(self, what: str, *, over: bool = False) -> str:
        """Where it stands, or stood at its deadline; ``what`` it waits for."""
        is_, wait = ("was", "waited") if over else ("is", "wait")
        return f"it {is_} number {self.position} of {self.waiting} of {self.owner} that {wait} for {what}"

    @property
    def retry_after_ms(self) -> int:
        """When a caller that is refused is to come again."""
        retry_ms = RETRY_MS if self.estimate_ms is None else self.estimate_ms
        return min(max(LEAST_RETRY_MS, retry_ms), LONGEST_RETRY_MS)


@dataclass(frozen=True, slots=True)
class RoomPlace:
    """Where a start stands that waits for room.

    Attributes:
        place: among its owner's at all replicas that request the same.
        why: what the nodes have left.
    """

    sandbox: Sandbox
    place: Position
    why: str

    def problem(self, over_ms: int | None = None) -> Problem:
        """Why it waits; with ``over_ms``, what its caller is told at its deadline, which was then (Unix ms)."""
        when, facts = "now", dict[str, int]()
        if over_ms is not None:
            when = f"within its start timeout of {self.sandbox.asked_start_ms / 1000:g} s"
            # A client that sees how long it has waited does not ask again.
            facts["waited_ms"] = max(0, over_ms - self.sandbox.created_at_ms)
        return Problem(
            NO_ROOM,
            f"no node has room for it {when}: {self.why}; {self.place.among('such room', over=over_ms is not None)}",
            retry_after_ms=self.place.retry_after_ms,
            position=self.place.position,
            waiting=self.place.waiting,
            sandbox_id=self.sandbox.id,
            **facts,
        )
