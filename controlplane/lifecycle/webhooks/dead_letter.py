"""Dead letters: events that an endpoint did not take, for operators. Pure."""

import json
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from controlplane.webhooks import Dead


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An event that was given up, or many at once.

    Attributes:
        webhook: the name of the endpoint.
        at_ms: when it was given up (Unix ms).
        why: expired, refused, overflow or gone.
        detail: of the last attempt.
        attempts: that were made.
        events: how many.
        from_ms, to_ms: when the first and the last happened (Unix ms).
        event: the CloudEvent; None where they are many, or nothing is kept of it.
    """

    webhook: str
    at_ms: int
    why: str
    detail: str
    attempts: int
    events: int
    from_ms: int
    to_ms: int
    event: dict[str, Any] | None

    @classmethod
    def of(cls, webhook: str, at_ms: int, dead: Dead) -> Self:
        """From what was given up."""
        event = None if dead.letter is None else json.loads(dead.letter.body)
        times = (dead.from_ms, dead.to_ms)
        return cls(webhook, at_ms, dead.why, dead.detail, dead.attempts, dead.events, *times, event)

    @property
    def line(self) -> str:
        """As a line of JSON."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def read(cls, line: str) -> Self | None:
        """From a line; None: it is no such line, as one that was cut off in the middle."""
        try:
            told = json.loads(line)
            return cls(**{one.name: told[one.name] for one in fields(cls)})
        except (ValueError, KeyError, TypeError):
            return None
