"""A node whose kubelet falls silent: a start there, which nobody can try, ends when Kubernetes says so, not before.

Its kubelet is this test.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime

import pytest

from rollbox import Client
from rollbox.errors import NodeLost
from tests.support.images import IMAGE
from tests.support.installed import Installed, kubectl, objects, run
from tests.support.waiting import until

GHOST = "drain-ghost"
LABELS = {"drain-test": "ghost"}
RENEWS_EVERY_S = 5.0
ROOM = {"cpu": "2", "memory": "4Gi", "ephemeral-storage": "20Gi", "pods": "20"}


@pytest.mark.alone
@pytest.mark.timeout(300)
async def test_a_start_on_a_silent_node_is_lost_when_kubernetes_says_so(stack: Installed, client: Client) -> None:
    async with _ghost() as renewing:
        creating = asyncio.create_task(
            client.create(IMAGE, memory="64Mi", cpu=(0.01, 1), node_selector=LABELS, start_timeout=150)
        )
        try:
            await until(lambda: _placed(stack))
            renewing.cancel()
            began_s = time.monotonic()
            with pytest.raises(NodeLost):
                await creating
            took_s = time.monotonic() - began_s
        finally:
            creating.cancel()
        print(f"lost {took_s:.1f} s after its last word")
        assert await _ready() == "Unknown"
    await until(lambda: _no_pods(stack))


@asynccontextmanager
async def _ghost() -> AsyncIterator[asyncio.Task[None]]:
    """A node that renews its lease until the task is cancelled, and starts nothing."""
    hostname = {"kubernetes.io/hostname": GHOST, "kubernetes.io/os": "linux"}
    about = {"name": GHOST, "labels": {**LABELS, **hostname}}
    await _create({"apiVersion": "v1", "kind": "Node", "metadata": about})
    try:
        ready = {"type": "Ready", "status": "True", "reason": "Played", "lastHeartbeatTime": _now()}
        status = {"status": {"conditions": [ready], "capacity": ROOM, "allocatable": ROOM}}
        change = ("--subresource=status", "--type=merge", "-p", json.dumps(status))
        await kubectl("patch", "node", GHOST, *change)
        renewing = asyncio.create_task(_renew())
        try:
            yield renewing
        finally:
            renewing.cancel()
            with suppress(asyncio.CancelledError):
                await renewing
    finally:
        await kubectl("delete", "node", GHOST, "--ignore-not-found", "--wait=false")
        await kubectl("delete", "lease", GHOST, "-n", "kube-node-lease", "--ignore-not-found", "--wait=false")


async def _renew() -> None:
    about = {"name": GHOST, "namespace": "kube-node-lease"}
    spec = {"holderIdentity": GHOST, "leaseDurationSeconds": 40}
    while True:
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": about}
        renewed = {**lease, "spec": {**spec, "renewTime": _now()}}
        await run("kubectl", "apply", "-f", "-", stdin=json.dumps(renewed).encode())
        await asyncio.sleep(RENEWS_EVERY_S)


async def _create(thing: dict[str, object]) -> None:
    await run("kubectl", "create", "-f", "-", stdin=json.dumps(thing).encode())


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


async def _ready() -> str:
    (ghost,) = [one for one in await objects("nodes") if one["metadata"]["name"] == GHOST]
    return next(str(one["status"]) for one in ghost["status"]["conditions"] if one["type"] == "Ready")


async def _on_ghost(stack: Installed) -> int:
    await asyncio.sleep(0.3)
    pods = await objects("pods", "-n", stack.sandboxes)
    return sum(pod["spec"].get("nodeName") == GHOST for pod in pods)


async def _placed(stack: Installed) -> bool:
    return await _on_ghost(stack) > 0


async def _no_pods(stack: Installed) -> bool:
    return await _on_ghost(stack) == 0
