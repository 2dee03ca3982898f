"""A kubelet stops: deletes do not wait, sandboxes end as `node_lost` within seconds, and its return heals all."""

from __future__ import annotations

import asyncio

import pytest

from rollbox import Client
from rollbox.errors import NodeLost
from tests.support.faults import node_part, ready
from tests.support.images import IMAGE
from tests.support.installed import Installed, kubectl, objects, own_cluster
from tests.support.waiting import until, waiting

# Until Kubernetes itself takes a silent node for lost: its grace period is 50 s, or 40 in older versions.
DECLARED_WITHIN = "120s"
# The platform believes it 12 s later; the rest is for a busy machine.
TOLD_WITHIN_S = 30.0
BACK_WITHIN = "90s"


async def _nodes_are(ready: str, within: str) -> None:
    await kubectl("wait", "nodes", "--all", f"--for=condition=Ready={ready}", f"--timeout={within}")


@pytest.mark.alone
@pytest.mark.timeout(480)
async def test_a_lost_node_is_told_within_seconds_and_its_return_heals(stack: Installed, client: Client) -> None:
    if not own_cluster():
        pytest.skip("a given cluster's kubelet is not ours to stop")
    # Kubernetes takes the pods of a lost node out of their Services, and here that is all of them.
    gateways = await stack.component("gateway")
    gateway = next(pod["status"]["podIP"] for pod in gateways if "deletionTimestamp" not in pod["metadata"])
    async with Client(f"http://{gateway}:8080", stack.api_key) as direct:
        sandbox, another = await asyncio.gather(*(direct.create(IMAGE, memory="128Mi") for _ in range(2)))
        async with waiting(sandbox) as call:
            await node_part("stop", "kubelet")
            try:
                # What runs there runs on, and nobody waits for the kubelet.
                assert (await another.exec("echo on")).stdout == "on\n"
                async with asyncio.timeout(10):
                    await another.delete()
                await _nodes_are("Unknown", DECLARED_WITHIN)
                with pytest.raises(NodeLost) as lost:
                    async with asyncio.timeout(TOLD_WITHIN_S):
                        await call
                assert lost.value.is_infra
                assert lost.value.mask_sample
                with pytest.raises(NodeLost):
                    await sandbox.exec("true")
                # Nothing there will ever confirm it: what is left of both is deleted by force.
                await until(lambda: _gone(stack, sandbox.id, another.id))
            finally:
                await node_part("start", "kubelet")
                await _nodes_are("True", BACK_WITHIN)
    for component in ("redis", "controlplane", "gateway", "dns"):
        await ready(stack, component)
    record = await client.get(sandbox.id)
    assert record.end is not None
    assert record.end.cause == "node_lost"
    async with await client.create(IMAGE, memory="128Mi", start_timeout=120) as fresh:
        assert (await fresh.exec("echo back")).stdout == "back\n"
    await until(lambda: _gone(stack, sandbox.id))


async def _gone(stack: Installed, *ids: str) -> bool:
    await asyncio.sleep(0.5)
    return not {*ids} & {pod["metadata"]["name"] for pod in await objects("pods", "-n", stack.sandboxes)}
