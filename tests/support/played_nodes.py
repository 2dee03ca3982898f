"""Nodes of a real API server that no machine is behind: Ready as long as their lease is renewed."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import Any

from tests.support.installed import PLAYED, apply, kubectl

Json = dict[str, Any]
RENEW_EVERY_S = 8.0
# Keeps what tolerates nothing away from them.
TAINT = {"key": PLAYED, "value": "node", "effect": "NoSchedule"}
CAPACITY = {"cpu": "4", "memory": "8Gi", "ephemeral-storage": "20Gi", "pods": "64"}


class PlayedNodes:
    """Makes and removes them."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    async def make(self, name: str, labels: Mapping[str, str]) -> None:
        """A Ready node with these labels."""
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {**labels, PLAYED: "node", "kubernetes.io/hostname": name}},
            "spec": {"taints": [TAINT]},
        }
        await apply(node)
        self.names.add(name)
        await self._renew(name)
        now = _now()
        ready = {"type": "Ready", "status": "True", "reason": "Played", "message": "it is played"}
        status = {
            "capacity": CAPACITY,
            "allocatable": CAPACITY,
            "conditions": [{**ready, "lastHeartbeatTime": now, "lastTransitionTime": now}],
            "runtimeHandlers": [{"name": ""}, {"name": "runsc"}],
        }
        change = json.dumps({"status": status})
        await kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", change)

    async def remove(self, name: str) -> None:
        """Takes one away; success if it is gone."""
        self.names.discard(name)
        await kubectl("delete", "node", name, "--ignore-not-found", "--timeout=30s")

    async def _renew(self, name: str) -> None:
        about = {"name": name, "namespace": "kube-node-lease"}
        spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": f"{_now()[:-1]}.000000Z"}
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": about, "spec": spec}
        await apply(lease, namespace="kube-node-lease")

    async def renew(self) -> None:
        """Renews all leases again and again."""
        while True:
            await asyncio.sleep(RENEW_EVERY_S)
            for name in [*self.names]:
                await self._renew(name)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@contextlib.asynccontextmanager
async def played_nodes() -> AsyncIterator[PlayedNodes]:
    """Their leases are renewed while the block runs; none is left after it."""
    nodes = PlayedNodes()
    made: set[str] = nodes.names
    async with asyncio.TaskGroup() as group:
        renewing = group.create_task(nodes.renew())
        try:
            yield nodes
        finally:
            renewing.cancel()
            for name in [*made]:
                await nodes.remove(name)
