"""What happens to sandboxes, as one stream that goes on where it was broken off."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias

from rollbox import labels as label_rules
from rollbox._problem import SandboxError
from rollbox.errors import StreamInterrupted
from rollbox.gateway import Gateway
from rollbox.reading import Reading
from rollbox.record import End
from rollbox.retry import Resumption
from rollbox.transport import Body

# How long the connection may be away altogether.
_AWAY_S = 300.0
# Where a stream is taken up again, the last minute is told again: what was read of the last two is known.
_KNOWN_MS = 120_000
_MOST_KNOWN = 2**18


@dataclass(frozen=True, slots=True)
class SandboxEvent:
    """Something that has happened to a sandbox.

    Attributes:
        id: the same however often it is told, also to other readers.
        kind: "request", "queue", "start", "ready", "claim", "extend", "drain", "end", "confirm" and other words of
            timelines.
        at_ms: when (Unix ms).
        state: of the sandbox from then on.
        text: the kind as a phrase.
        image: that it was created from.
        labels: of the sandbox.
        lease: that keeps it alive; None: it outlives its client.
        draining_at_ms: when it ends at the latest, since its node is drained (Unix ms); None: it is not.
        end: why it ended; None but for "end" and "confirm".
        cursor: for `Client.events(after=...)`: from here on.
    """

    id: str
    kind: str
    sandbox_id: str
    owner: str
    at_ms: int
    state: str
    text: str
    image: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    lease: str | None = None
    draining_at_ms: int | None = None
    end: End | None = None
    cursor: str = ""

    @classmethod
    def from_json(cls, body: Mapping[str, Any], cursor: str) -> SandboxEvent:
        """Read a CloudEvent; fields that this version does not know are left out."""
        known = {item.name for item in fields(cls)}
        told = {name: value for name, value in body["data"].items() if name in known}
        return cls(**{**told, "id": body["id"], "end": End.from_json(told.get("end")), "cursor": cursor})


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An event that a webhook of the operator did not take, or many that were given up at once.

    Attributes:
        webhook: the name of the endpoint.
        at_ms: when it was given up (Unix ms).
        why: "expired" (not taken in time), "refused", "overflow" (too many waited) or "gone" (it answered 410).
        detail: of the last attempt.
        attempts: that were made; 0 where they are many.
        events: how many.
        from_ms: when the first of them happened (Unix ms): as a cursor of `Client.events` it leads to them for a day.
        to_ms: when the last of them happened (Unix ms).
        event: the one; None where they are many, or nothing is kept of it.
    """

    webhook: str
    at_ms: int
    why: str
    detail: str
    attempts: int
    events: int
    from_ms: int
    to_ms: int
    event: SandboxEvent | None

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> DeadLetter:
        """Read one; fields that this version does not know are left out."""
        known = {item.name: body[item.name] for item in fields(cls)}
        event = None if known["event"] is None else SandboxEvent.from_json(known["event"], str(known["from_ms"]))
        return cls(**{**known, "event": event})


DeadLetterList: TypeAlias = list[DeadLetter]


class Events:
    """What happens to the owner's sandboxes: iterate it.

        async for event in client.events():
            print(event.sandbox_id, event.kind, event.text)

    Each event is told once. A connection that breaks is made again, and what happened meanwhile follows. Its `cursor`
    is for another process that goes on from there; that one may be told events of the last minute once more, with the
    same ids. A reader that is slow for long misses nothing either.
    """

    def __init__(
        self,
        gateway: Gateway,
        after: str | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        follow: bool = True,
        every_owner: bool = False,
    ) -> None:
        """Use `Client.events` instead."""
        self._gateway = gateway
        self._query = [("label", f"{key}={value}") for key, value in label_rules.checked(labels).items()]
        self._query += [("every_owner", "true")] if every_owner else []
        self._query += [] if follow else [("follow", "false")]
        self._whole = False
        self._known: OrderedDict[str, int] = OrderedDict()
        self.cursor = after
        """Of what was read last; None: nothing has come yet."""

    def __aiter__(self) -> Reading[SandboxEvent]:
        return Reading(self._told())

    async def _told(self) -> AsyncGenerator[SandboxEvent, None]:
        resumption = Resumption(self._gateway.retries, _AWAY_S)
        while not self._whole:
            after = [] if self.cursor is None else [("after", self.cursor)]
            try:
                async with self._gateway.exchange_api("GET", "events", query=[*self._query, *after]) as answer:
                    async for event in self._read(answer, resumption):
                        yield event
                if not self._whole:
                    raise StreamInterrupted("the stream of events has ended")
            except SandboxError as error:
                await resumption.after(error)

    async def _read(self, answer: Body, resumption: Resumption) -> AsyncGenerator[SandboxEvent, None]:
        """Read server-sent events; a line that is cut off, or an event without the empty line behind it, counts not."""
        cursor = self.cursor or ""
        while (line := await answer.line()).endswith(b"\n"):
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name == "id":
                cursor = value
            elif name == "data":
                event = SandboxEvent.from_json(json.loads(value), cursor)
                if self._is_new(event):
                    resumption.progress()
                    yield event
            elif name == ":":
                resumption.progress()
            elif not name:
                # The end of an event, or a comment, which says that all is told where nothing is followed.
                self.cursor = cursor
                self._whole |= value == "end"

    def _is_new(self, event: SandboxEvent) -> bool:
        if event.id in self._known:
            return False
        self._known[event.id] = event.at_ms
        while len(self._known) > _MOST_KNOWN or next(iter(self._known.values())) < event.at_ms - _KNOWN_MS:
            self._known.popitem(last=False)
        return True
