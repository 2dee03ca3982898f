"""The store in memory passes the suite of all stores, and stays bounded."""

import asyncio

import pytest

from controlplane.model import Limits
from controlplane.store import MemoryStore
from tests.contract.store_factory import Advance, Lose, Now, ended, sandbox
from tests.contract.store_suite import StoreSuite
from tests.support.refilled import refilled
from tests.support.virtual_time import VirtualClock


class TestMemoryStore(StoreSuite):
    """See `StoreSuite`."""

    @pytest.fixture
    async def store(self) -> MemoryStore:
        store = MemoryStore(VirtualClock())
        await refilled(store)
        return store

    @pytest.fixture
    def now_ms(self) -> Now:
        return VirtualClock().now_ms

    @pytest.fixture
    def advance(self) -> Advance:
        return asyncio.sleep

    @pytest.fixture
    def lose(self, store: MemoryStore) -> Lose:
        async def lose() -> None:
            store._intact = False

        return lose


async def test_there_are_never_more_tombstones_than_allowed() -> None:
    store = MemoryStore(VirtualClock(), max_tombstones=3)
    for number in range(10):
        one = sandbox(f"sb-{number}", key=f"k{number}")
        await store.admit(one, Limits())
        await store.replace(ended(one), 0)
    assert [one.id for one in await store.find("alice", {})] == ["sb-7", "sb-8", "sb-9"]
    assert await store.by_key("alice", "k0") is None


async def test_names_of_leases_that_lapsed_do_not_pile_up() -> None:
    store = MemoryStore(VirtualClock())
    for number in range(10):
        assert await store.lease(f"lease:{number}", "a", 1_000)
        await asyncio.sleep(2)
    assert len(store._leases) == 1
