"""A create that waits in the queue, and how its wait ends."""

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
# The reason of a create that waits and was not tried at the store yet.
UNASKED: Final = Full(0, 0, "")


@dataclass(slots=True, eq=False)
class WaitingCreate:
    """One create that waits.

    Attributes:
        full: why it waits: the store's last answer.
        callers: how many calls wait for it: more than one when a create was repeated with its key.
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
        """Whether a call still waits for its answer."""
        return self.callers > 0 and not self.answer.done()

    @property
    def until_ms(self) -> int:
        """When it is refused (Unix ms): a create that is admitted later would not be ready within its start timeout."""
        return self.wish.begin_by_ms

    @property
    def key(self) -> Key | None:
        """By what a repetition of the create finds it; None without an idempotency key."""
        key = self.wish.idempotency_key
        return None if key is None else (self.wish.owner, key)


async def outcome(attempt: Attempt, limits: Limits) -> Answer | Problem:
    """The answer of an attempt, or its problem."""
    try:
        return await attempt(limits)
    except Problem as problem:
        return problem


def resolve(place: WaitingCreate, came: Answer | Problem) -> None:
    """Ends a wait with an answer or a problem."""
    if isinstance(came, Problem):
        place.answer.set_exception(came)
        place.answer.exception()  # marks it as retrieved: the task that waits may be cancelled before it reads it
    else:
        place.answer.set_result(came)


def again(wish: Sandbox, answer: Answer) -> Answer:
    """The answer to a repeated create that waited together with the first: the same sandbox, as ``Known``.

    Raises:
        Problem: conflict, the repetition has other parameters.
    """
    if isinstance(answer, Withdrawn | Full):
        return answer
    if answer.sandbox.fingerprint != wish.fingerprint:
        detail = f"key {wish.idempotency_key} was used with other parameters for {answer.sandbox.id}"
        key, there = wish.idempotency_key, answer.sandbox.id
        raise Problem("conflict", detail, reason="other_parameters", idempotency_key=key, sandbox_id=there)
    return Known(answer.sandbox)
