"""The real scheduler, and nodes that only the API server knows: a group on a new image comes to one of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from controlplane.clock import SystemClock
from controlplane.cluster import Boot
from controlplane.cluster.kubernetes.marks import LABEL_INSTALLATION, SIDECAR_PORT
from controlplane.cluster.kubernetes.nodes.nodes import Node
from controlplane.cluster.kubernetes.nodes.preference import HeldImage, NodePreference
from controlplane.cluster.kubernetes.pods.podspec import PodDefaults, pod
from controlplane.model import SandboxSpec
from tests.support.installed import PLAYED, apply, kubectl, objects
from tests.support.played_nodes import TAINT
from tests.support.waiting import until

NAMESPACE = "rollbox-near"
LABEL = {"rollbox.dev/near": "test", PLAYED: "node"}
NODES, GROUP, SHARDS = 10, 16, 16
DEFAULTS = PodDefaults(
    NAMESPACE,
    "near",
    "sidecar:1",
    "http://10.0.0.1:1",
    "",
    SHARDS,
    node_selector=LABEL,
    tolerations=({"operator": "Exists"},),
)
ROOM = {"cpu": "64", "memory": "256Gi", "pods": "110", "ephemeral-storage": "1Ti"}
SPEC = SandboxSpec(image=f"hub.test/swe@sha256:{'a' * 64}")


async def placed(near: Sequence[Sequence[tuple[str, int]]]) -> list[str]:
    """The nodes that the scheduler chooses for a sandbox for each of these preferences, sent at once."""
    manifests = []
    for number, wishes in enumerate(near):
        made = pod(f"sb-{number}", SPEC, Boot("token", "key", "record"), DEFAULTS, 1, near=wishes)
        # Nobody starts it, so it has no runtime, and nothing confirms its end.
        del made["spec"]["runtimeClassName"], made["metadata"]["finalizers"]
        manifests.append(made)
    await apply(*manifests, namespace=NAMESPACE)

    async def all_placed() -> list[str]:
        found = await objects("pods", "--namespace", NAMESPACE)
        nodes = [one["spec"].get("nodeName", "") for one in found]
        return nodes if len(nodes) == len(near) and all(nodes) else []

    try:
        return await until(all_placed, 60)
    finally:
        await kubectl("delete", "pods", "--all", "--namespace", NAMESPACE, "--force", "--grace-period=0")


def played(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": LABEL},
        "spec": {"taints": [TAINT]},
    }


def service(shard: int) -> dict[str, Any]:
    """The Service of a shard, as the chart has it: without a selector, so the scheduler spreads nothing by it."""
    about = {"name": f"shard-{shard}", "labels": {LABEL_INSTALLATION: "near"}}
    spec = {"clusterIP": "None", "ports": [{"name": "agent", "port": SIDECAR_PORT}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": about, "spec": spec}


@asynccontextmanager
async def fleet() -> AsyncIterator[list[Node]]:
    names = [f"rollbox-near-{number}" for number in range(NODES)]
    ready = {"type": "Ready", "status": "True", "reason": "Played", "message": ""}
    status = json.dumps({"status": {"capacity": ROOM, "allocatable": ROOM, "conditions": [ready]}})
    try:
        await apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}, *map(played, names))
        await apply(*map(service, range(SHARDS)), namespace=NAMESPACE)
        await asyncio.gather(
            *(kubectl("patch", "node", one, "--subresource=status", "--patch", status) for one in names)
        )
        yield [Node.of(one) for one in await objects("nodes", "--selector", "rollbox.dev/near=test")]
    finally:
        await kubectl("delete", "node", *names, "--ignore-not-found", "--wait=false")
        await kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=false")


@pytest.mark.played
async def test_a_group_on_a_new_image_comes_to_one_node_and_old_knowledge_keeps_nobody_out() -> None:
    async with fleet() as nodes:
        preference = NodePreference(SystemClock())

        def wishes() -> list[Sequence[tuple[str, int]]]:
            return [preference.wishes(f"sb-{number}", SPEC, {}, nodes, lazily=False) for number in range(GROUP)]

        scattered = await placed([()] * GROUP)
        assert len({*scattered}) > 4, "without a preference the emptiest node is as good as the next"
        together = await placed(wishes())
        assert len({*together}) == 1
        # To the node that has the image, though the hash says another one.
        there = next(one.name for one in nodes if one.name != together[0])
        preference.catalogue.replace(there, [HeldImage((SPEC.image.partition("@")[2],))])
        assert {*await placed(wishes())} == {there}
        assert all(await placed([[("gone", 100), ("gone-too", 50)]] * GROUP))
