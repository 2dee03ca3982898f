"""The route ``/v1/events``: what happens to sandboxes, as one stream of server-sent events (CloudEvents 1.0)."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Header, Query
from pydantic import BaseModel
from starlette.responses import StreamingResponse

from controlplane.api.context import App, Operates, Owner, Service, no_operator
from controlplane.api.sandboxes import Labels, labels_of
from controlplane.api.schemas import EndBody
from controlplane.errors import Problem
from controlplane.lifecycle.record.events import END, SandboxEvent
from controlplane.model import State

router = APIRouter(tags=["sandboxes"])
MEDIA_TYPE: Final = "text/event-stream"
MOST_DIGITS: Final = 15
# Events that are written at a time: others have their turn in between.
AT_A_TIME: Final = 256
_ENDED: Final = frozenset({END, "confirm"})


class SandboxEventData(BaseModel):
    """What has happened to which sandbox.

    Attributes:
        kind: a word of its timeline, or ``end``.
        state: from then on.
        text: the kind as a phrase.
        draining_at_ms: when it ends, since its node is drained; with a ``drain`` this is the notice.
        end: why it ended; with ``end`` and ``confirm`` alone.
    """

    sandbox_id: str
    owner: str
    kind: str
    at_ms: int
    state: State
    text: str
    image: str
    labels: dict[str, str]
    lease: str | None
    draining_at_ms: int | None
    end: EndBody | None


class CloudEvent(BaseModel):
    """An event in the form of CloudEvents 1.0; ``id`` is the same however often it is told."""

    specversion: Literal["1.0"] = "1.0"
    id: str
    source: Literal["/v1/sandboxes"] = "/v1/sandboxes"
    type: str
    subject: str
    time: str
    datacontenttype: Literal["application/json"] = "application/json"
    data: SandboxEventData

    @classmethod
    def of(cls, event: SandboxEvent) -> "CloudEvent":
        """From what the lifecycle tells."""
        sandbox = event.sandbox
        lease = sandbox.spec.lease
        end = sandbox.end if event.kind in _ENDED else None
        data = SandboxEventData(
            sandbox_id=sandbox.id,
            owner=sandbox.owner,
            kind=event.kind,
            at_ms=event.at_ms,
            state=event.state,
            text=event.text,
            image=sandbox.spec.image,
            labels=sandbox.spec.labels,
            lease=None if lease is None else lease.name,
            draining_at_ms=sandbox.draining_at_ms,
            end=None if end is None else EndBody.of(end),
        )
        time = datetime.fromtimestamp(event.at_ms / 1000, UTC).isoformat(timespec="milliseconds")
        return cls(
            id=event.id, type=f"dev.rollbox.sandbox.{event.kind}", subject=sandbox.id, time=f"{time[:-6]}Z", data=data
        )


@router.get(
    "/events",
    summary="What happens to sandboxes, as one stream",
    response_class=StreamingResponse,
    responses={
        200: {"model": CloudEvent, "description": "Server-sent events, a CloudEvent each", "content": {MEDIA_TYPE: {}}}
    },
)
async def events(
    app: App,
    service: Service,
    owner: Owner,
    operates: Operates,
    *,
    after: Annotated[
        str | None, Query(description="The id of the last event that was read: from a minute before.")
    ] = None,
    label: Labels = None,
    follow: bool = True,
    every_owner: Annotated[bool, Query(description="Of all owners; for operators.")] = False,
    last_event_id: Annotated[str | None, Header(description="As `after`, which browsers send.")] = None,
) -> StreamingResponse:
    """Begins now, or with what was read last; then each event is told once. Ids of the stream are cursors (Unix ms)."""
    if every_owner and not operates:
        raise no_operator(app, owner)
    cursor = _cursor(after if after is not None else last_event_id)
    told = service.events.listen(None if every_owner else owner, labels_of(label), cursor, follow=follow)
    try:
        # What cannot be begun at all is an answer with a status of its own.
        first = await anext(told)
    except BaseException:
        await told.aclose()
        raise
    begun = app.deps.clock.now_ms() if cursor is None else cursor
    lines = _lines(first, told, begun, follow=follow)
    return StreamingResponse(lines, media_type=MEDIA_TYPE, headers={"Cache-Control": "no-store"})


def _cursor(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > MOST_DIGITS:
        raise Problem("invalid_argument", f"after={text[:40]!r} is no id of an event of this stream", field="after")
    return int(text)


async def _lines(
    first: list[SandboxEvent], told: AsyncGenerator[list[SandboxEvent], None], cursor: int, *, follow: bool
) -> AsyncIterator[str]:
    async with aclosing(told):
        # Also without an event a reader knows from where to go on.
        yield f"id: {cursor}\n\n"
        async for some in _from(first, told):
            yield "".join(_event(one, cursor := max(cursor, one.at_ms)) for one in some) or ":\n\n"
        if not follow:
            # A stream that broke off on its way has no such line.
            yield ": end\n\n"


async def _from(
    first: list[SandboxEvent], rest: AsyncGenerator[list[SandboxEvent], None]
) -> AsyncIterator[list[SandboxEvent]]:
    some = first
    while True:
        for begin in range(0, max(1, len(some)), AT_A_TIME):
            yield some[begin : begin + AT_A_TIME]
            await asyncio.sleep(0)
        try:
            some = await anext(rest)
        except StopAsyncIteration:
            return


def _event(event: SandboxEvent, cursor: int) -> str:
    return f"id: {cursor}\ndata: {CloudEvent.of(event).model_dump_json()}\n\n"
