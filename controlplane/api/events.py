"""The route ``/v1/events``: what happens to sandboxes, as one stream of server-sent events (CloudEvents 1.0)."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import asdict
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Header, Query
from pydantic import BaseModel
from starlette.responses import StreamingResponse

from controlplane.api.context import App, Operates, Operator, Owner, Service, no_operator
from controlplane.api.sandboxes import Labels, labels_of
from controlplane.api.schemas import EndBody
from controlplane.errors import Problem
from controlplane.lifecycle.record.cloud_event import cloud_event
from controlplane.lifecycle.record.events import SandboxEvent
from controlplane.model import State

router = APIRouter(tags=["sandboxes"])
MEDIA_TYPE: Final = "text/event-stream"
MOST_DIGITS: Final = 15
# Of one answer.
MOST_DEAD: Final = 1_000
# Events that are written at a time: others have their turn in between.
AT_A_TIME: Final = 256


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
    """The schema of ``cloud_event``: CloudEvents 1.0; ``id`` is the same however often it is told."""

    specversion: Literal["1.0"] = "1.0"
    id: str
    source: Literal["/v1/sandboxes"] = "/v1/sandboxes"
    type: str
    subject: str
    time: str
    datacontenttype: Literal["application/json"] = "application/json"
    data: SandboxEventData


class DeadLetterBody(BaseModel):
    """An event that a webhook did not take, or many at once.

    Attributes:
        webhook: the name of the endpoint.
        at_ms: when it was given up (Unix ms).
        why: expired: not taken in time; refused: not wanted; overflow: too many waited; gone: the endpoint wants none
            any more.
        detail: of the last attempt.
        attempts: that were made.
        events: how many.
        from_ms, to_ms: when the first and the last happened (Unix ms).
        event: which; null where they are many, or nothing is kept of it.
    """

    webhook: str
    at_ms: int
    why: str
    detail: str
    attempts: int
    events: int
    from_ms: int
    to_ms: int
    event: CloudEvent | None


class DeadLetterList(BaseModel):
    """Dead letters, oldest first."""

    letters: list[DeadLetterBody]


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


@router.get("/events/dead", summary="What webhooks did not take (operators)", tags=["operators"])
async def dead(
    service: Service,
    _: Operator,
    *,
    webhook: Annotated[str | None, Query(description="of this one alone")] = None,
    after_ms: Annotated[int, Query(ge=0, description="given up later than this (Unix ms)")] = 0,
    most: Annotated[int, Query(ge=1, le=MOST_DEAD, description="the newest of them")] = 100,
) -> DeadLetterList:
    """The newest dead letters that are kept, some seconds behind."""
    if service.webhooks is None:
        raise Problem("unsupported", "this installation has no webhooks: controlplane.events.webhooks names none")
    found = await service.webhooks.dead(webhook, after_ms, most)
    return DeadLetterList(letters=[DeadLetterBody.model_validate(asdict(one)) for one in found])


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
    return f"id: {cursor}\ndata: {cloud_event(event)}\n\n"
