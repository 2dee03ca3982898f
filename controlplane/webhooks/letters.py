"""Events on their way to an endpoint, and those that did not arrive. Pure."""

from dataclasses import dataclass
from typing import Literal

from controlplane.webhooks.signing import message_id

WhyDead = Literal["expired", "refused", "overflow", "gone"]


@dataclass(frozen=True, slots=True)
class Letter:
    """One event, written.

    Attributes:
        event_id: of the event.
        at_ms: when it happened (Unix ms).
        body: the CloudEvent as JSON.
    """

    event_id: str
    at_ms: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Batch:
    """What is sent in one request: the same events, with the same id, until it is settled.

    Attributes:
        letters: oldest first.
        whole: whether it is a list of events, also of one.
        attempt: which one this is, from 1 on.
    """

    letters: tuple[Letter, ...]
    whole: bool
    attempt: int

    @property
    def id(self) -> str:
        """Of the request."""
        return message_id([one.event_id for one in self.letters])

    @property
    def media_type(self) -> str:
        """Of the body."""
        return "application/cloudevents-batch+json" if self.whole else "application/cloudevents+json"

    @property
    def body(self) -> bytes:
        """What is sent."""
        joined = b",".join(one.body for one in self.letters)
        return b"[" + joined + b"]" if self.whole else joined


@dataclass(frozen=True, slots=True)
class Dead:
    """Events that are given up: one, or many that were given up at once.

    Attributes:
        why: expired: not taken in time; refused: the endpoint does not want it; overflow: too many waited; gone: the
            endpoint wants none any more.
        detail: of the last attempt; empty: there was none.
        attempts: that were made; 0 where many had different numbers of them.
        events: how many.
        from_ms, to_ms: when the first and the last of them happened (Unix ms).
        letter: the event, where it is one.
    """

    why: WhyDead
    detail: str
    attempts: int
    events: int
    from_ms: int
    to_ms: int
    letter: Letter | None = None

    def and_more(self, other: "Dead") -> "Dead":
        """Both as one."""
        earliest, latest = min(self.from_ms, other.from_ms), max(self.to_ms, other.to_ms)
        return Dead(other.why, other.detail, 0, self.events + other.events, earliest, latest)
