"""``GET /v1/events``: server-sent events with a CloudEvent each, a cursor, and what is refused before it begins."""

import asyncio
import json
from datetime import datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from controlplane.api.serve import _webhooks
from controlplane.lifecycle.event_board import MOST_OF_ONE
from controlplane.settings import SettingError, Settings
from controlplane.webhooks import Endpoint
from tests.support.virtual_time import EPOCH_MS
from tests.support.world import OTHER_KEY, OWNER, SPEC, World


def parsed(body: bytes) -> list[tuple[str, Any]]:
    """The events of a stream, by the rules of server-sent events: id and data; a comment is (text, None)."""
    found: list[tuple[str, Any]] = []
    assert body.endswith(b"\n\n")
    for block in body.decode().removesuffix("\n\n").split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if not lines:
            found.append((block, None))
        elif "data" in lines:
            found.append((lines["id"], json.loads(lines["data"])))
    return found


async def test_each_event_is_a_cloud_event(plane: World) -> None:
    sandbox = (await plane.create(OWNER, SPEC)).sandbox
    await plane.service.delete(OWNER, sandbox.id, wait_s=60)
    answer = await plane.api("GET", "/v1/events", query={"after": "0", "follow": "false"})
    assert (answer.status, answer.headers["content-type"].split(";")[0]) == (200, "text/event-stream")
    assert answer.headers["cache-control"] == "no-store"
    events = parsed(answer.body)
    assert events.pop() == (": end", None)
    cursors = [int(cursor) for cursor, _ in events]
    assert cursors == sorted(cursors) == [one["data"]["at_ms"] for _, one in events]
    end = events[4][1]
    at = end["data"]["at_ms"]
    verdict = {"cause": "deleted", "fault": "caller"}
    assert verdict.items() <= end["data"]["end"].items()
    assert end == {
        "specversion": "1.0",
        "id": f"{sandbox.id}.{at}.deleted",
        "source": "/v1/sandboxes",
        "type": "dev.rollbox.sandbox.end",
        "subject": sandbox.id,
        "time": end["time"],
        "datacontenttype": "application/json",
        "data": {
            "sandbox_id": sandbox.id,
            "owner": OWNER,
            "kind": "end",
            "at_ms": at,
            "state": "ending",
            "text": "The sandbox was deleted by its owner (alice)",
            "image": "python:3.12",
            "labels": {},
            "lease": None,
            "draining_at_ms": None,
            "end": end["data"]["end"],
        },
    }
    assert end["time"].endswith("Z")
    assert datetime.fromisoformat(end["time"]).timestamp() == at / 1000
    assert [one["data"]["end"] is None for _, one in events] == [True] * 4 + [False] * 2


async def test_a_stream_begins_with_a_cursor_and_ends_where_its_reader_goes_away(plane: World) -> None:
    gone = asyncio.Event()
    asked = asyncio.create_task(plane.api("GET", "/v1/events", hang_up=gone))
    await asyncio.sleep(1)
    assert plane.service.events.listeners == 1
    await plane.create(OWNER, SPEC)
    await asyncio.sleep(30)
    gone.set()
    body = (await asked).body
    assert body.startswith(f"id: {EPOCH_MS}\n\n".encode())
    assert [event["data"]["kind"] for _, event in parsed(body) if event] == ["request", "queue", "start", "ready"]
    assert body.count(b":\n\n") == 7, "a sign of life every five seconds"
    assert plane.service.events.listeners == 0


async def test_a_browser_goes_on_where_it_was(plane: World) -> None:
    await plane.create(OWNER, SPEC)
    headers, query = {"Last-Event-ID": str(plane.deps.clock.now_ms())}, {"follow": "false"}
    answer = await plane.api("GET", "/v1/events", query=query, headers=headers)
    assert len(parsed(answer.body)) == 5


async def test_a_neighbour_hears_nothing_and_only_operators_hear_everything(plane: World) -> None:
    await plane.create(OWNER, SPEC)
    await plane.create("bob", SPEC)
    query = {"after": "0", "follow": "false"}
    for key, every_owner, owners in ((None, False, {OWNER}), (OTHER_KEY, False, {"bob"}), (None, True, {OWNER, "bob"})):
        asked = {**query, **({"every_owner": "true"} if every_owner else {})}
        events = parsed((await plane.api("GET", "/v1/events", query=asked, key=key)).body)
        assert {event["data"]["owner"] for _, event in events if event} == owners
    refused = await plane.api("GET", "/v1/events", query={**query, "every_owner": "true"}, key=OTHER_KEY)
    assert (refused.status, refused.code) == (403, "permission_denied")


@pytest.mark.parametrize(
    "query",
    [
        {"after": "x"},
        {"after": "-1"},
        {"after": ""},
        {"after": "1" * 16},
        {"after": "\u0661"},
        {"label": "nope"},
    ],
)
async def test_what_cannot_be_begun_is_refused_with_a_status(plane: World, query: dict[str, str]) -> None:
    answer = await plane.api("GET", "/v1/events", query={"follow": "false", **query})
    assert (answer.status, answer.code) == (400, "invalid_argument")


async def test_one_stream_too_many_is_refused_before_it_begins(plane: World) -> None:
    gone = asyncio.Event()
    open_ones = [asyncio.create_task(plane.api("GET", "/v1/events", hang_up=gone)) for _ in range(MOST_OF_ONE)]
    await asyncio.sleep(1)
    answer = await plane.api("GET", "/v1/events", query={"follow": "false"})
    assert (answer.status, answer.code, answer.json["retry_after_ms"]) == (429, "rate_limited", 5000)
    gone.set()
    await asyncio.gather(*open_ones)
    assert b"rollbox_event_streams 0.0" in (await plane.api("GET", "/metrics")).body


async def test_a_webhook_for_events_that_there_are_not_stops_the_start() -> None:
    for kinds in ({"end", "drain"}, {"end", "nosuch"}):
        endpoint = Endpoint("ops", "https://hooks.example.com/", (), kinds=frozenset(kinds))
        settings = SimpleNamespace(webhooks=(endpoint,), backend=None)
        if "nosuch" not in kinds:
            assert _webhooks(cast("Settings", settings)).endpoints == (endpoint,)
            continue
        with pytest.raises(SettingError, match=r"WEBHOOKS.*ops: types has 'nosuch'; there are .*drain.*end"):
            _webhooks(cast("Settings", settings))
