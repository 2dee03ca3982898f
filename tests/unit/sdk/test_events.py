"""The stream of events: each told once, however often its connection breaks, and by a cursor to another process."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from functools import partial

import pytest

from rollbox import Client, Events, SandboxEvent, sync
from rollbox.errors import InvalidArgument, PermissionDenied, StreamInterrupted
from tests.support.forked_commands import forked
from tests.support.gateway_fake import API_KEY, FakeGateway, Fault, serving_apart
from tests.support.waiting import until

AT_MS = 1_000_000


def told(fake: FakeGateway, count: int) -> list[str]:
    """Have so many things happen, a second apart; their ids."""
    for number in range(count):
        fake.events.add("extend", AT_MS + 1000 * number)
    return [f"sb-1.{AT_MS + 1000 * number}.extend" for number in range(count)]


async def _open(stream: Events) -> bool:
    return stream.cursor is not None


async def ids(client: Client, after: str | None = "0", **options: object) -> list[str]:
    return [event.id async for event in client.events(after, follow=False, **options)]  # type: ignore[arg-type]


async def test_events_come_as_they_happen(client: Client, fake: FakeGateway) -> None:
    stream = client.events()
    async with aclosing(aiter(stream)) as events:
        waiting = asyncio.ensure_future(anext(events))
        await until(partial(_open, stream))
        end = {"cause": "deleted", "detail": "gone", "at_ms": 5, "by": "test", "fault": "caller", "mask_sample": False}
        fake.events.add("end", AT_MS, labels={"a": "b"}, image="i", draining_at_ms=7, end=end)
        event = await waiting
    assert (event.id, event.kind, event.sandbox_id, event.owner) == (f"sb-1.{AT_MS}.end", "end", "sb-1", "test")
    assert (event.labels, event.image, event.draining_at_ms, event.cursor) == ({"a": "b"}, "i", 7, str(AT_MS))
    assert event.end is not None
    assert (event.end.cause, event.end.mask_sample) == ("deleted", False)


@pytest.mark.parametrize("at", [0, 1, 4])
async def test_a_connection_that_breaks_loses_and_repeats_nothing(client: Client, fake: FakeGateway, at: int) -> None:
    wanted = told(fake, 5)
    fake.events.breaks.extend([at, 0, at])
    assert await ids(client) == wanted
    fake.events.ends.extend([at, 2])
    assert await ids(client) == wanted, "an end without the mark of the whole is no end"


async def test_a_gateway_that_is_away_for_a_moment_is_asked_again(client: Client, fake: FakeGateway) -> None:
    wanted = told(fake, 3)
    fake.fail("events", Fault("draining"), Fault(), Fault("upstream_timeout"))
    assert await ids(client) == wanted


async def test_a_cursor_is_for_another_process(client: Client, fake: FakeGateway) -> None:
    wanted = told(fake, 200)
    events = client.events("0")
    async with aclosing(aiter(events)) as reading:
        seen = [await anext(reading) for _ in range(150)]
    later = await ids(client, seen[-1].cursor)
    assert later == wanted[89:], "from a minute before, with the same ids"


async def test_what_is_refused_is_raised(client: Client, fake: FakeGateway) -> None:
    fake.fail("events", Fault("permission_denied"))
    with pytest.raises(PermissionDenied):
        await ids(client, every_owner=True)
    assert "every_owner=true" in fake.requests[-1][1]
    with pytest.raises(InvalidArgument):
        client.events(labels={"": "x"})
    assert await ids(client, None, labels={"a": "b c"}) == []
    assert (
        "label=a%3Db+c" in fake.requests[-1][1]
        or "label=a%3Db%20c" in fake.requests[-1][1]
        or ("label=a=b+c" in fake.requests[-1][1])
    )


async def test_a_gateway_that_stays_away_is_told(fake: FakeGateway, client: Client) -> None:
    told(fake, 1)
    fake.events.ends.extend([0] * 10_000)
    with pytest.raises(StreamInterrupted):
        await ids(client)


def test_without_await() -> None:
    with serving_apart() as fake, sync.Client(fake.url, API_KEY) as client:
        wanted = told(fake, 3)
        events = client.events("0", follow=False)
        found = [*events]
        assert [event.id for event in found] == wanted
        assert isinstance(found[0], SandboxEvent)
        assert events.cursor == found[-1].cursor


def test_on_the_command_line() -> None:
    with serving_apart() as fake:
        end = {"cause": "ttl_expired", "detail": "after an hour", "at_ms": 5, "by": "test"}
        fake.events.add("request", AT_MS)
        fake.events.add("end", AT_MS + 1, state="ending", end={**end, "fault": "caller", "mask_sample": False})
        settings = {"ROLLBOX_URL": fake.url, "ROLLBOX_API_KEY": API_KEY}
        lines = ("--no-follow", "--no-follow --json", "--since 1m")
        people, machines, both = forked(
            [("as they are", settings, ["events", "--after", "0", *line.split()]) for line in lines]
        )
        assert people[1].splitlines() == [
            "00:16:40.000  sb-1  running    request",
            "00:16:40.001  sb-1  ending     end: after an hour",
        ]
        assert [json.loads(line)["cursor"] for line in machines[1].splitlines()] == [str(AT_MS), str(AT_MS + 1)]
        assert both[0] != 0
        assert "--since or --after" in both[2]


async def test_dead_letters_are_read_and_asked_for(client: Client, fake: FakeGateway) -> None:
    fake.events.add("end", AT_MS)
    fake.events.bury(1, **fake.events.told[0])
    fake.events.bury(300, "overflow")
    one, many = await client.dead_letters(webhook="ops", after_ms=7, most=5)
    assert (one.webhook, one.why, one.detail, one.attempts, one.events) == ("ops", "expired", "HTTP 503", 4, 1)
    assert one.event is not None
    assert (one.event.kind, one.event.sandbox_id, one.event.cursor) == ("end", "sb-1", "1000")
    assert (many.events, many.event, many.from_ms, many.to_ms) == (300, None, 1_000, 5_000)
    assert fake.events.asked == [{"webhook": "ops", "after_ms": "7", "most": "5"}]


def test_dead_letters_without_await_and_on_the_command_line() -> None:
    with serving_apart() as fake, sync.Client(fake.url, API_KEY) as client:
        fake.events.add("end", AT_MS)
        fake.events.bury(1, **fake.events.told[0])
        fake.events.bury(300, "overflow")
        assert [one.why for one in client.dead_letters()] == ["expired", "overflow"]
        settings = {"ROLLBOX_URL": fake.url, "ROLLBOX_API_KEY": API_KEY}
        lines = ("--since 1h", "--json", "--label a=b")
        people, machines, wrong = forked(
            [("as they are", settings, ["events", "--dead", *line.split()]) for line in lines]
        )
        assert int(fake.events.asked[1]["after_ms"]) > 1_600_000_000_000
        first, second = people[1].splitlines()[-2:]
        assert ("sb-1 end" in first, "300 events" in second, "overflow" in second) == (True, True, True)
        assert json.loads(machines[1])[0]["event"]["sandbox_id"] == "sb-1"
        assert wrong[0] != 0
        assert "--dead goes with" in wrong[2]
