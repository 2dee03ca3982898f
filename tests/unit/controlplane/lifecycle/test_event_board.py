"""The events of sandboxes: each told once, from a moment on, by any replica, and bounded."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.errors import Problem
from controlplane.lifecycle import event_board
from controlplane.lifecycle.event_board import MOST_BEHIND, MOST_OF_ONE, MOST_TOLD, OVERLAP_MS, Listener
from controlplane.lifecycle.record.events import SandboxEvent, events_of, in_order
from controlplane.model import EndCause, Moment, Sandbox, SandboxSpec, State
from controlplane.model.states import Event
from tests.support.fake_cluster import FakeCluster
from tests.support.shared_store import SharedMemory
from tests.support.virtual_time import EPOCH_MS, VirtualClock
from tests.support.world import OWNER, SPEC, World, world

LIFE = ["request", "queue", "start", "ready", "end", "confirm"]


async def read(stream: AsyncGenerator[list[SandboxEvent], None], count: int) -> list[SandboxEvent]:
    """So many events, and no more in the same turns."""
    found: list[SandboxEvent] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            found += await anext(stream)
    return found


async def begun(stream: AsyncGenerator[list[SandboxEvent], None]) -> list[SandboxEvent]:
    return await anext(stream)


async def test_a_life_is_told_as_it_is_lived(plane: World) -> None:
    async with aclosing(plane.service.events.listen(OWNER, {}, None, follow=True)) as stream:
        assert await begun(stream) == []
        sandbox = (await plane.create(OWNER, SPEC)).sandbox
        told = await read(stream, 4)
        await plane.service.delete(OWNER, sandbox.id, wait_s=60)
        told += await read(stream, 2)
        assert [one.kind for one in told] == LIFE
        assert {one.sandbox.id for one in told} == {sandbox.id}
        assert [one.state.value for one in told] == ["requested", "queued", "starting", "running", "ending", "ended"]
        assert told[4].text == "The sandbox was deleted by its owner (alice)"
        assert await anext(stream) == [], "a sign of life, and nothing twice"
    assert plane.service.events.listeners == 0


async def test_what_happened_before_is_told_to_those_that_ask_and_what_happens_meanwhile_once(plane: World) -> None:
    gone = (await plane.create(OWNER, SPEC)).sandbox
    await plane.service.delete(OWNER, gone.id, wait_s=60)
    stays = (await plane.create(OWNER, SPEC)).sandbox
    async with aclosing(plane.service.events.listen(OWNER, {}, 0, follow=True)) as stream:
        told = await begun(stream)
        assert [one.kind for one in told if one.sandbox.id == gone.id] == LIFE
        assert [one.kind for one in told if one.sandbox.id == stays.id] == LIFE[:4]
        assert [one.at_ms for one in told] == sorted(one.at_ms for one in told)
        await plane.service.delete(OWNER, stays.id, wait_s=60)
        assert [one.kind for one in await read(stream, 2)] == LIFE[4:]
    again = [one async for some in plane.service.events.listen(OWNER, {}, 0, follow=False) for one in some]
    assert len(again) == len({one.id for one in again}) == 12


async def test_a_cursor_begins_a_minute_before_and_no_earlier(plane: World) -> None:
    await plane.create(OWNER, SPEC)
    await asyncio.sleep(OVERLAP_MS / 1000 + 10)
    late = (await plane.create(OWNER, SPEC)).sandbox
    cursor = plane.deps.clock.now_ms()
    told = [one async for some in plane.service.events.listen(OWNER, {}, cursor, follow=False) for one in some]
    assert {one.sandbox.id for one in told} == {late.id}


async def test_another_replica_tells_the_same_events_with_the_same_ids() -> None:
    cluster, clock = FakeCluster(), VirtualClock()
    memory = SharedMemory(clock)
    async with (
        world(cluster, clock=clock, store=memory.view("a")) as first,
        world(cluster, clock=clock, store=memory.view("b")) as second,
        aclosing(first.service.events.listen(OWNER, {}, 0, follow=True)) as here,
        aclosing(second.service.events.listen(OWNER, {}, 0, follow=True)) as there,
    ):
        assert await begun(here) == await begun(there) == []
        sandbox = (await second.create(OWNER, SPEC)).sandbox
        await second.service.delete(OWNER, sandbox.id, wait_s=60)
        told = await read(here, 6), await read(there, 6)
        assert [[one.kind for one in some] for some in told] == [LIFE, LIFE]
        assert {one.id for one in told[0]} == {one.id for one in told[1]}


async def test_owners_and_labels_are_kept_apart(plane: World) -> None:
    async with (
        aclosing(plane.service.events.listen("bob", {}, None, follow=True)) as bobs,
        aclosing(plane.service.events.listen(OWNER, {"run": "7"}, None, follow=True)) as labelled,
        aclosing(plane.service.events.listen(None, {}, None, follow=True)) as everything,
    ):
        for stream in (bobs, labelled, everything):
            await begun(stream)
        mine = (await plane.create(OWNER, SPEC.model_copy(update={"labels": {"run": "7", "x": "y"}}))).sandbox
        other = (await plane.create(OWNER, SPEC.model_copy(update={"labels": {"run": "8"}}))).sandbox
        assert {one.sandbox.id for one in await read(labelled, 4)} == {mine.id}
        assert {one.sandbox.id for one in await read(everything, 8)} == {mine.id, other.id}
        assert await anext(bobs) == await anext(labelled) == []


async def test_of_a_claimed_sandbox_its_owner_hears_from_the_claim_on() -> None:
    at = [Moment(EPOCH_MS + 5, State.STARTING, "start"), Moment(EPOCH_MS + 9, State.WARM, "warm")]
    claimed = replace(
        Sandbox("sb-1", OWNER, SandboxSpec(image="a"), EPOCH_MS, EPOCH_MS + 10**6, "f"),
        pool="p",
        state=State.RUNNING,
        timeline=tuple(at),
        claimed_at_ms=EPOCH_MS + 90,
    )
    assert [one.kind for one in events_of(claimed, 0)] == ["claim"]


async def test_a_reader_that_is_too_far_behind_is_cut_off_with_what_came_before() -> None:
    listener = Listener(OWNER, {}, 0)
    number = 0
    while not listener.cut:
        listener.on(Sandbox(f"sb-{number}", OWNER, SPEC, EPOCH_MS + number, EPOCH_MS + 10**9, "f"))
        number += 1
    assert number == MOST_BEHIND + 1
    assert len(await listener.next()) == MOST_BEHIND + 1
    assert await listener.next() == []
    listener.on(Sandbox("sb-late", OWNER, SPEC, EPOCH_MS, EPOCH_MS + 10**9, "f"))
    assert await listener.next() == [], "what comes after the cut is for the next stream, whole"


async def test_streams_are_bounded_for_each_owner_and_in_all(plane: World, monkeypatch: pytest.MonkeyPatch) -> None:
    board = plane.service.events
    streams = [board.listen(OWNER, {}, None, follow=True) for _ in range(MOST_OF_ONE)]
    for one in streams:
        await begun(one)
    with pytest.raises(Problem, match="32 streams of events are open for you") as refused:
        await begun(board.listen(OWNER, {}, None, follow=True))
    assert refused.value.code == "rate_limited"
    monkeypatch.setattr(event_board, "MOST_LISTENERS", MOST_OF_ONE)
    with pytest.raises(Problem, match="0 streams of events are open for you here, and 32 in all"):
        await begun(board.listen("bob", {}, None, follow=True))
    for one in streams:
        await one.aclose()
    assert board.listeners == 0


async def test_a_replica_that_stops_ends_its_streams_and_begins_none(plane: World) -> None:
    board = plane.service.events
    stream = board.listen(OWNER, {}, None, follow=True)
    await begun(stream)
    await plane.create(OWNER, SPEC)
    board.close()
    assert [one.kind for some in [found async for found in stream] for one in some] == LIFE[:4]
    with pytest.raises(Problem) as refused:
        await begun(board.listen(OWNER, {}, None, follow=True))
    assert (refused.value.code, board.listeners) == ("draining", 0)


async def test_what_a_listener_remembers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_board, "MOST_REMEMBERED", 100)
    listener = Listener(OWNER, {}, 0)
    one = Sandbox("sb-long", OWNER, SPEC, EPOCH_MS, EPOCH_MS + 10**9, "f")
    for number in range(3 * MOST_TOLD):
        listener.on(replace(one, timeline=(Moment(EPOCH_MS + number, State.RUNNING, "extend"),)))
        await listener.next()
    assert len(listener._told["sb-long"]) == MOST_TOLD
    end = EndCause("deleted", "x", EPOCH_MS + 1, OWNER)
    for number in range(300):
        done = Sandbox(f"sb-{number}", OWNER, SPEC, EPOCH_MS, EPOCH_MS + 10**9, "f", state=State.ENDED, end=end)
        listener.on(done)
        await listener.next()
    listener.on(Sandbox("sb-299", OWNER, SPEC, EPOCH_MS, EPOCH_MS + 10**9, "f"))
    assert (len(listener._over), [*listener._told]) == (100, ["sb-long"])


words = st.lists(st.sampled_from([*Event, "extend", "lease", "drain", "undrain", "port"]), max_size=12)


@given(st.lists(words, min_size=1, max_size=4), st.integers(0, 50), st.data())
def test_whatever_is_heard_and_however_often_each_event_is_told_once(
    lives: list[list[str]], since: int, data: st.DataObject
) -> None:
    listener = Listener(OWNER, {}, EPOCH_MS + since)
    versions, whole = [], []
    for number, life in enumerate(lives):
        one = Sandbox(f"sb-{number}", OWNER, SPEC, EPOCH_MS, EPOCH_MS + 10**9, "f")
        for at, word in enumerate(life):
            one = replace(one, timeline=(*one.timeline, Moment(EPOCH_MS + 5 * at, State.RUNNING, word)))
            versions.append(one)
        whole.append(one)
    heard = data.draw(st.permutations([*versions, *versions]))
    for one in [*heard, *whole]:
        listener.on(one)
    told = [one.id for one in listener._waiting]
    assert len(told) == len(set(told))
    assert set(told) == {one.id for one in in_order(whole, EPOCH_MS + since)}
