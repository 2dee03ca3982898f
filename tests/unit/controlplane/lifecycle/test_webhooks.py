"""Webhooks of a control plane in virtual time: what is posted to whom, and what becomes of it when all goes wrong."""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from controlplane.api.events import CloudEvent
from controlplane.errors import Problem
from controlplane.lifecycle import Options
from controlplane.lifecycle.record.cloud_event import cloud_event
from controlplane.lifecycle.replicas.loops import HERE_FOR_MS
from controlplane.lifecycle.webhooks import DeadLetter
from controlplane.lifecycle.webhooks.keeper import read_cursors
from controlplane.lifecycle.webhooks.webhooks import KEEP_EVERY_S
from controlplane.telemetry import Levels
from controlplane.webhooks import Answer, Endpoint, WebhookOptions, outbox
from tests.support.fake_cluster import FakeCluster
from tests.support.shared_store import SharedMemory
from tests.support.virtual_time import VirtualClock
from tests.support.world import OTHER_KEY, OWNER, SPEC, World, world

LIFE = ["request", "queue", "start", "ready", "end", "confirm"]
TAKEN, AWAY = Answer("taken", "HTTP 200"), Answer("later", "HTTP 503")
URL, KEY = "https://hooks.example.com/", bytes(32)
# Until a replica that has ended has left its lease, and another one has looked.
TAKEOVER_S = 3 * HERE_FOR_MS / 1000


@dataclass
class FakePoster:
    """Answers as the test says; what came is kept.

    Attributes:
        answer: of each endpoint, by what came; without one all is taken.
        hangs: endpoints that never answer.
    """

    answer: dict[str, Callable[[list[Any]], Answer]] = field(default_factory=dict)
    hangs: set[str] = field(default_factory=set)
    posts: list[tuple[str, list[Any], Answer]] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)

    async def post(self, endpoint: Endpoint, headers: Mapping[str, str], body: bytes) -> Answer:
        if endpoint.name in self.hangs:
            await asyncio.Event().wait()
        told = json.loads(body)
        events = told if isinstance(told, list) else [told]
        says = self.answer.get(endpoint.name)
        answer = TAKEN if says is None else says(events)
        self.posts.append((endpoint.name, events, answer))
        self.headers.append(headers)
        return answer

    def taken(self, name: str = "ops") -> list[Any]:
        return [one for to, events, answer in self.posts if to == name and answer == TAKEN for one in events]

    def kinds(self, name: str = "ops") -> list[str]:
        return [one["data"]["kind"] for one in self.taken(name)]


def options(*endpoints: Endpoint, folder: Path | None = None) -> Options:
    return Options(webhooks=WebhookOptions(endpoints or (Endpoint("ops", URL, (KEY,)),), folder))


async def live(plane: World, owner: str = OWNER) -> str:
    """A whole life; its sandbox."""
    sandbox = (await plane.create(owner, SPEC)).sandbox
    await plane.service.delete(owner, sandbox.id, wait_s=60)
    await asyncio.sleep(1)
    return sandbox.id


async def counted(plane: World, name: str) -> dict[str, float]:
    """A metric's values, by its labels but for the endpoint's name."""
    body = (await plane.api("GET", "/metrics")).body.decode()
    found = [line for line in body.splitlines() if line.startswith(f"{name}{{")]
    return {line.split("{")[1].split("}")[0]: float(line.rsplit(" ", 1)[1]) for line in found}


async def test_a_life_is_posted_in_order_as_the_stream_tells_it_and_signed() -> None:
    poster = FakePoster()
    async with world(options=options(), poster=poster) as plane:
        await asyncio.sleep(1)
        sandbox_id = await live(plane)
        assert poster.kinds() == LIFE
        for event, headers in zip(poster.taken(), poster.headers, strict=True):
            assert CloudEvent.model_validate(event).model_dump(mode="json") == event
            assert event["subject"] == event["data"]["sandbox_id"] == sandbox_id
            assert headers["webhook-id"] == event["id"].replace(".", "_")
            assert headers["webhook-signature"].startswith("v1,")
            assert headers["content-type"] == "application/cloudevents+json"
        told = [one async for some in plane.service.events.listen(OWNER, {}, 0, follow=False) for one in some]
        assert [json.loads(cloud_event(one))["id"] for one in told] == [one["id"] for one in poster.taken()]
        assert plane.service.webhooks is not None
        assert plane.service.webhooks.levels == {"ops": (0, 0)}
        assert plane.service.events.listeners == 1, "one stream for all endpoints"


async def test_each_endpoint_has_its_owners_and_types() -> None:
    bobs = Endpoint("bobs", URL, (KEY,), owners=frozenset({"bob"}))
    ends = Endpoint("ends", URL, (KEY,), kinds=frozenset({"end"}), batch=10)
    async with world(options=options(bobs, ends), poster=(poster := FakePoster())) as plane:
        await asyncio.sleep(1)
        alices, bob = await live(plane), await live(plane, "bob")
        assert {one["subject"] for one in poster.taken("bobs")} == {bob}
        assert poster.kinds("bobs") == LIFE
        assert [(one["subject"], one["data"]["kind"]) for one in poster.taken("ends")] == [
            (alices, "end"),
            (bob, "end"),
        ]


async def test_an_endpoint_that_hangs_holds_up_neither_another_nor_anything_else() -> None:
    slow, quick = Endpoint("slow", URL, (KEY,)), Endpoint("quick", URL, (KEY,))
    poster = FakePoster(hangs={"slow"})
    async with world(options=options(slow, quick), poster=poster) as plane:
        await asyncio.sleep(1)
        await live(plane)
        assert poster.kinds("quick") == LIFE
        assert plane.service.webhooks is not None
        assert plane.service.webhooks.levels["slow"][0] == len(LIFE)
        queued = await counted(plane, "rollbox_webhook_queued")
        assert queued == {'webhook="slow"': 6, 'webhook="quick"': 0}
        assert (await counted(plane, "rollbox_webhook_oldest_seconds"))['webhook="slow"'] > 0


async def test_what_fails_is_sent_again_and_nothing_overtakes_it() -> None:
    failures = iter([AWAY] * 4)
    poster = FakePoster(answer={"ops": lambda _: next(failures, TAKEN)})
    async with world(options=options(), poster=poster) as plane:
        await asyncio.sleep(1)
        await live(plane)
        await asyncio.sleep(120)
        assert poster.kinds() == LIFE
        assert [events[0]["data"]["kind"] for _, events, _ in poster.posts[:5]] == ["request"] * 5
        assert {one["webhook-id"] for one in poster.headers[:5]} == {poster.headers[0]["webhook-id"]}
        stamps = [int(one["webhook-timestamp"]) for one in poster.headers]
        assert stamps == sorted(stamps)
        assert stamps[4] > stamps[0]
        assert await counted(plane, "rollbox_webhook_retries_total") == {'webhook="ops"': 4}
        assert await counted(plane, "rollbox_webhook_events_total") == {'outcome="sent",webhook="ops"': 6}


async def test_what_is_not_taken_in_time_is_a_dead_letter_that_operators_read() -> None:
    poster = FakePoster(answer={"ops": lambda _: AWAY})
    endpoint = Endpoint("ops", URL, (KEY,), kinds=frozenset({"end"}), give_up_ms=60_000)
    async with world(options=options(endpoint), poster=poster) as plane:
        await asyncio.sleep(1)
        sandbox_id = await live(plane)
        await asyncio.sleep(300)
        answer = await plane.api("GET", "/v1/events/dead")
        (letter,) = answer.json["letters"]
        assert (letter["webhook"], letter["why"], letter["detail"], letter["events"]) == (
            "ops",
            "expired",
            "HTTP 503",
            1,
        )
        assert letter["attempts"] > 3
        assert (letter["event"]["subject"], letter["event"]["data"]["end"]["cause"]) == (sandbox_id, "deleted")
        assert await counted(plane, "rollbox_webhook_events_total") == {'outcome="expired",webhook="ops"': 1}
        later = await plane.api("GET", "/v1/events/dead", query={"after_ms": str(letter["at_ms"])})
        assert later.json["letters"] == []
        other = await plane.api("GET", "/v1/events/dead", query={"webhook": "other"})
        assert (other.code, "there are ops" in other.json["detail"]) == ("not_found", True)
        assert (await plane.api("GET", "/v1/events/dead", key=OTHER_KEY)).code == "permission_denied"


async def test_without_webhooks_there_are_no_dead_letters(plane: World) -> None:
    assert plane.service.webhooks is None
    assert (await plane.api("GET", "/v1/events/dead")).code == "unsupported"


async def test_too_many_are_a_gap_with_its_number_and_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "MOST_EVENTS", 4)
    monkeypatch.setattr(outbox.Outbox.__init__, "__kwdefaults__", {"most_events": 4, "most_bytes": 1 << 20})
    poster = FakePoster(hangs={"ops"})
    async with world(options=options(), poster=poster) as plane:
        await asyncio.sleep(1)
        for _ in range(2):
            await live(plane)
        await asyncio.sleep(KEEP_EVERY_S)
        (letter,) = (await plane.api("GET", "/v1/events/dead")).json["letters"]
        # One is being sent, four wait.
        assert (letter["why"], letter["events"], letter["event"]) == ("overflow", 7, None)
        assert letter["from_ms"] < letter["to_ms"]
        assert (await counted(plane, "rollbox_webhook_events_total"))['outcome="overflow",webhook="ops"'] == 7


async def test_one_that_wants_none_any_more_gets_none_and_what_it_misses_is_counted() -> None:
    poster = FakePoster(answer={"ops": lambda _: Answer("gone", "HTTP 410")})
    async with world(options=options(), poster=poster) as plane:
        await asyncio.sleep(1)
        for _ in range(3):
            await live(plane)
            await asyncio.sleep(KEEP_EVERY_S)
        assert len(poster.posts) == 1
        (letter,) = (await plane.api("GET", "/v1/events/dead")).json["letters"]
        assert letter["why"] == "gone"
        assert (await counted(plane, "rollbox_webhook_events_total"))['outcome="gone",webhook="ops"'] == 18


async def test_of_two_replicas_one_sends_and_the_other_goes_on_where_it_ends() -> None:
    cluster, core, poster = FakeCluster(), SharedMemory(VirtualClock()), FakePoster()
    async with world(cluster, options=options(), store=core.view("a"), poster=poster) as a:
        await asyncio.sleep(TAKEOVER_S)
        async with world(cluster, options=options(), store=core.view("b"), poster=poster) as b:
            await asyncio.sleep(TAKEOVER_S)
            assert [bool(one.service.webhooks and one.service.webhooks.levels) for one in (a, b)] == [True, False]
            assert "webhooks" in a.service._core.replicas.roles
            first = await live(b)
            assert [one["subject"] for one in poster.taken()] == [first] * 6
            # Its loops end: what was not sent, and what its stream had told it, is lost.
            for task in a.service._core._loops:
                task.cancel()
            second = await live(b)
            await asyncio.sleep(TAKEOVER_S)
            third = await live(b)
            kinds: dict[str, list[str]] = {one: [] for one in (first, second, third)}
            for event in poster.taken():
                if event["data"]["kind"] not in kinds[event["subject"]]:
                    kinds[event["subject"]].append(event["data"]["kind"])
            assert kinds == dict.fromkeys(kinds, LIFE)


async def test_one_whose_lease_is_lost_sends_no_more() -> None:
    core, poster = SharedMemory(VirtualClock()), FakePoster()
    async with world(options=options(), store=core.view("a"), poster=poster) as plane:
        await asyncio.sleep(TAKEOVER_S)
        assert "webhooks" in plane.service._core.replicas.roles
        vars(core.memory)["_leases"]["webhooks"] = ("b", core.clock.now_ms() + 60_000)
        await asyncio.sleep(TAKEOVER_S)
        sandbox_id = await live(plane)
        assert "webhooks" not in plane.service._core.replicas.roles
        assert poster.posts == []
        await asyncio.sleep(60 + TAKEOVER_S)
        assert [one["subject"] for one in poster.taken()] == [sandbox_id] * 6


async def test_a_restart_goes_on_by_the_cursor_in_the_store_and_what_was_never_sent_comes() -> None:
    cluster, core, poster = FakeCluster(), SharedMemory(VirtualClock()), FakePoster()
    async with world(cluster, options=options(), store=core.view("a"), poster=poster) as plane:
        await asyncio.sleep(1)
        await live(plane)
        await asyncio.sleep(120)
    sent = len(poster.taken())
    async with world(cluster, store=core.view("b")) as without:
        missed = await live(without)
        await asyncio.sleep(300)
    async with world(cluster, options=options(), store=core.view("a"), poster=poster):
        await asyncio.sleep(TAKEOVER_S)
    assert [one["subject"] for one in poster.taken()[sent:]] == [missed] * 6
    assert poster.kinds()[sent:] == LIFE


async def test_on_an_engine_files_keep_how_far_it_is_and_what_is_dead(tmp_path: Path) -> None:
    cluster, core = FakeCluster(), SharedMemory(VirtualClock())
    poster = FakePoster(answer={"ops": lambda _: Answer("refused", "HTTP 400")})
    ends = Endpoint("ops", URL, (KEY,), kinds=frozenset({"end"}))
    async with world(cluster, options=options(ends, folder=tmp_path), store=core.view("a"), poster=poster) as plane:
        await asyncio.sleep(1)
        await live(plane)
        await asyncio.sleep(120)
    assert read_cursors((tmp_path / "webhooks.json").read_text())["ops"] > 0
    # Another end of the process in the middle of a write: it begins now.
    (tmp_path / "webhooks.json").write_text('{"ops": 1')
    async with world(cluster, options=options(ends, folder=tmp_path), store=core.view("a"), poster=poster) as plane:
        (letter,) = (await plane.api("GET", "/v1/events/dead")).json["letters"]
        assert (letter["why"], letter["attempts"]) == ("refused", outbox.MOST_REFUSALS)


async def test_while_the_store_is_away_it_is_sent_and_afterwards_it_is_kept() -> None:
    core, poster = SharedMemory(VirtualClock()), FakePoster()
    async with world(options=options(), store=core.view("a"), poster=poster) as plane:
        await asyncio.sleep(TAKEOVER_S)
        core.away = Problem("upstream_timeout", "the store is away")
        await asyncio.sleep(2 * KEEP_EVERY_S)
        core.away = None
        await live(plane)
        await asyncio.sleep(TAKEOVER_S + KEEP_EVERY_S)
        assert sorted(set(poster.kinds())) == sorted(LIFE)
        note = await core.view("b").note("webhooks")
        assert read_cursors(note)["ops"] > VirtualClock().now_ms() - 2 * KEEP_EVERY_S * 1000


async def test_of_a_long_past_as_many_are_sent_as_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, core, poster = FakeCluster(), SharedMemory(VirtualClock()), FakePoster()
    async with world(cluster, options=options(), store=core.view("a"), poster=poster):
        await asyncio.sleep(TAKEOVER_S)
    async with world(cluster, store=core.view("b")) as without:
        for _ in range(3):
            await live(without)
    monkeypatch.setattr("controlplane.lifecycle.webhooks.lane.MOST_EVENTS", 10)
    async with world(cluster, options=options(), store=core.view("a"), poster=poster) as plane:
        await asyncio.sleep(TAKEOVER_S + KEEP_EVERY_S)
        assert len(poster.taken()) == 10
        (letter,) = (await plane.api("GET", "/v1/events/dead")).json["letters"]
        assert (letter["why"], letter["events"]) == ("overflow", 8)


def test_a_dead_letter_survives_its_line_and_what_is_none_is_left_out() -> None:
    letter = DeadLetter("ops", 5, "expired", "HTTP 500", 3, 1, 1, 1, {"id": "x"})
    assert DeadLetter.read(letter.line) == letter
    for line in ("", "{", "{}", "[]", letter.line[:-5]):
        assert DeadLetter.read(line) is None
    for text in ("", "[", "[]", "1"):
        assert read_cursors(text) == {}
    assert read_cursors('{"a": 1, "b": "x"}') == {"a": 1}


def test_what_waits_has_no_series_where_another_replica_sends() -> None:
    assert Levels(states={}, starts_in_flight=0, starts_queued=0, feeds=0).webhooks == {}
