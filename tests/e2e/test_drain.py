"""The cluster's node is drained, its sandboxes are told, and it is taken back; a spot notice is a drain too."""

from __future__ import annotations

import asyncio
import time

import pytest

from rollbox import Client, Node, Sandbox
from rollbox.errors import Conflict, SandboxEvicted
from tests.support.images import IMAGE
from tests.support.installed import Installed, kubectl
from tests.support.waiting import until, waiting

DEADLINE_S = 20.0
POOL = "drained"
SPOT = "aws-node-termination-handler/spot-itn"


@pytest.mark.alone
@pytest.mark.timeout(480)
async def test_a_node_is_drained_told_and_taken_back(stack: Installed, client: Client) -> None:
    await client.set_pool(POOL, IMAGE, 1, cpu=(0.05, 1), memory=("128Mi", "128Mi"))
    name = (await client.nodes())[0].name
    try:
        await until(lambda: _warm(client, name, 1))
        # Of another size than the pool's.
        kept = await client.create(IMAGE, memory="160Mi")
        drained = await client.drain_node(name, 300)
        assert drained.drain is not None
        assert drained.state == "draining"
        await until(lambda: _warm(client, name, 0))
        await until(lambda: _told(kept))
        assert kept.record.draining_at_ms == drained.drain.until_ms
        # What runs there runs on.
        assert (await kept.exec("echo on")).stdout == "on\n"
        assert (await client.undrain_node(name)).state == "ready"
        await until(lambda: _untold(kept))
        # Its pool fills again, since the node takes sandboxes again.
        await until(lambda: _warm(client, name, 1))
        async with waiting(kept) as call:
            began_s = time.monotonic()
            await client.drain_node(name, DEADLINE_S)
            with pytest.raises(SandboxEvicted) as ended:
                async with asyncio.timeout(DEADLINE_S + 30):
                    await call
            print(f"ended {time.monotonic() - began_s:.1f} s after a drain of {DEADLINE_S:.0f} s was asked for")
        assert ended.value.mask_sample
        assert ended.value.is_infra
        assert ended.value.retry == "new_sandbox"
        end = (await client.get(kept.id)).end
        assert end is not None
        assert end.by == "drain"
    finally:
        await client.remove_pool(POOL)
        await client.undrain_node(name)
    node = await client.node(name)
    assert (node.state, node.drain) == ("ready", None)


@pytest.mark.alone
@pytest.mark.timeout(240)
async def test_a_notice_is_a_drain_until_it_is_taken_off(stack: Installed, client: Client) -> None:
    name = (await client.nodes())[0].name
    async with await client.create(IMAGE, memory="128Mi") as sandbox:
        await kubectl("taint", "node", name, f"{SPOT}=e2e:NoSchedule")
        try:
            await until(lambda: _told(sandbox))
            node = await client.node(name)
            assert node.drain is not None
            assert (node.state, node.drain.by) == ("draining", SPOT)
            # Five seconds of the two minutes are for the ends to be told.
            assert node.drain.until_ms - node.drain.since_ms == 115_000
            with pytest.raises(Conflict, match="spot"):
                await client.undrain_node(name)
        finally:
            await kubectl("taint", "node", name, f"{SPOT}-")
        await until(lambda: _untold(sandbox))


async def _warm(client: Client, name: str, count: int) -> Node | None:
    await asyncio.sleep(0.3)
    node = await client.node(name)
    return node if node.warm == count else None


async def _told(sandbox: Sandbox) -> bool:
    await sandbox.refresh()
    return sandbox.draining_at is not None


async def _untold(sandbox: Sandbox) -> bool:
    await sandbox.refresh()
    return sandbox.draining_at is None
