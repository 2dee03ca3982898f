"""The end of a control plane does not wait for an engine that never answers."""

import asyncio

from tests.support.fake_cluster import FakeCluster
from tests.support.world import OWNER, SPEC, world


async def test_a_stop_that_hangs_does_not_hold_the_end_back() -> None:
    cluster = FakeCluster(stop_s=3600)
    loop = asyncio.get_running_loop()
    async with world(cluster) as plane:
        sandbox = (await plane.service.create(OWNER, SPEC)).sandbox
        delete = asyncio.create_task(plane.service.delete(OWNER, sandbox.id))
        await asyncio.sleep(1)
        left_s = loop.time()
    assert loop.time() - left_s < 11
    assert list(cluster.held) == [sandbox.id]
    await asyncio.wait([delete])
    assert delete.cancelled()
