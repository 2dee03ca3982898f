"""What every store must do; a module of tests subclasses this and provides `store` and `advance`.

Times are the store's own: `advance(seconds)` lets them pass.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from controlplane.model import EndCause, Sandbox, SandboxSpec, State
from controlplane.store import Admitted, Full, Known, Store, Withdrawn

Advance = Callable[[float], Awaitable[None]]
DAY_S = 24 * 3600


def sandbox(
    sandbox_id: str,
    *,
    key: str | None = None,
    owner: str = "alice",
    labels: dict[str, str] | None = None,
    at_ms: int = 0,
) -> Sandbox:
    """A new record."""
    spec = SandboxSpec(image="a", labels=labels or {})
    return Sandbox(sandbox_id, owner, spec, at_ms, at_ms + 1, "f", idempotency_key=key)


def ended(before: Sandbox) -> Sandbox:
    """The record after its end."""
    end = EndCause("deleted", "d", 1, "alice")
    return replace(before, state=State.ENDED, end=end, version=before.version + 1)


class StoreSuite:
    """The conformance suite."""

    async def test_what_is_admitted_is_on_record(self, store: Store) -> None:
        new = sandbox("sb-1")
        assert await store.admit(new, 0) == Admitted(new)
        assert await store.get("sb-1") == new
        assert await store.get("sb-2") is None

    async def test_a_known_key_admits_nothing(self, store: Store) -> None:
        first = sandbox("sb-1", key="k")
        await store.admit(first, 0)
        assert await store.admit(sandbox("sb-2", key="k"), 0) == Known(first)
        assert await store.get("sb-2") is None
        assert await store.by_key("alice", "k") == first

    async def test_keys_belong_to_owners(self, store: Store) -> None:
        await store.admit(sandbox("sb-1", key="k"), 0)
        assert isinstance(await store.admit(sandbox("sb-2", key="k", owner="bob"), 0), Admitted)

    async def test_a_known_key_is_answered_even_when_there_is_no_room(self, store: Store) -> None:
        first = sandbox("sb-1", key="k")
        await store.admit(first, 1)
        assert await store.admit(sandbox("sb-2", key="k"), 1) == Known(first)
        assert await store.admit(sandbox("sb-3"), 1) == Full(1, 1)

    async def test_an_end_makes_room(self, store: Store) -> None:
        first = sandbox("sb-1")
        await store.admit(first, 1)
        assert await store.replace(replace(first, state=State.ENDING, version=1), 0)
        assert isinstance(await store.admit(sandbox("sb-2"), 1), Admitted)

    async def test_replace_compares_versions(self, store: Store) -> None:
        first = sandbox("sb-1")
        await store.admit(first, 0)
        assert await store.replace(replace(first, version=1, kernel="a"), 0)
        assert not await store.replace(replace(first, version=1, kernel="b"), 0)
        assert not await store.replace(sandbox("sb-2"), 0)
        found = await store.get("sb-1")
        assert found is not None
        assert found.kernel == "a"

    async def test_a_key_that_was_given_up_is_free(self, store: Store) -> None:
        first = sandbox("sb-1", key="k")
        await store.admit(first, 0)
        await store.replace(replace(ended(first), idempotency_key=None), 0)
        assert await store.by_key("alice", "k") is None
        assert isinstance(await store.admit(sandbox("sb-2", key="k"), 0), Admitted)

    async def test_a_withdrawn_key_admits_nothing_for_a_day(self, store: Store, advance: Advance) -> None:
        assert await store.withdraw("alice", "k") is None
        assert await store.admit(sandbox("sb-1", key="k"), 0) == Withdrawn()
        assert isinstance(await store.admit(sandbox("sb-2", key="k", owner="bob"), 0), Admitted)
        await advance(DAY_S + 1)
        assert isinstance(await store.admit(sandbox("sb-3", key="k"), 0), Admitted)

    async def test_a_taken_key_cannot_be_withdrawn(self, store: Store) -> None:
        first = sandbox("sb-1", key="k")
        await store.admit(first, 0)
        assert await store.withdraw("alice", "k") == first
        assert isinstance(await store.admit(sandbox("sb-2", key="k"), 0), Known)

    async def test_a_tombstone_and_its_key_stay_for_a_day(self, store: Store, advance: Advance) -> None:
        first = sandbox("sb-1", key="k")
        await store.admit(first, 0)
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
        await store.restore(found)
        await store.restore(found)
        assert await store.admit(sandbox("sb-2"), 1) == Full(1, 1)
        assert await store.by_key("alice", "k") == found
        assert (await store.counts())[State.RUNNING] == 1

    async def test_find_filters_and_sorts_by_age(self, store: Store) -> None:
        old = sandbox("sb-b", labels={"x": "1", "y": "2"}, at_ms=1)
        new = sandbox("sb-a", labels={"x": "1"}, at_ms=2)
        other = sandbox("sb-c", owner="bob", labels={"x": "1"}, at_ms=0)
        for one in (new, other, old):
            await store.admit(one, 0)
        assert list(await store.find("alice", {})) == [old, new]
        assert list(await store.find("alice", {"x": "1", "y": "2"})) == [old]
        assert list(await store.find(None, {"x": "1"})) == [other, old, new]
        assert list(await store.find("alice", {}, {State.RUNNING})) == []

    async def test_counts_are_by_state(self, store: Store) -> None:
        first = sandbox("sb-1")
        await store.admit(first, 0)
        await store.admit(sandbox("sb-2"), 0)
        await store.replace(ended(first), 0)
        counts = await store.counts()
        assert (counts[State.REQUESTED], counts[State.ENDED], counts[State.RUNNING]) == (1, 1, 0)
