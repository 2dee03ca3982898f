"""The chart's own scheduler: it places sandboxes, and fills one node after the other where the cluster's spreads."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rollbox import Client
from tests.support.images import IMAGE
from tests.support.installed import BESIDE_ANOTHER, ONE_OF_EACH, PLAYED, apply, installed, kubectl, objects
from tests.support.waiting import until

RELEASE = "rollbox-packing"
VALUES = (
    *BESIDE_ANOTHER,
    "runtimeClass.create=true",
    f"runtimeClass.name={RELEASE}",
    *ONE_OF_EACH,
    "packing.enabled=true",
    "packing.replicas=1",
    "packing.resources.requests.cpu=5m",
)
SMALL: Any = {"cpu": (0.05, 1), "memory": ("32Mi", "128Mi"), "lease": None}
# Nodes that are objects alone: what is placed there is placed, and runs nowhere.
NODES = ("packing-a", "packing-b", "packing-c")
MARK = {"rollbox-test": "packing", PLAYED: "node"}
PODS = 6
FITS_ON_ONE = 4
ANY: Any = [{"operator": "Exists"}]


@pytest.mark.played
@pytest.mark.timeout(500)
async def test_sandboxes_are_placed_by_it_and_it_fills_one_node_after_the_other() -> None:
    async with installed(RELEASE, *VALUES) as stack, Client(stack.url, stack.api_key) as client:
        one = await client.create(IMAGE, **SMALL)
        assert (await one.exec("echo packed")).stdout == "packed\n"
        (pod,) = [pod for pod in await objects("pods", "-n", stack.sandboxes) if pod["metadata"]["name"] == one.id]
        scheduler = pod["spec"]["schedulerName"]
        assert scheduler == f"{RELEASE}-{RELEASE}-scheduler"
        async with _nodes():
            assert await _spread(scheduler) == [FITS_ON_ONE, PODS - FITS_ON_ONE, 0]
            assert await _spread("default-scheduler") == [2, 2, 2]
        await client.delete(one.id, wait=True)


@contextlib.asynccontextmanager
async def _nodes() -> AsyncIterator[None]:
    ready = {"type": "Ready", "status": "True", "reason": "Test", "message": "it is an object alone"}
    amounts = {"cpu": str(FITS_ON_ONE), "memory": "32Gi", "pods": "30"}
    taint = {"key": "rollbox-test", "value": "packing", "effect": "NoSchedule"}
    try:
        for name in NODES:
            about = {"name": name, "labels": {**MARK, "kubernetes.io/hostname": name}}
            await apply({"apiVersion": "v1", "kind": "Node", "metadata": about, "spec": {"taints": [taint]}})
            status = {"status": {"allocatable": amounts, "capacity": amounts, "conditions": [ready]}}
            await kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", json.dumps(status))
        yield
    finally:
        await kubectl("delete", "node", *NODES, "--ignore-not-found")


async def _spread(scheduler: str) -> list[int]:
    """How many of some pods come to each node, most first."""
    names = [f"packing-{number}" for number in range(PODS)]
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}}
    spec = {
        "schedulerName": scheduler,
        "nodeSelector": MARK,
        "tolerations": ANY,
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "idle", "image": IMAGE, "resources": resources}],
    }
    try:
        for name in names:
            await apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": MARK}, "spec": spec})
        placed = await until(_placed)
    finally:
        await kubectl("delete", "pod", *names, "--ignore-not-found", "--force", "--grace-period=0")
    counts = Counter(placed)
    return sorted((counts[name] for name in NODES), reverse=True)


async def _placed() -> list[str] | None:
    pods = await objects("pods", "-l", "rollbox-test=packing")
    found = [str(pod["spec"]["nodeName"]) for pod in pods if pod["spec"].get("nodeName")]
    return found if len(found) == PODS else None
