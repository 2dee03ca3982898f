"""A node that only the API server knows: pods are bound to it and nobody starts them; a scenario plays the kubelet.

The API server, the scheduler, the control plane and the store are real; only kubelet and sidecar are played.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from kubernetes_asyncio import client as kubernetes_client
from kubernetes_asyncio import config as kubernetes_config

from tests.support.installed import kubeconfig, kubectl, run

NAME = "rollbox-bench"
SELECTOR = {"rollbox.dev/bench": "node"}
# Keeps everybody else away, and drops what the node controller put there while nothing beat.
TAINT = {"key": "rollbox.dev/bench", "value": "node", "effect": "NoSchedule"}
TOLERATION = {"key": "rollbox.dev/bench", "operator": "Exists"}
HEARTBEAT_S = 10.0


@asynccontextmanager
async def fake_node() -> AsyncIterator[None]:
    """The node, ready and with room for a thousand pods, while the block runs."""
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": NAME, "labels": SELECTOR},
        "spec": {"taints": [TAINT]},
    }
    await run("kubectl", "apply", "-f", "-", stdin=json.dumps(node).encode())
    await kubernetes_config.load_kube_config(str(kubeconfig()))
    # One connection: a kubectl for every beat is a tenth of a second's work in the middle of what is measured.
    async with kubernetes_client.ApiClient() as api:
        core = kubernetes_client.CoreV1Api(api)
        await _beat(core)
        beating = asyncio.create_task(_keep_beating(core))
        try:
            yield
        finally:
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)
            await kubectl("delete", "node", NAME, "--ignore-not-found")


async def _keep_beating(core: kubernetes_client.CoreV1Api) -> None:
    while True:
        await asyncio.sleep(HEARTBEAT_S)
        await _beat(core)


async def _beat(core: kubernetes_client.CoreV1Api) -> None:
    room = {"cpu": "1000", "memory": "4000Gi", "pods": "2000", "ephemeral-storage": "4000Gi"}
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "Played",
        "message": "",
        "lastTransitionTime": now,
        "lastHeartbeatTime": now,
    }
    status: dict[str, Any] = {"capacity": room, "allocatable": room, "conditions": [ready]}
    await core.patch_node_status(NAME, {"status": status})
    await core.patch_node(NAME, {"spec": {"taints": [TAINT]}})
