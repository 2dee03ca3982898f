"""Use that is counted wrong is right again within seconds, whoever has to see to it, and nobody is left in the dark."""

import asyncio

from structlog.typing import EventDict

from controlplane.model import Usage
from tests.support.fake_cluster import FakeCluster
from tests.support.shared_store import SharedMemory
from tests.support.virtual_time import VirtualClock
from tests.support.world import OWNER, SPEC, world

METRIC = "rollbox_quota_miscounts_total"
# One round is over, and another replica takes the round over from one that has died.
WITHIN_S, WITHOUT_ITS_HOLDER_S = 6, 20


def miscount(core: SharedMemory) -> None:
    """Counts a sandbox that there is not."""
    core.memory._used[OWNER] = core.memory._used.get(OWNER, Usage()) + Usage(1, 100, 1 << 28)


async def test_a_wrong_count_is_put_right_told_and_counted(said: list[EventDict]) -> None:
    core = SharedMemory(VirtualClock())
    async with world(FakeCluster(annotates_behind=True), store=core.view("a")) as a:
        await a.create(OWNER, SPEC)
        there = await a.service.quota_use(OWNER)
        await asyncio.sleep(2 * WITHIN_S)
        assert a.deps.metrics.registry.get_sample_value(METRIC) == 0
        miscount(core)
        await asyncio.sleep(WITHIN_S)
        assert (await a.service.quota_use(OWNER)).used == there.used
        assert a.deps.metrics.registry.get_sample_value(METRIC) == 1
    (line,) = [one for one in said if one["log_level"] == "error"]
    assert (line["owner"], line["counted"]["sandboxes"], line["there"]["sandboxes"]) == (OWNER, 2, 1)


async def test_another_replica_counts_when_the_one_that_did_has_died() -> None:
    core, cluster = SharedMemory(VirtualClock()), FakeCluster(annotates_behind=True)
    async with world(cluster, store=core.view("a")) as a:
        await asyncio.sleep(1)
        async with world(cluster, store=core.view("b")) as b:
            for task in a.service._core._loops:
                task.cancel()
            miscount(core)
            await asyncio.sleep(WITHOUT_ITS_HOLDER_S)
            assert (await b.service.quota_use(OWNER)).used == Usage()


async def test_what_is_counted_too_low_is_put_right_too() -> None:
    core = SharedMemory(VirtualClock())
    async with world(FakeCluster(annotates_behind=True), store=core.view("a")) as a:
        await a.create(OWNER, SPEC)
        core.memory._used.clear()
        await asyncio.sleep(WITHIN_S)
        assert (await a.deps.store.usage(OWNER)).sandboxes == (await a.deps.store.usage(None)).sandboxes == 1
