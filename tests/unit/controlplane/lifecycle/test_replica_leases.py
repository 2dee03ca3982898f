"""What one replica does for all: its own for as long as it works, another's when it hangs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from controlplane.lifecycle.replicas.loops import HERE_FOR_MS, TURN_WITHIN_S
from tests.support.fake_cluster import FakeCluster
from tests.support.shared_store import SharedMemory
from tests.support.virtual_time import VirtualClock
from tests.support.world import OWNER, SPEC, World, world


@asynccontextmanager
async def pair(cluster: FakeCluster) -> AsyncIterator[tuple[SharedMemory, World, World]]:
    """Two replicas on one store; the first of them looks for orphans."""
    core = SharedMemory(VirtualClock())
    async with world(cluster, store=core.view("a")) as a:
        await asyncio.sleep(1)
        async with world(cluster, store=core.view("b")) as b:
            yield core, a, b


async def hang() -> None:
    await asyncio.Event().wait()


async def test_what_takes_long_costs_a_replica_neither_turns_nor_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pair(FakeCluster(annotates_behind=True)) as (core, a, b):
        monkeypatch.setattr(a.service._core.ledger, "correct", hang)
        await asyncio.sleep(5 * HERE_FOR_MS / 1000)
        for lease in ("replica:a", "orphans", "sweep"):
            holder, until_ms = vars(core.memory)["_leases"][lease]
            assert (holder, until_ms > core.clock.now_ms()) == ("a", True)
        assert b.service._core.replicas._held_leases.isdisjoint({"orphans", "sweep"})


async def test_a_turn_whose_work_hangs_goes_to_another_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pair(cluster := FakeCluster(annotates_behind=True)) as (_, a, b):
        sandbox = (await b.create(OWNER, SPEC)).sandbox
        monkeypatch.setattr(a.service._core._upkeep._comparison._observer, "run", lambda _: hang())
        cluster.held.clear()
        await asyncio.sleep(TURN_WITHIN_S + 120)
        assert "orphans" in b.service._core.replicas._held_leases
        end = (await b.service.get(OWNER, sandbox.id)).end
        assert end is not None
        assert end.cause == "sandbox_lost"
