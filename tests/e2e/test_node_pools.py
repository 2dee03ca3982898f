"""Providers of node pools against a real API server: what it takes, and what it refuses."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from controlplane.cluster.kubernetes.api_server.client import KubernetesClient
from controlplane.cluster.kubernetes.node_pools.cluster_api import ClusterApi
from controlplane.cluster.kubernetes.node_pools.placeholders import Placeholders
from controlplane.errors import Problem
from controlplane.scaling import NodePool
from tests.support.cluster_api import Controller, defined, machine_deployment, of_module
from tests.support.installed import apply, kubeconfig, kubectl, own_cluster, run

NAMESPACE = "rollbox-node-pools"
KARPENTER = "sigs.k8s.io/karpenter@v1.14.1"
BUFFERS = "capacitybuffers.autoscaling.x-k8s.io"
SIZE = (1_000, 1 << 30, 1 << 30, 0, 10)


def pool(provider: str, name: str) -> NodePool:
    return NodePool(name, provider, f"{NAMESPACE}/{name}", SIZE, 0, 9, {"pool": name})


@pytest.fixture
async def client() -> AsyncIterator[KubernetesClient]:
    if not own_cluster():
        pytest.skip("a given cluster may have these definitions of its own")
    await kubectl("create", "namespace", NAMESPACE)
    try:
        async with KubernetesClient.connect(kubeconfig()) as made:
            yield made
    finally:
        await kubectl("delete", "namespace", NAMESPACE, "--timeout=120s")


@pytest.mark.played
async def test_a_machine_deployment_changes_only_by_the_version_that_was_read(client: KubernetesClient) -> None:
    api, of = ClusterApi(client), pool("cluster-api", "workers")
    async with defined():
        with pytest.raises(Problem, match="workers"):
            await api.look(of)
        await apply(machine_deployment("workers"), namespace=NAMESPACE)
        controller, first = Controller(NAMESPACE, "workers"), await api.look(of)
        await api.ask(of, first, 3, 0)
        with pytest.raises(Problem, match="has changed since it was looked at") as refused:
            await api.ask(of, first, 1, 0)
        assert refused.value.code == "conflict"
        await controller.turn()
        await controller.joined("workers-2", "node-2")
        group = await api.look(of)
        assert [(one.id, one.node) for one in group.machines] == [
            ("workers-1", ""),
            ("workers-2", "node-2"),
            ("workers-3", ""),
        ]
        # Of an older version: it is refused, and the replicas are as before.
        with pytest.raises(Problem, match="has changed since"):
            await api.remove(of, first, group.machines[:1])
        assert (await api.look(of)).target == 3
        await api.remove(of, await api.look(of), group.machines[1:2])
        await controller.turn()
        assert controller.removed == {"workers-2": True}
        left = [one["metadata"].get("annotations") or {} for one in await controller.machines()]
        assert not any("cluster.x-k8s.io/delete-machine" in one for one in left)


@pytest.mark.played
async def test_placeholders_are_a_buffer_where_the_cluster_has_these(client: KubernetesClient) -> None:
    async with _buffers():
        about = {"apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer", "metadata": {"name": "held"}}
        # As the chart makes it.
        await apply({**about, "spec": {"podTemplateRef": {"name": "held"}, "replicas": 0}}, namespace=NAMESPACE)
        await _set_and_refused(Placeholders(client, lambda _: 2), pool("capacity-buffer", "held"))
        found = json.loads(await kubectl("get", BUFFERS, "held", "-n", NAMESPACE, "-o", "json"))
        assert (found["spec"]["replicas"], found["spec"]["podTemplateRef"]) == (3, {"name": "held"})


async def _set_and_refused(placeholders: Placeholders, of: NodePool) -> None:
    first = await placeholders.look(of)
    assert (first.target, first.names) == (2, False)
    await placeholders.ask(of, first, 5, 2)
    assert (await placeholders.look(of)).target == 5
    with pytest.raises(Problem, match="has changed since it was looked at"):
        await placeholders.ask(of, first, 9, 2)


@contextlib.asynccontextmanager
async def _buffers() -> AsyncIterator[None]:
    text: Any = (of_module(KARPENTER) / "pkg/apis/crds/autoscaling.x-k8s.io_capacitybuffers.yaml").read_bytes()
    try:
        await run("kubectl", "apply", "--server-side", "-f", "-", stdin=text)
        await kubectl("wait", f"crd/{BUFFERS}", "--for=condition=Established", "--timeout=60s")
        yield
    finally:
        await kubectl("delete", f"crd/{BUFFERS}", "--ignore-not-found", "--timeout=60s")
