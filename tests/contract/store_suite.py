"""What every store must do; a module of tests subclasses this and provides `store`, `now_ms`, `advance` and `lose`.

Times are the store's own: `advance(seconds)` lets them pass. `lose()` takes the mark of an intact store off. Stores are
handed out rebuilt, as after an open.
"""

from dataclasses import replace

from controlplane.model import GROUP, EndCause, Limits, State
from controlplane.store import Admitted, Due, Full, Known, RebuildTurn, Store, Withdrawn
from tests.contract.claims_suite import ClaimsSuite
from tests.contract.slots_suite import SlotsSuite
from tests.contract.store_factory import DAY_S, Advance, Lose, Now, ended, sandbox
from tests.support.refilled import refilled


class StoreSuite(ClaimsSuite, SlotsSuite):
    """The conformance suite."""

    async def test_what_is_admitted_is_on_record(self, store: Store) -> None:
        new = sandbox("sb-1")
        assert await store.admit(new, Limits()) == Admitted(new)
        assert await store.get("sb-1") == new
        assert await store.get("sb-2") is None

    async def test_a_known_key_admits_nothing(self, store: Store) -> None:
        first = sandbox("sb-1", key="k")
        await store.admit(first, Limits())
        assert await store.admit(sandbox("sb-2", key="k"), Limits()) == Known(first)
        assert await store.get("sb-2") is None
        assert await store.by_key("alice", "k") == first

    async def test_keys_belong_to_owners(self, store: Store) -> None:
        await store.admit(sandbox("sb-1", key="k"), Limits())
        assert isinstance(await store.admit(sandbox("sb-2", key="k", owner="bob"), Limits()), Admitted)

    async def test_a_known_key_is_answered_even_when_there_is_no_room(self, store: Store) -> None:
        first = sandbox("sb-1", key="k")
        await store.admit(first, Limits(1))
        assert await store.admit(sandbox("sb-2", key="k"), Limits(1)) == Known(first)
        assert await store.admit(sandbox("sb-3"), Limits(1)) == Full(1, 1)

    async def test_an_end_makes_room(self, store: Store) -> None:
        first = sandbox("sb-1")
        await store.admit(first, Limits(1))
        assert await store.replace(replace(first, state=State.ENDING, version=1), 0)
        assert isinstance(await store.admit(sandbox("sb-2"), Limits(1)), Admitted)

    async def test_ports_are_on_record(self, store: Store) -> None:
        first = sandbox("sb-1")
        await store.admit(first, Limits())
        after = first.with_port(8000, public=True, now_ms=5)
        assert await store.replace(after, 0)
        assert await store.get("sb-1") == after

    async def test_a_group_is_found_by_its_label_ended_ones_too(self, store: Store, advance: Advance) -> None:
        labelled = {GROUP: "g", "n": "1"}
        made = [sandbox(f"sb-{number}", labels=labelled, at_ms=number) for number in range(3)]
        others = [sandbox("sb-8", labels={GROUP: "h"}), sandbox("sb-9", owner="bob", labels=labelled)]
        for one in (*made, *others):
            await store.admit(one, Limits())
        for one in (made[0], made[2], *others):
            assert await store.replace(ended(one), 0)
        found = await store.find("alice", {GROUP: "g"})
        assert [(one.id, one.state) for one in found] == [
            ("sb-0", State.ENDED),
            ("sb-1", State.REQUESTED),
            ("sb-2", State.ENDED),
        ]
        assert [one.id for one in await store.find("alice", {GROUP: "g"}, {State.ENDED})] == ["sb-0", "sb-2"]
        assert await store.find("alice", {GROUP: "g", "n": "2"}) == []
        assert await store.find("alice", {GROUP: "none"}) == []
        assert {one.id for one in await store.find(None, labelled)} == {"sb-0", "sb-1", "sb-2", "sb-9"}
        await advance(DAY_S + 1)
        assert [one.id for one in await store.find("alice", {GROUP: "g"})] == ["sb-1"]

    async def test_a_page_has_the_newest_of_one_owner_and_counts_them_all(self, store: Store) -> None:
        for number in range(7):
            await store.admit(sandbox(f"sb-{number}", at_ms=1_000 + number), Limits())
        await store.admit(sandbox("sb-9", owner="bob", at_ms=5_000), Limits())
        assert await store.replace(ended(await store.get("sb-5") or sandbox("")), 0)
        live = {State.REQUESTED, State.RUNNING}
        page = await store.page("alice", live, 0, 3)
        assert [one.id for one in page.sandboxes] == ["sb-6", "sb-4", "sb-3"]
        assert page.counts == {**dict.fromkeys(State, 0), State.REQUESTED: 6, State.ENDED: 1}
        assert [one.id for one in (await store.page("alice", live, 4, 3)).sandboxes] == ["sb-1", "sb-0"]
        assert [one.id for one in (await store.page("alice", set(State), 0, 2)).sandboxes] == ["sb-6", "sb-5"]
        assert (await store.page("alice", live, 6, 3)).sandboxes == []
        assert (await store.page("nobody", live, 0, 3)).sandboxes == []

    async def test_pages_of_sandboxes_of_one_moment_have_each_of_them_once(self, store: Store) -> None:
        for number in range(9):
            await store.admit(sandbox(f"sb-{number}", at_ms=1_000), Limits())
        pages = [await store.page("alice", set(State), offset, 2) for offset in range(0, 10, 2)]
        found = [one.id for page in pages for one in page.sandboxes]
        assert sorted(found) == [f"sb-{number}" for number in range(9)]

    async def test_replace_compares_versions(self, store: Store) -> None:
        first = sandbox("sb-1")
        await store.admit(first, Limits())
        assert await store.replace(replace(first, version=1, kernel="a"), 0)
        assert not await store.replace(replace(first, version=1, kernel="b"), 0)
        assert not await store.replace(sandbox("sb-2"), 0)
        found = await store.get("sb-1")
        assert found is not None
        assert found.kernel == "a"

    async def test_a_key_that_was_given_up_is_free(self, store: Store) -> None:
        first = sandbox("sb-1", key="k")
        await store.admit(first, Limits())
        await store.replace(replace(ended(first), idempotency_key=None), 0)
        assert await store.by_key("alice", "k") is None
        assert isinstance(await store.admit(sandbox("sb-2", key="k"), Limits()), Admitted)

    async def test_a_withdrawn_key_admits_nothing_for_a_day(self, store: Store, advance: Advance) -> None:
        assert await store.withdraw("alice", "k") is None
        assert await store.admit(sandbox("sb-1", key="k"), Limits()) == Withdrawn()
        assert isinstance(await store.admit(sandbox("sb-2", key="k", owner="bob"), Limits()), Admitted)
        await advance(DAY_S + 1)
        assert isinstance(await store.admit(sandbox("sb-3", key="k"), Limits()), Admitted)

    async def test_a_key_that_a_call_has_withdrawn_is_any_other_calls(self, store: Store, advance: Advance) -> None:
        assert await store.withdraw("alice", "k", "one") is None
        mine = replace(sandbox("sb-1", key="k"), callers=("one/1",))
        assert await store.admit(mine, Limits()) == Withdrawn()
        assert await store.claim(mine, Limits()) == Withdrawn()
        assert await store.withdraw("alice", "k2", "one") is None
        assert await store.admit(replace(mine, idempotency_key="k2"), Limits()) == Withdrawn()
        others = replace(sandbox("sb-2", key="k"), callers=("two/1",))
        assert isinstance(await store.admit(others, Limits()), Admitted)
        assert await store.get("sb-2") == others
        assert await store.withdraw("alice", "k", "two") == others
        await advance(DAY_S + 1)
        assert isinstance(await store.admit(replace(mine, idempotency_key="k2"), Limits()), Admitted)

    async def test_who_wants_a_sandbox_is_kept(self, store: Store) -> None:
        first = replace(sandbox("sb-1", key="k"), callers=("one/1", "two/2"))
        await store.admit(first, Limits())
        left = replace(first, callers=(), abandoned_at_ms=7, version=1)
        assert await store.replace(left, 0)
        assert await store.get("sb-1") == left

    async def test_a_taken_key_cannot_be_withdrawn(self, store: Store) -> None:
        first = sandbox("sb-1", key="k")
        await store.admit(first, Limits())
        assert await store.withdraw("alice", "k") == first
        assert isinstance(await store.admit(sandbox("sb-2", key="k"), Limits()), Known)

    async def test_a_tombstone_and_its_key_stay_for_a_day(self, store: Store, advance: Advance) -> None:
        first = sandbox("sb-1", key="k")
        await store.admit(first, Limits())
        await advance(10 * DAY_S)
        await store.replace(ended(first), 0)
        await advance(DAY_S - 60)
        assert await store.get("sb-1") == ended(first)
        assert await store.by_key("alice", "k") == ended(first)
        await advance(120)
        assert await store.get("sb-1") is None
        assert await store.by_key("alice", "k") is None

    async def test_restore_counts_once(self, store: Store) -> None:
        found = replace(sandbox("sb-1", key="k"), state=State.RUNNING)
        assert await store.restore(found)
        assert not await store.restore(found)
        assert await store.admit(sandbox("sb-2"), Limits(1)) == Full(1, 1)
        assert await store.by_key("alice", "k") == found
        assert (await store.counts())[State.RUNNING] == 1

    async def test_find_filters_and_sorts_by_age(self, store: Store) -> None:
        old = sandbox("sb-b", labels={"x": "1", "y": "2"}, at_ms=1)
        new = sandbox("sb-a", labels={"x": "1"}, at_ms=2)
        other = sandbox("sb-c", owner="bob", labels={"x": "1"}, at_ms=0)
        for one in (new, other, old):
            await store.admit(one, Limits())
        assert list(await store.find("alice", {})) == [old, new]
        assert list(await store.find("alice", {"x": "1", "y": "2"})) == [old]
        assert list(await store.find(None, {"x": "1"})) == [other, old, new]
        assert list(await store.find("alice", {}, {State.RUNNING})) == []

    async def test_counts_are_by_state(self, store: Store) -> None:
        first = sandbox("sb-1")
        await store.admit(first, Limits())
        await store.admit(sandbox("sb-2"), Limits())
        await store.replace(ended(first), 0)
        counts = await store.counts()
        assert (counts[State.REQUESTED], counts[State.ENDED], counts[State.RUNNING]) == (1, 1, 0)

    async def test_restore_leaves_what_is_on_record(self, store: Store) -> None:
        first = sandbox("sb-1", key="k")
        await store.admit(first, Limits())
        running = replace(first, state=State.RUNNING, version=1, kernel="a")
        await store.replace(running, 0)
        assert not await store.restore(replace(first, state=State.STARTING))
        assert await store.get("sb-1") == running
        assert (await store.counts())[State.RUNNING] == 1

    async def test_restore_puts_a_later_moment_in_the_place_of_an_earlier_one(self, store: Store, lose: Lose) -> None:
        first = sandbox("sb-1", key="k")
        await store.admit(first, Limits())
        running = replace(first, state=State.RUNNING, version=2)
        assert not await store.restore(running), "an intact store knows better"
        await lose()
        assert await store.peek("sb-1") == first
        assert not await store.restore(replace(first, kernel="other")), "it is no later one"
        assert await store.restore(running)
        assert not await store.restore(replace(first, state=State.STARTING, version=3)), "no life goes back"
        await refilled(store)
        assert await store.get("sb-1") == await store.by_key("alice", "k") == running
        counts = await store.counts()
        assert (counts[State.RUNNING], counts[State.REQUESTED]) == (1, 0)
        assert (await store.usage("alice")).sandboxes == 1

    async def test_restore_takes_no_key_from_another(self, store: Store) -> None:
        first = sandbox("sb-1", key="k")
        await store.admit(first, Limits())
        await store.restore(replace(sandbox("sb-2", key="k"), state=State.RUNNING))
        assert await store.by_key("alice", "k") == first

    async def test_what_is_repeated_after_a_lost_answer_admits_nothing_twice(self, store: Store) -> None:
        first = sandbox("sb-1", key="k")
        await store.admit(first, Limits(1))
        await store.admit(first, Limits(1))
        assert (await store.counts())[State.REQUESTED] == 1

    async def test_ends_are_found_by_their_time(self, store: Store, advance: Advance, now_ms: Now) -> None:
        for number in range(3):
            one = sandbox(f"sb-{number}")
            await store.admit(one, Limits())
            end = EndCause("deleted", "d", now_ms(), "alice")
            await store.replace(replace(one, state=State.ENDED, version=1, end=end), 0)
            await advance(60)
        assert [one.id for one in await store.ended_since(0)] == ["sb-0", "sb-1", "sb-2"]
        assert [one.id for one in await store.ended_since(now_ms() - 90_000)] == ["sb-2"]

    async def test_a_lease_has_one_holder_until_it_lapses(self, store: Store, advance: Advance) -> None:
        assert await store.lease("sweep", "a", 100_000)
        assert not await store.lease("sweep", "b", 100_000)
        assert await store.lease("other", "b", 100_000)
        await advance(80)
        assert await store.lease("sweep", "a", 100_000)
        await advance(80)
        assert not await store.lease("sweep", "b", 100_000)
        await advance(30)
        assert await store.lease("sweep", "b", 100_000)
        assert not await store.lease("sweep", "a", 100_000)

    async def test_a_lease_can_be_given_back(self, store: Store) -> None:
        await store.lease("sweep", "a", 10_000)
        assert not await store.lease("sweep", "a", 0)
        assert await store.lease("sweep", "b", 10_000)

    async def test_a_note_has_one_writer_at_a_time_and_is_kept_for_its_time(
        self, store: Store, advance: Advance
    ) -> None:
        assert await store.note("a") == ""
        assert not await store.write_note("a", "one", 100_000, before="another")
        assert await store.write_note("a", "one", 100_000)
        assert not await store.write_note("a", "two", 100_000)
        assert [await store.note("a"), await store.note("b")] == ["one", ""]
        assert await store.write_note("a", "two\n", 100_000, before="one")
        assert not await store.write_note("a", "", 0, before="one")
        await advance(80)
        assert await store.write_note("a", "three", 100_000, before="two\n")
        await advance(80)
        assert await store.note("a") == "three"
        await advance(30)
        assert await store.note("a") == ""
        assert not await store.write_note("a", "", 0, before="three")
        assert await store.write_note("a", "four", 100_000)
        assert await store.write_note("a", "", 0, before="four")
        assert await store.note("a") == ""

    async def test_a_list_keeps_its_newest_lines_for_its_time(self, store: Store, advance: Advance) -> None:
        assert await store.lines("a", 10) == []
        await store.append("a", ["1", "2 x", "3"], 4, 100_000)
        await store.append("b", ["other"], 4, 100_000)
        await store.append("a", ['{"four": "\u00e4"}', "5"], 4, 100_000)
        assert await store.lines("a", 10) == ["2 x", "3", '{"four": "\u00e4"}', "5"]
        assert await store.lines("a", 2) == ['{"four": "\u00e4"}', "5"]
        assert await store.lines("b", 2) == ["other"]
        await advance(80)
        await store.append("a", ["6"], 1, 100_000)
        await advance(80)
        assert await store.lines("a", 10) == ["6"]
        assert await store.lines("b", 10) == []
        await advance(30)
        assert await store.lines("a", 10) == []

    async def test_what_is_due_is_told(self, store: Store, now_ms: Now) -> None:
        at_ms = now_ms()
        await store.lease(f"replica:{store.replica}", store.replica, 3_600_000)
        starting, running, ending = (sandbox(name, at_ms=at_ms) for name in ("sb-1", "sb-2", "sb-3"))
        for one in (starting, running, ending):
            await store.admit(replace(one, expires_at_ms=at_ms + 1_000_000), Limits())
        await store.replace(replace(running, state=State.RUNNING, version=1, expires_at_ms=at_ms + 50_000), 0)
        end = EndCause("deleted", "d", at_ms, "alice")
        await store.replace(replace(ending, state=State.ENDING, version=1, end=end), 0)
        assert _sets(await store.due(at_ms, at_ms - 1)) == (set(), set(), set(), set())
        assert _sets(await store.due(at_ms + 60_000, at_ms + 1)) == ({"sb-2"}, set(), {"sb-3"}, set())
        assert _sets(await store.due(at_ms + 120_000, 0)) == ({"sb-2"}, {"sb-1"}, set(), set())

    async def test_a_store_is_rebuilt_once(self, store: Store) -> None:
        rebuild = await store.claim_rebuild(1_000)
        assert rebuild.turn is RebuildTurn.INTACT
        assert await store.claim_rebuild(1_000) == rebuild


def _sets(due: Due) -> tuple[set[str], ...]:
    return tuple(set(ids) for ids in (due.expired, due.overdue, due.unconfirmed, due.abandoned))
