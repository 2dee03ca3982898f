"""What every store must do with start slots; `store_suite` has the rest."""

from dataclasses import replace

from controlplane.model import State
from controlplane.store import Slot, Store
from tests.contract.store_factory import Advance, Now, starting


class SlotsSuite:
    """The conformance suite of start slots; `controlplane/store/slots.py` has the rule."""

    async def test_slots_are_as_many_as_the_limit_says(self, store: Store, now_ms: Now) -> None:
        until_ms = now_ms() + 60_000
        assert await store.take_slot("sb-1", 2, until_ms)
        assert await store.take_slot("sb-2", 2, until_ms)
        assert not await store.take_slot("sb-3", 2, until_ms)
        assert await store.take_slot("sb-1", 2, until_ms)
        await store.free_slot("sb-2")
        await store.free_slot("sb-never")
        assert await store.take_slot("sb-3", 2, until_ms)
        assert not await store.take_slot("sb-2", 2, until_ms)

    async def test_a_start_that_is_over_has_no_slot_whoever_wrote_that(self, store: Store, now_ms: Now) -> None:
        for number, state in enumerate((State.RUNNING, State.WARM, State.ENDING)):
            one = await starting(store, f"sb-{number}")
            assert await store.take_slot(one.id, 1, now_ms() + 60_000)
            assert not await store.take_slot("sb-next", 1, now_ms() + 60_000)
            assert await store.replace(replace(one, version=2), 1)
            assert not await store.take_slot("sb-next", 1, now_ms() + 60_000)
            assert await store.replace(replace(one, state=state, version=3, ready_at_ms=1), 2)
            assert await store.take_slot("sb-next", 1, now_ms() + 60_000)
            await store.free_slot("sb-next")

    async def test_slots_bound_each_node_by_where_its_starts_are(self, store: Store, now_ms: Now) -> None:
        until_ms = now_ms() + 60_000
        names = [f"sb-{number}" for number in range(8)]
        for name in names:
            await starting(store, name)

        async def take(number: int, key: str = "k") -> Slot:
            return await store.take_slot(names[number], 8, until_ms, 2, key)

        # As many without a node as one node bears.
        assert [bool(await take(number)) for number in range(3)] == [True, True, False]
        await store.place_slot(names[0], "a", until_ms, 2, "k")
        assert not await take(2), "the two that are under way may both come to the same node"
        await store.place_slot(names[1], "b", until_ms, 2, "k")
        assert await take(2) == Slot(taken=True)
        await store.place_slot(names[2], "a", until_ms, 2, "k")
        # One by one now, away from what is full.
        assert await take(3) == Slot(taken=True, avoid=("a",))
        assert not await take(4)
        await store.place_slot(names[3], "a", until_ms, 2, "k")
        # It came there all the same: those like it are held, others are not.
        assert await take(4) == Slot(taken=False, held_by="a")
        assert await take(4, "other") == Slot(taken=True, avoid=("a",))
        await store.free_slot(names[4])
        await store.free_slot(names[0])
        assert await take(5) == Slot(taken=False, held_by="a")
        await store.free_slot(names[2])
        assert await take(5) == Slot(taken=True)

    async def test_starts_that_avoid_a_full_node_go_faster_while_they_are_placed_elsewhere(
        self, store: Store, now_ms: Now
    ) -> None:
        until_ms = now_ms() + 60_000
        names = [f"sb-{number}" for number in range(16)]
        for name in names:
            await starting(store, name)

        async def take(number: int, key: str = "k") -> Slot:
            return await store.take_slot(names[number], 16, until_ms, 4, key)

        for number in range(4):
            await store.place_slot(names[number], "a", until_ms, 4, "k")
        # One at a time for each key; one more after each that was placed elsewhere.
        assert await take(4) == Slot(taken=True, avoid=("a",))
        assert await take(5) == Slot(taken=False)
        assert await take(6, "other")
        await store.place_slot(names[4], "b", until_ms, 4, "k")
        await store.place_slot(names[6], "c", until_ms, 4, "other")
        assert [bool(await take(number)) for number in (7, 8, 9)] == [True, True, False]
        # It comes to the full node: one at a time again, for all keys, and those like it not at all.
        await store.place_slot(names[7], "a", until_ms, 4, "k")
        assert await take(9) == Slot(taken=False, held_by="a")
        assert await take(10, "other")
        assert not await take(11, "other")

    async def test_a_slow_node_is_avoided_before_it_is_full(self, store: Store, advance: Advance, now_ms: Now) -> None:
        until_ms = now_ms() + 60_000
        names = [f"sb-{number}" for number in range(8)]
        for name in names:
            await starting(store, name)
        for number in range(3):
            await store.place_slot(names[number], "a", until_ms, 4, "k")
        assert await store.take_slot(names[3], 16, until_ms, 4, "k") == Slot(taken=True)
        assert await store.take_slot(names[4], 16, until_ms, 4, "k") == Slot(taken=False)
        await advance(6)
        assert await store.take_slot(names[4], 16, until_ms, 4, "k") == Slot(taken=True, avoid=("a",))
        # As many without a node as it takes yet avoid nothing.
        await store.place_slot(names[4], "b", until_ms, 4, "k")
        await store.place_slot(names[3], "b", until_ms, 4, "k")
        assert await store.take_slot(names[5], 16, until_ms, 4, "k") == Slot(taken=True)
        assert await store.take_slot(names[6], 16, until_ms, 4, "k") == Slot(taken=True, avoid=("a",))

    async def test_one_that_waited_for_a_node_counts_where_it_comes_to_and_holds_nobody(
        self, store: Store, now_ms: Now
    ) -> None:
        until_ms = now_ms() + 60_000
        for number in range(4):
            one = await starting(store, f"sb-{number}")
        for number in range(3):
            await store.place_slot(f"sb-{number}", "a", until_ms, 2, "k")
        assert await store.take_slot("sb-3", 8, until_ms, 2, "k") == Slot(taken=True, avoid=("a",))
        await store.free_slot("sb-3")
        # Nothing for a start that is over.
        assert await store.replace(replace(one, state=State.RUNNING, version=2, ready_at_ms=1), 1)
        await store.place_slot("sb-3", "b", until_ms, 2, "k")
        assert await store.take_slot("sb-4", 4, until_ms, 2, "k")
        assert not await store.take_slot("sb-5", 4, until_ms, 2, "k")

    async def test_a_slot_lapses(self, store: Store, advance: Advance, now_ms: Now) -> None:
        assert await store.take_slot("sb-1", 1, now_ms() + 60_000)
        await advance(61)
        assert await store.take_slot("sb-2", 1, now_ms() + 60_000)

    async def test_where_all_nodes_would_be_avoided_starts_go_one_at_a_time(
        self, store: Store, advance: Advance, now_ms: Now
    ) -> None:
        until_ms = now_ms() + 60_000
        for number in range(8):
            await starting(store, f"sb-{number}")
        for number in range(6):
            await store.place_slot(f"sb-{number}", "ab"[number % 2], until_ms, 4, "k")
        await advance(6)
        assert await store.take_slot("sb-6", 8, until_ms, 4, "k") == Slot(taken=True)
        assert await store.take_slot("sb-7", 8, until_ms, 4, "k") == Slot(taken=False)

    async def test_starts_beside_a_full_node_never_bring_it_to_more_than_twice_its_limit(
        self, store: Store, now_ms: Now
    ) -> None:
        until_ms = now_ms() + 60_000
        for number in range(9):
            await starting(store, f"sb-{number}")
        for number in range(6):
            await store.place_slot(f"sb-{number}", "a", until_ms, 4, "k")
        taken = [bool(await store.take_slot(f"sb-{number}", 16, until_ms, 4, f"k{number}")) for number in (6, 7, 8)]
        assert taken == [True, True, False]
