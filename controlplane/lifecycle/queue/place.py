"""A create that waits, and what its wait comes to."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from controlplane.errors import Problem
from controlplane.model import Limits, Sandbox
from controlplane.store import Admission, Claim, Full, Known, Withdrawn

Answer = Admission | Claim
Attempt = Callable[[Limits], Awaitable[Answer]]
Key = tuple[str, str]
# Why one waits that nobody has asked the store for yet.
UNASKED: Final = Full(0, 0, "")


@dataclass(slots=True, eq=False)
class Place:
    """One create that waits.

    Attributes:
        full: why, as the store last said.
        callers: who wait for it: more than one when a create was repeated with its key.
    """

    ticket: int
    wish: Sandbox
    attempt: Attempt
    full: Full
    since_ms: int
    answer: asyncio.Future[Answer] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    callers: int = 0

    @property
    def waits(self) -> bool:
        """Whether somebody waits for its answer still."""
        return self.callers > 0 and not self.answer.done()

    @property
    def until_ms(self) -> int:
        """When it is refused (Unix ms): who was let in later would only hear of a start that took too long."""
        return self.wish.begin_by_ms

    @property
    def key(self) -> Key | None:
        """What a repetition knows it by."""
        key = self.wish.idempotency_key
        return None if key is None else (self.wish.owner, key)


async def outcome(attempt: Attempt, limits: Limits) -> Answer | Problem:
    """What an attempt came to; its problem is one too."""
    try:
        return await attempt(limits)
    except Problem as problem:
        return problem


def settle(place: Place, came: Answer | Problem) -> None:
    """Ends a wait."""
    if isinstance(came, Problem):
        place.answer.set_exception(came)
        place.answer.exception()  # whoever waits may be cancelled before he sees it
    else:
        place.answer.set_result(came)


def again(wish: Sandbox, answer: Answer) -> Answer:
    """What a repetition gets that has waited with the first: the same sandbox, as known."""
    if isinstance(answer, Withdrawn | Full):
        return answer
    if answer.sandbox.fingerprint != wish.fingerprint:
        detail = f"key {wish.idempotency_key} was used with other parameters for {answer.sandbox.id}"
        raise Problem("conflict", detail, idempotency_key=wish.idempotency_key, sandbox_id=answer.sandbox.id)
    return Known(answer.sandbox)
