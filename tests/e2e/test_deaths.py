"""The ways in which a sandbox can die on a real cluster: the waiting call fails at once, typed, and the cause stays."""

from __future__ import annotations

import asyncio
import json
import signal

import pytest

from controlplane.cluster.kubernetes.marks import SIDECAR
from rollbox import Client
from rollbox.errors import (
    CapacityUnavailable,
    DiskFull,
    OomKilled,
    SandboxError,
    SandboxEvicted,
    SandboxLost,
    Unsupported,
)
from tests.support.faults import signal_kernel
from tests.support.images import IMAGE
from tests.support.installed import Installed, kubectl, run
from tests.support.waiting import until, waiting

EAT = "held = []\nwhile True: held.append(b'x' * 2**24)"


@pytest.mark.core
async def test_a_memory_bomb_ends_as_oom_killed(client: Client) -> None:
    async with await client.create(IMAGE, memory="256Mi") as sandbox:
        async with asyncio.timeout(60):
            result = await sandbox.exec(["python3", "-c", EAT])
        assert result.end == "oom_killed"
        assert result.oom_killed
        # Under gVisor the pod is one process: the sandbox went with it, and says so.
        with pytest.raises(OomKilled) as ended:
            await sandbox.exec("true")
        assert not ended.value.is_infra
        assert not ended.value.mask_sample
        record = await client.get(sandbox.id)
        assert record.end is not None
        assert record.end.cause == "oom_killed"


async def test_a_death_by_memory_says_what_of_it_were_files(stack: Installed, client: Client) -> None:
    async with await client.create(IMAGE, memory="256Mi") as sandbox, waiting(sandbox):
        await sandbox.exec("head -c 150M /dev/zero > /dev/shm/data", check=True)

        async def logged() -> bool:
            said = await kubectl("logs", sandbox.id, "-n", stack.sandboxes, "-c", SIDECAR, "--tail=-1")
            return f"event=memory_files bytes={150 << 20}\n" in said

        # As the sidecar looks by itself; what is written in the second before the end stays unknown.
        await until(logged)
        await sandbox.exec(["python3", "-c", EAT])
        with pytest.raises(OomKilled, match="150 MiB of it were files in /dev/shm"):
            await sandbox.exec("true")
        record = await client.get(sandbox.id)
        assert record.end is not None
        assert "150 MiB of it were files in /dev/shm" in record.end.detail


async def test_a_full_disk_ends_as_disk_full(client: Client) -> None:
    async with await client.create(IMAGE, memory="512Mi", disk="64Mi") as sandbox:
        with pytest.raises(DiskFull) as ended:
            async with asyncio.timeout(110):
                await sandbox.exec("head -c 300000000 /dev/zero > /var/tmp/big; sleep 600")
        assert not ended.value.is_infra
        assert not ended.value.mask_sample


@pytest.mark.core
async def test_a_pod_deleted_from_outside_is_sandbox_lost(stack: Installed, client: Client) -> None:
    async with await client.create(IMAGE, memory="128Mi") as sandbox, waiting(sandbox) as call:
        await kubectl("delete", "pod", sandbox.id, "-n", stack.sandboxes, "--wait=false")
        with pytest.raises(SandboxLost) as lost:
            async with asyncio.timeout(20):
                await call
        assert lost.value.is_infra
        assert lost.value.mask_sample
        with pytest.raises(SandboxLost):
            await sandbox.exec("true")


async def test_an_eviction_is_told_as_one(stack: Installed, client: Client) -> None:
    """As a drain evicts, which would take the node from the other tests too."""
    async with await client.create(IMAGE, memory="128Mi") as sandbox, waiting(sandbox) as call:
        meta = {"name": sandbox.id, "namespace": stack.sandboxes}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
        path = f"/api/v1/namespaces/{stack.sandboxes}/pods/{sandbox.id}/eviction"
        await run("kubectl", "create", "--raw", path, "-f", "-", stdin=json.dumps(body).encode())
        with pytest.raises(SandboxEvicted) as evicted:
            async with asyncio.timeout(30):
                await call
        assert evicted.value.is_infra
        assert evicted.value.mask_sample


@pytest.mark.core
async def test_a_container_killed_inside_the_node_is_noticed(client: Client) -> None:
    """`kill -9 -1` from inside cannot; the whole gVisor sandbox killed from the node can."""
    async with await client.create(IMAGE, memory="128Mi") as sandbox, waiting(sandbox) as call:
        await signal_kernel(sandbox.id, signal.SIGKILL)
        with pytest.raises(SandboxLost) as lost:
            async with asyncio.timeout(60):
                await call
        assert lost.value.is_infra
        assert lost.value.mask_sample


async def test_an_image_from_a_registry_that_does_not_answer(client: Client) -> None:
    with pytest.raises(SandboxError) as refused:
        async with asyncio.timeout(60):
            await client.create("127.0.0.1:9/nobody/listens:1")
    assert refused.value.code == "image_pull_failed"
    assert refused.value.is_infra
    assert refused.value.mask_sample


async def test_what_no_node_can_hold_is_refused_at_once(client: Client) -> None:
    wishes = ({"cpu": (900, 1000)}, {"memory": ("3Ti", "4Ti")}, {"gpu": 1}, {"node_selector": {"no-such": "label"}})
    for wish in wishes:
        with pytest.raises(Unsupported, match="gpu" if "gpu" in wish else "node") as refused:
            async with asyncio.timeout(10):
                await client.create(IMAGE, **wish)
        assert not refused.value.is_infra
        assert refused.value.mask_sample


@pytest.mark.disrupts
async def test_the_quota_of_the_namespace_is_named(stack: Installed, client: Client) -> None:
    quota = ("quota", "test-full", "-n", stack.sandboxes)

    async def create_until_refused() -> None:
        # The API server hears of a quota behind: what it lets in before is not what this is about.
        async with asyncio.timeout(60):
            while True:
                await (await client.create(IMAGE)).delete(wait=True)

    await kubectl("create", *quota, "--hard=pods=0")
    try:
        with pytest.raises(CapacityUnavailable, match="test-full is used up"):
            await create_until_refused()
    finally:
        await kubectl("delete", *quota)
