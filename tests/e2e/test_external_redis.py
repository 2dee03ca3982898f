"""A Redis that is not the chart's own, taken into use and given up again: running sandboxes outlive both."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from redis.asyncio import Redis

from rollbox import Client
from tests.support.images import IMAGE
from tests.support.installed import Installed, node_address, own_cluster
from tests.support.redis_server import redis_server
from tests.support.waiting import until

REBUILT_WITHIN_S = 60.0


@pytest.mark.disrupts
@pytest.mark.timeout(400)
async def test_an_external_redis_is_taken_into_use_and_given_up(
    stack: Installed, client: Client, tmp_path: Path
) -> None:
    if not own_cluster():
        pytest.skip("a given cluster's pods do not reach a server of this machine")
    async with await client.create(IMAGE, memory="128Mi") as sandbox:
        with redis_server(tmp_path, address=await node_address()) as url:
            await stack.upgrade(f"redis.url={url}")
            try:
                # Helm deletes the set; its pod goes behind that.
                await until(lambda: _none_of(stack, "redis"), REBUILT_WITHIN_S)
                await until(lambda: _listed(client, sandbox.id), REBUILT_WITHIN_S)
                assert (await sandbox.exec("echo still")).stdout == "still\n"
                async with await client.create(IMAGE, memory="128Mi") as fresh:
                    assert (await fresh.exec("echo new")).stdout == "new\n"
                    async with Redis.from_url(url) as redis:
                        assert await redis.exists(f"{{rollbox:{stack.release}}}:s:{fresh.id}")
            finally:
                await stack.rollback()
        await until(lambda: _listed(client, sandbox.id), REBUILT_WITHIN_S)
        assert (await sandbox.exec("echo still")).stdout == "still\n"


async def _none_of(stack: Installed, component: str) -> bool:
    return await stack.pods(component) == []


async def _listed(client: Client, sandbox_id: str) -> bool:
    await asyncio.sleep(0.2)
    return sandbox_id in {record.id for record in await client.list()}
