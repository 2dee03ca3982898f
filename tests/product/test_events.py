"""One stream of what happens to sandboxes: whole, in order for each, by a cursor, and to its owner alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from functools import partial
from typing import Any
from uuid import uuid4

import pytest

from rollbox import Client, Events, SandboxEvent
from rollbox.errors import PermissionDenied
from tests.support.commits import ON_CLUSTER
from tests.support.images import IMAGE
from tests.support.labels import longest
from tests.support.stack import Product
from tests.support.waiting import until

SMALL: Any = {"cpu": (0.02, 1), "memory": ("32Mi", "128Mi")}
AT_ONCE = 4


async def _open(stream: Events) -> bool:
    return stream.cursor is not None


async def begun(stream: Events, events: AsyncIterator[SandboxEvent]) -> asyncio.Future[SandboxEvent]:
    """The first event, once the stream is open."""
    first = asyncio.ensure_future(anext(events))
    await until(partial(_open, stream))
    return first


async def until_gone(events: AsyncIterator[SandboxEvent], ids: set[str]) -> list[SandboxEvent]:
    """What is told until nothing is left of these."""
    told, left = [], {*ids}
    async with asyncio.timeout(120):
        while left:
            told.append(await anext(events))
            if told[-1].kind == "confirm":
                left.discard(told[-1].sandbox_id)
    return told


async def test_every_life_is_told_whole_and_once_while_it_is_lived(client: Client) -> None:
    stream = client.events()
    async with aclosing(aiter(stream)) as events:
        waiting = await begun(stream, events)
        made = await asyncio.gather(*(client.create(IMAGE, labels=longest("x"), **SMALL) for _ in range(AT_ONCE)))
        await made[0].extend(7200)
        await asyncio.gather(*(sandbox.delete() for sandbox in made))
        told = [await waiting, *await until_gone(events, {sandbox.id for sandbox in made})]
    assert len({event.id for event in told}) == len(told)
    for sandbox in made:
        own = [event for event in told if event.sandbox_id == sandbox.id]
        assert [event.kind for event in own if event.kind in {"request", "ready", "end", "confirm"}] == [
            "request",
            "ready",
            "end",
            "confirm",
        ]
        assert [event.at_ms for event in own] == sorted(event.at_ms for event in own)
        assert (own[-1].state, own[-1].labels, own[-1].image) == ("ended", longest("x"), IMAGE)
        assert own[-1].end is not None
        assert own[-1].end.cause == "deleted"
        assert [event.text for event in own] == [moment.text for moment in (await client.timeline(sandbox.id)).moments]
    assert "extend" in {event.kind for event in told if event.sandbox_id == made[0].id}


async def test_a_cursor_goes_on_through_another_gateway_with_the_same_ids(client: Client, stack: Product) -> None:
    async with await client.create(IMAGE, labels={"of": "cursor"}, **SMALL) as sandbox:
        first = [event async for event in client.events("0", labels={"of": "cursor"}, follow=False)]
    async with Client(stack.url, stack.api_key) as other:
        again = other.events(first[-1].cursor, labels={"of": "cursor"}, follow=False)
        later = [event async for event in again if event.sandbox_id == sandbox.id]
    assert {event.id for event in first if event.sandbox_id == sandbox.id} <= {event.id for event in later}
    assert [event.kind for event in later[-2:]] == ["end", "confirm"] or later[-1].kind == "end"


async def test_a_neighbour_hears_nothing(client: Client, stack: Product) -> None:
    made = await client.create_key(f"test-{uuid4().hex[:8]}", ["run"], owner="neighbour")
    async with (
        Client(stack.url, made.text) as stranger,
        aclosing(aiter(foreign := stranger.events())) as events,
        aclosing(aiter(own := client.events())) as seen,
    ):
        heard, first = await begun(foreign, events), await begun(own, seen)
        async with await client.create(IMAGE, **SMALL) as sandbox:
            await sandbox.exec("true")
        await first
        await until_gone(seen, {sandbox.id})
        assert not heard.done()
        heard.cancel()
        with pytest.raises(PermissionDenied):
            _ = [event async for event in stranger.events("0", every_owner=True, follow=False)]
        past = [event async for event in stranger.events("0", follow=False)]
        assert sandbox.id not in {event.sandbox_id for event in past}
    await client.revoke_key(made.record.id)


async def test_a_sandbox_whose_time_is_over_is_told_with_its_fault(client: Client) -> None:
    stream = client.events(labels={"of": "ttl"})
    async with aclosing(aiter(stream)) as events:
        waiting = await begun(stream, events)
        sandbox = await client.create(IMAGE, labels={"of": "ttl"}, ttl=10, **SMALL)
        told = [await waiting, *await until_gone(events, {sandbox.id})]
    end = next(event.end for event in told if event.kind == "end")
    assert end is not None
    assert (end.cause, end.fault) == ("ttl_expired", "caller")


async def test_other_languages_read_it_as_server_sent_events(client: Client, stack: Product) -> None:
    async with await client.create(IMAGE, labels={"of": "curl"}, **SMALL):
        pass
    words = ["curl", "-sN", "-H", f"Authorization: Bearer {stack.api_key}"]
    url = f"{stack.url}/v1/events?after=0&label=of=curl&follow=false"
    curl = await asyncio.create_subprocess_exec(*words, url, stdout=asyncio.subprocess.PIPE)
    text = (await asyncio.wait_for(curl.communicate(), 60))[0].decode()
    assert text.endswith(": end\n\n")
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
    assert {event["specversion"] for event in events} == {"1.0"}
    assert events[0]["type"] == "dev.rollbox.sandbox.request"
    assert ON_CLUSTER or events[-1]["data"]["state"] in {"ending", "ended"}
