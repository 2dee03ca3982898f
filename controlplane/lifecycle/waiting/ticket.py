"""``Ticket``: a start that waits for room and then for a slot, or is under way."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from controlplane.capacity import Amounts
from controlplane.model import Sandbox

# A slot expires this long after its start's deadline, so that it expires only when its replica has died.
SLACK_MS: Final = 60_000


@dataclass(slots=True, eq=False)
class Ticket:
    """A start at this replica, or another one's that needs room here too.

    Attributes:
        request: what it takes of a node.
        number: a smaller one came earlier; a start keeps it when it has to wait anew.
        lazily: its node mounts its image lazily, which not all nodes may do.
        turn: done when it may go on to the queue for slots, while it waits for room.
        goes_on: it has, and has reserved nothing yet.
        begun: its record says that it has begun, or is over.
        node: where its pod is placed; empty: not placed yet.
        refused: the scheduler can place its pod on no node.
        has_slot: whether it holds a slot.
        asked: the store may have given it a slot that its record has not freed, so that it has to be freed.
    """

    sandbox: Sandbox
    request: Amounts
    number: int
    lazily: bool = False
    turn: asyncio.Future[None] | None = None
    goes_on: bool = False
    begun: bool = False
    node: str = ""
    refused: bool = False
    has_slot: bool = False
    asked: bool = False

    @property
    def key(self) -> str:
        """What has to be equal for two starts to fit the same nodes."""
        key = self.sandbox.spec.placement_key()
        return f"{key}/lazily" if self.lazily else key

    @property
    def line(self) -> tuple[bool, str]:
        """Its line; those of pools' starts are behind all others."""
        return self.sandbox.unclaimed, self.key

    @property
    def slot_until_ms(self) -> int:
        """When its slot expires (Unix ms)."""
        return self.sandbox.start_by_ms + SLACK_MS


# Whether there is room for a start, which is reserved for it then.
HasRoom = Callable[[], bool]
# Whether a start is to give its slot back, which lets it avoid these nodes, and to ask again.
GivesBack = Callable[[tuple[str, ...]], bool]
