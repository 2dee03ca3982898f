"""What every store of many replicas must do, beside `StoreSuite`; a module of tests subclasses this, with `pair`."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from controlplane.model import WAITS_FOR_ROOM, Limits, Moment, State
from controlplane.model.states import Event
from controlplane.store import (
    Admitted,
    Changed,
    Full,
    Known,
    Rebuild,
    RebuildTurn,
    Resync,
    Slot,
    SlotFreed,
    Store,
    StoreLostError,
)
from controlplane.store.slots import KEPT_MS, WANTING_MS
from tests.contract.store_factory import Advance, Lose, Now, ended, sandbox
from tests.support.eventually import eventually

# Two replicas' views of one store, as `r0` and `r1`.
Pair = Sequence[Store]


async def collected(store: Store, into: list[Any]) -> None:
    async for news in store.feed():
        into.append(news)


@asynccontextmanager
async def hearing(store: Store) -> AsyncIterator[list[Any]]:
    """What this replica hears while the block runs, the first Resync left out."""
    heard: list[Any] = []
    following = asyncio.create_task(collected(store, heard))
    await eventually(lambda: heard)
    assert heard.pop() == Resync()
    try:
        yield heard
    finally:
        following.cancel()
        await asyncio.wait([following])


class ReplicasSuite:
    """The conformance suite of replicas. `empty` makes the store forget everything."""

    async def test_two_replicas_see_one_truth(self, pair: Pair) -> None:
        one, two = pair
        first = sandbox("sb-1", key="k")
        await one.admit(first, Limits())
        assert await two.get("sb-1") == first
        assert await two.admit(sandbox("sb-2", key="k"), Limits()) == Known(first)
        assert await two.replace(replace(first, version=1, state=State.QUEUED), 0)
        assert not await one.replace(replace(first, version=1, state=State.STARTING), 0)

    async def test_a_key_gives_one_sandbox_to_a_crowd(self, pair: Pair) -> None:
        wanted = [sandbox(f"sb-{number}", key="k") for number in range(100)]
        admissions = await asyncio.gather(*(pair[n % 2].admit(one, Limits()) for n, one in enumerate(wanted)))
        (winner,) = [one.sandbox for one in admissions if isinstance(one, Admitted)]
        assert all(one == Known(winner) for one in admissions if not isinstance(one, Admitted))
        assert (await pair[0].counts())[State.REQUESTED] == 1

    async def test_a_limit_holds_against_a_crowd(self, pair: Pair) -> None:
        admissions = await asyncio.gather(*(pair[n % 2].admit(sandbox(f"sb-{n}"), Limits(7)) for n in range(100)))
        assert sum(isinstance(one, Admitted) for one in admissions) == 7
        assert sum(isinstance(one, Full) for one in admissions) == 93

    async def test_one_of_two_ends_wins_and_counts_once(self, pair: Pair) -> None:
        first = sandbox("sb-1")
        await pair[0].admit(first, Limits())
        wins = await asyncio.gather(*(store.replace(ended(first), 0) for store in pair))
        assert sorted(wins) == [False, True]
        counts = await pair[0].counts()
        assert (counts[State.ENDED], counts[State.REQUESTED]) == (1, 0)

    async def test_others_hear_of_what_runs_and_ends_and_nobody_of_his_own(self, pair: Pair) -> None:
        one, two = pair
        first = sandbox("sb-1")
        async with hearing(one) as own, hearing(two) as heard:
            await one.admit(first, Limits())
            running = replace(first, state=State.RUNNING, version=1, address="http://10.0.0.1:7070")
            await one.replace(running, 0)
            await one.replace(replace(ended(running)), 1)
            await one.take_slot("sb-1", 1, 1 << 52)
            await one.free_slot("sb-1")  # nobody went without: nobody is told
            await one.take_slot("sb-1", 1, 1 << 52)
            assert not await two.take_slot("sb-2", 1, 1 << 52)
            await one.free_slot("sb-1")
            await eventually(lambda: len(heard) == 3)
            assert [type(news) for news in heard] == [Changed, Changed, SlotFreed]
            assert heard[0].sandbox == running
            assert heard[1].sandbox.end is not None
            assert own == []

    async def test_others_hear_of_what_needs_room_on_a_node_and_not_of_what_waits_for_its_turn(
        self, pair: Pair
    ) -> None:
        one, two = pair
        first = sandbox("sb-1")
        async with hearing(two) as heard:
            await one.admit(first, Limits())
            told = [(State.QUEUED, Event.QUEUE), (State.QUEUED, WAITS_FOR_ROOM), (State.STARTING, Event.START)]
            for version, (state, word) in enumerate(told, start=1):
                timeline = (Moment(version, state, word),)
                await one.replace(replace(first, state=state, version=version, timeline=timeline), version - 1)
            await eventually(lambda: len(heard) == 2)
            assert [news.sandbox.state for news in heard] == [State.QUEUED, State.STARTING]
            assert [news.sandbox.waits_for_room for news in heard] == [True, False]

    async def test_a_replica_that_went_without_a_slot_hears_when_it_may_have_one(self, pair: Pair) -> None:
        one, two = pair
        await one.admit(sandbox("sb-1"), Limits())
        async with hearing(one) as own, hearing(two) as heard:
            await one.free_slot("sb-3")
            assert await one.take_slot("sb-1", 2, 1 << 52, 1, "p")
            assert not await two.take_slot("sb-2", 2, 1 << 52, 1, "p")
            await one.free_slot("sb-3")  # it had none
            await one.place_slot("sb-1", "n1", 1 << 52, 1, "p")  # the one without a node may come to another one now
            await one.place_slot("sb-3", "n1", 1 << 52, 1, "p")  # no such start
            await eventually(lambda: len(heard) == 1)
            assert (own, heard) == ([], [SlotFreed("p")])

    async def test_what_is_freed_wakes_one_replica_the_one_that_asked_first(self, pair: Pair, advance: Advance) -> None:
        one, two = pair
        await one.admit(sandbox("sb-1"), Limits())
        async with hearing(one) as own, hearing(two) as heard:
            assert await one.take_slot("sb-1", 2, 1 << 52)
            assert await one.take_slot("sb-2", 2, 1 << 52)
            assert not await two.take_slot("sb-4", 2, 1 << 52, 0, "b")
            await advance(0.01)
            assert not await one.take_slot("sb-3", 2, 1 << 52, 0, "a")
            assert await one.replace(ended(sandbox("sb-1")), 0)  # the start is over
            await eventually(lambda: SlotFreed("b") in heard)
            # Kept for the one that is woken.
            assert not await one.take_slot("sb-5", 2, 1 << 52, 0, "a")
            assert await two.take_slot("sb-4", 2, 1 << 52, 0, "b")
            await two.free_slot("sb-2")
            await eventually(lambda: len(own) == 1)
            assert own == [SlotFreed("a")]
            assert [news for news in heard if isinstance(news, SlotFreed)] == [SlotFreed("b")]

    async def test_a_replica_with_more_starts_than_slots_hears_without_asking_once_more(self, pair: Pair) -> None:
        one, two = pair
        async with hearing(one) as own:
            assert await one.take_slot("sb-1", 2, 1 << 52, more=True) == Slot(taken=True)
            assert await one.take_slot("sb-2", 2, 1 << 52, more=True) == Slot(taken=True, last=True)
            await two.free_slot("sb-1")
            await eventually(lambda: own == [SlotFreed()])
            # It has no more that wait, so nobody is woken next.
            assert await one.take_slot("sb-3", 2, 1 << 52) == Slot(taken=True)
            await two.free_slot("sb-2")
            await two.free_slot("sb-3")
            assert await two.take_slot("sb-4", 1, 1 << 52)
            assert own == [SlotFreed()]

    async def test_a_replica_that_asks_no_more_is_woken_no_more(self, pair: Pair, advance: Advance) -> None:
        one, two = pair
        assert await one.take_slot("sb-1", 1, 1 << 52)
        async with hearing(two) as heard:
            assert not await two.take_slot("sb-2", 1, 1 << 52)
            await advance(WANTING_MS / 1000)
            await one.free_slot("sb-1")
            assert await one.take_slot("sb-3", 1, 1 << 52)
            assert heard == []

    async def test_what_is_kept_for_a_replica_that_does_not_ask_is_free_a_moment_later(
        self, pair: Pair, advance: Advance
    ) -> None:
        one, two = pair
        assert await one.take_slot("sb-1", 1, 1 << 52)
        assert not await two.take_slot("sb-2", 1, 1 << 52)
        await one.free_slot("sb-1")
        assert not await one.take_slot("sb-3", 1, 1 << 52)
        await advance(KEPT_MS / 1000)
        assert await one.take_slot("sb-3", 1, 1 << 52)

    async def test_all_news_are_heard_in_their_order(self, pair: Pair) -> None:
        one, two = pair
        first = sandbox("sb-1")
        async with hearing(two) as heard:
            await one.admit(first, Limits())
            for version in range(1, 101):
                await one.replace(replace(first, state=State.RUNNING, version=version), version - 1)
            await eventually(lambda: len(heard) == 100)
            assert [news.sandbox.version for news in heard] == list(range(1, 101))

    async def test_an_emptied_store_is_lost_until_it_is_rebuilt(self, pair: Pair, empty: Lose) -> None:
        one, two = pair
        first = sandbox("sb-1", key="k")
        await one.admit(first, Limits())
        before = await one.claim_rebuild(60_000)
        assert before.turn is RebuildTurn.INTACT
        assert await two.claim_rebuild(60_000) == before
        await empty()
        asked = [
            two.get("sb-1"),
            two.admit(first, Limits()),
            two.replace(first, 0),
            two.find(None, {}),
            two.counts(),
            two.by_key("alice", "k"),
            two.lease("x", "y", 1),
            two.take_slot("sb-1", 1, 1),
            two.due(0, 0),
        ]
        for question in asked:
            with pytest.raises(StoreLostError):
                await question
        rebuild = await one.claim_rebuild(60_000)
        assert rebuild.turn is RebuildTurn.OURS
        assert await two.claim_rebuild(60_000) == Rebuild(RebuildTurn.THEIRS, rebuild.content_id)
        assert await one.restore(first)
        assert await one.rebuilt(rebuild.content_id)
        assert await two.claim_rebuild(60_000) == Rebuild(RebuildTurn.INTACT, rebuild.content_id)
        assert rebuild.content_id != before.content_id
        assert await two.get("sb-1") == first

    async def test_a_rebuild_that_is_given_up_is_taken_over(self, pair: Pair, empty: Lose, advance: Advance) -> None:
        await empty()
        first = await pair[0].claim_rebuild(1_000)
        await advance(2)
        assert first == await pair[1].claim_rebuild(1_000) == Rebuild(RebuildTurn.OURS, first.content_id)

    async def test_a_store_that_is_emptied_during_its_rebuild_is_not_taken_for_whole(
        self, pair: Pair, empty: Lose
    ) -> None:
        await empty()
        first = await pair[0].claim_rebuild(60_000)
        await empty()
        assert not await pair[0].rebuilt(first.content_id)
        second = await pair[1].claim_rebuild(60_000)
        assert second.turn is RebuildTurn.OURS
        assert second.content_id != first.content_id
        assert not await pair[0].rebuilt(first.content_id)
        assert await pair[1].rebuilt(second.content_id)

    async def test_starts_of_a_replica_that_has_gone_are_told(self, pair: Pair, now_ms: Now) -> None:
        one, two = pair
        at_ms = now_ms()
        await one.lease("replica:r0", "r0", 6_000)
        await one.admit(sandbox("sb-1", at_ms=at_ms), Limits())
        assert (await two.due(at_ms, 0)).abandoned == ()
        assert (await two.due(now_ms() + 7_000, 0)).abandoned == ("sb-1",)
        await one.lease("replica:r0", "r0", 0)
        assert (await two.due(at_ms, 0)).abandoned == ("sb-1",)

    async def test_a_create_that_joins_a_start_elsewhere_does_not_hide_that_it_is_abandoned(
        self, pair: Pair, now_ms: Now
    ) -> None:
        one, two = pair
        at_ms = now_ms()
        await two.lease("replica:r1", "r1", 6_000)
        started = sandbox("sb-1", at_ms=at_ms)
        await one.admit(started, Limits())
        joined = replace(started, callers=("c/1",), version=1)
        assert await two.replace(joined, 0)
        assert (await two.due(at_ms, 0)).abandoned == ("sb-1",)
        assert await two.replace(replace(joined, state=State.STARTING, version=2), 1)
        assert (await two.due(at_ms, 0)).abandoned == ()
