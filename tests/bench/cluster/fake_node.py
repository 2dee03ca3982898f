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

from tests.support.installed import kubectl, run

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
    await _beat()
    beating = asyncio.create_task(_keep_beating())
    try:
        yield
    finally:
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)
        await kubectl("delete", "node", NAME, "--ignore-not-found")


async def _keep_beating() -> None:
    while True:
        await asyncio.sleep(HEARTBEAT_S)
        await _beat()


async def _beat() -> None:
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
    await kubectl("patch", "node", NAME, "--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
    await kubectl("patch", "node", NAME, "--type=merge", "-p", json.dumps({"spec": {"taints": [TAINT]}}))
