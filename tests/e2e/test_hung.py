"""A sandbox whose kernel hangs: calls fail typed, it ends by itself, no delete waits for it, its node is told of."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest

from rollbox import Client, Sandbox
from rollbox.errors import SandboxError, SandboxLost, UpstreamTimeout
from tests.support.faults import signal_kernel
from tests.support.images import IMAGE
from tests.support.installed import Installed, kubectl, objects, own_cluster
from tests.support.waiting import until

# Three rounds of questions, each with the time that two unanswered ones take.
LOST_WITHIN_S = 240.0
# The node has two minutes to stop it, and the operator looks every half.
TOLD_WITHIN_S = 300.0


@pytest.mark.timeout(900)
async def test_a_hung_sandbox_ends_by_itself_and_its_node_keeps_its_room(
    stack: Installed, client: Client, shared: Sandbox
) -> None:
    if not own_cluster():
        pytest.skip("a given cluster's processes are not ours to stop")
    hung, other = await asyncio.gather(*(client.create(IMAGE, memory="128Mi") for _ in range(2)))
    await signal_kernel(hung.id, signal.SIGSTOP)
    try:
        with pytest.raises(SandboxError) as failed:
            async with asyncio.timeout(60):
                await hung.exec("true")
        assert failed.value.is_infra
        # Its owner need not wait for anything.
        async with asyncio.timeout(10):
            await other.delete()
        await until(lambda: _ended(client, hung.id), LOST_WITHIN_S)
        record = await client.get(hung.id)
        assert record.end is not None
        assert record.end.cause == "sandbox_lost"
        assert "has answered neither the control plane nor a gateway" in record.end.detail
        with pytest.raises(SandboxLost):
            await hung.exec("true")
        with pytest.raises(UpstreamTimeout, match="has ended and its quota is free"):
            await hung.delete(wait=True, wait_timeout=5)
        assert (await shared.exec("echo on")).stdout == "on\n"
        pod = await _pod(stack, hung.id)
        assert pod is not None, "its room is to be counted for as long as it runs"
        assert "deletionTimestamp" in pod["metadata"]
        async with await client.create(IMAGE, memory="128Mi") as fresh:
            assert (await fresh.exec("echo still taken in")).ok
        await until(lambda: _told(hung.id), TOLD_WITHIN_S)
    finally:
        await signal_kernel(hung.id, signal.SIGCONT)
    await hung.delete(wait=True, wait_timeout=120)
    assert await _pod(stack, hung.id) is None


async def test_a_hung_sandbox_is_deleted_at_once(stack: Installed, client: Client) -> None:
    if not own_cluster():
        pytest.skip("a given cluster's processes are not ours to stop")
    sandbox = await client.create(IMAGE, memory="128Mi")
    await signal_kernel(sandbox.id, signal.SIGSTOP)
    try:
        async with asyncio.timeout(10):
            await sandbox.delete()
        assert (await client.get(sandbox.id)).state == "ending"
    finally:
        await signal_kernel(sandbox.id, signal.SIGCONT)
    await sandbox.delete(wait=True, wait_timeout=120)


async def _ended(client: Client, sandbox_id: str) -> bool:
    await asyncio.sleep(0.5)
    return (await client.get(sandbox_id)).end is not None


async def _pod(stack: Installed, name: str) -> dict[str, Any] | None:
    pods = await objects("pods", "-n", stack.sandboxes)
    return next((pod for pod in pods if pod["metadata"]["name"] == name), None)


async def _told(name: str) -> bool:
    """Whether the node's events name it."""
    await asyncio.sleep(0.5)
    chosen = ("--field-selector", "reason=SandboxNotStopped,involvedObject.kind=Node")
    return name in await kubectl("get", "events", "-n", "default", *chosen, "-o", "jsonpath={.items[*].message}")
