"""The store of many replicas without a Redis, which other tests use, passes the suites of the real one."""

import asyncio

import pytest

from tests.contract.replicas_suite import Pair, ReplicasSuite
from tests.contract.store_factory import Advance, Lose, Now
from tests.contract.store_suite import StoreSuite
from tests.support.refilled import refilled
from tests.support.shared_store import SharedMemory, SharedStore
from tests.support.virtual_time import VirtualClock


@pytest.fixture
def memory() -> SharedMemory:
    return SharedMemory(VirtualClock())


@pytest.fixture
async def pair(memory: SharedMemory) -> Pair:
    views = [memory.view("r0"), memory.view("r1")]
    await refilled(views[0])
    return views


@pytest.fixture
def now_ms() -> Now:
    return VirtualClock().now_ms


@pytest.fixture
def advance() -> Advance:
    return asyncio.sleep


class TestSharedStore(StoreSuite):
    """See `StoreSuite`."""

    @pytest.fixture
    def store(self, pair: list[SharedStore]) -> SharedStore:
        return pair[0]

    @pytest.fixture
    def lose(self, memory: SharedMemory) -> Lose:
        async def lose() -> None:
            memory.intact = False

        return lose


class TestSharedReplicas(ReplicasSuite):
    """See `ReplicasSuite`."""

    @pytest.fixture
    def empty(self, memory: SharedMemory) -> Lose:
        async def empty() -> None:
            memory.empty()

        return empty
