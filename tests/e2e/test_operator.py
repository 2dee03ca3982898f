"""Maintenance: what nobody asks for any more goes, also while the control plane is away."""

from __future__ import annotations

import asyncio
import json

import pytest

from rollbox import Client
from tests.support.images import IMAGE
from tests.support.installed import Installed, kubectl, objects, run
from tests.support.waiting import until

# The operator gives the control plane a minute to take its own finalizer away, and looks twice a minute.
RELEASED_WITHIN_S = 150.0
ORPHAN_WITHIN_S = 200.0


async def _exists(stack: Installed, pod: str) -> bool:
    await asyncio.sleep(0.5)
    return pod in {one["metadata"]["name"] for one in await objects("pods", "-n", stack.sandboxes)}


async def _gone(stack: Installed, pod: str) -> bool:
    return not await _exists(stack, pod)


@pytest.mark.timeout(300)
async def test_a_pod_that_waits_for_a_control_plane_that_is_away_is_released(stack: Installed, client: Client) -> None:
    deployment = (f"deployment/{stack.release}-controlplane", "-n", stack.namespace)
    sandbox = await client.create(IMAGE, memory="128Mi")
    await kubectl("scale", *deployment, "--replicas=0")
    try:
        where = ("-n", stack.namespace, "-l", "app.kubernetes.io/component=controlplane")
        await kubectl("wait", "pods", *where, "--for=delete", "--timeout=120s")
        await kubectl("delete", "pod", sandbox.id, "-n", stack.sandboxes, "--wait=false")
        assert await _exists(stack, sandbox.id), "the finalizer must keep the pod until its cause is on record"
        await until(lambda: _gone(stack, sandbox.id), RELEASED_WITHIN_S)
    finally:
        await kubectl("scale", *deployment, "--replicas=2")
        await kubectl("rollout", "status", *deployment, "--timeout=120s")
    # It is nobody's any more, and says so.
    await until(lambda: _ended(client, sandbox.id), 60.0)


async def _ended(client: Client, sandbox_id: str) -> bool:
    await asyncio.sleep(0.5)
    return (await client.get(sandbox_id)).end is not None


@pytest.mark.timeout(300)
async def test_a_pod_that_is_on_no_record_is_removed(stack: Installed, client: Client) -> None:
    async with await client.create(IMAGE, memory="128Mi") as sandbox:
        pods = {pod["metadata"]["name"]: pod for pod in await objects("pods", "-n", stack.sandboxes)}
        ours = pods[sandbox.id]
    orphan = f"{sandbox.id[:-4]}left"
    labels = {**ours["metadata"]["labels"], "rollbox.dev/sandbox": orphan}
    container = {key: ours["spec"]["containers"][1][key] for key in ("name", "image", "resources")}
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": orphan, "labels": labels, "finalizers": ["rollbox.dev/tombstone"]},
        "spec": {
            "containers": [{**container, "command": ["sleep", "3600"]}],
            "runtimeClassName": ours["spec"]["runtimeClassName"],
            "automountServiceAccountToken": False,
            "restartPolicy": "Never",
        },
    }
    await run("kubectl", "apply", "-n", stack.sandboxes, "-f", "-", stdin=json.dumps(manifest).encode())
    await until(lambda: _gone(stack, orphan), ORPHAN_WITHIN_S)
