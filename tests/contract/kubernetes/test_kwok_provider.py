"""A provider of KWOK nodes: by the documented protocol, over mutual TLS, on objects of an API server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from controlplane.cluster.kubernetes.api_server.client import KubernetesClient
from controlplane.cluster.kubernetes.node_pools.remote import RemoteProvider
from controlplane.errors import Problem
from controlplane.scaling import NodePool
from tests.support.authority import Authority
from tests.support.fake_kubernetes import NODES, FakeKubernetes
from tests.support.kwok_provider import kwok_provider
from tests.support.node_provider import NodeProvider, provided

ROOM = {"cpu": "256", "memory": "1Ti", "ephemeral-storage": "8Ti", "pods": "256"}
POOL = NodePool("general", "grpc", "g", (256_000, 1 << 40, 1 << 43, 0, 256), 0, 16, {"pool": "general"})


@asynccontextmanager
async def kwok(kubeconfig: Path, folder: Path) -> AsyncIterator[tuple[NodeProvider, RemoteProvider]]:
    tls = Authority().write(folder, "provider")
    async with KubernetesClient.connect(kubeconfig) as client:
        provider = kwok_provider(client, {"g": POOL.labels}, ROOM)
        async with provided(provider, tls) as address, RemoteProvider.open(address, tls, "provider") as remote:
            yield provider, remote


async def test_nodes_are_objects_with_room_and_go_by_name(
    api: FakeKubernetes, kubeconfig: Path, tmp_path: Path
) -> None:
    async with kwok(kubeconfig, tmp_path) as (_, remote):
        await remote.ask(POOL, await remote.look(POOL), 3, 0)
        group = await remote.look(POOL)
        assert {one.node for one in group.machines} == {"g-1", "g-2", "g-3"}
        for name in ("g-1", "g-2", "g-3"):
            node = api.objects[NODES][name]
            assert node["metadata"]["labels"] | POOL.labels == node["metadata"]["labels"]
            assert node["status"]["allocatable"] == ROOM
        await api.remove(NODES, "g-2")  # by somebody else
        await remote.remove(POOL, group, [one for one in group.machines if one.node != "g-3"])
        assert (await remote.look(POOL)).target == 1
        assert {name for name in api.objects[NODES] if name.startswith("g-")} == {"g-3"}


async def test_an_api_server_that_refuses_is_a_failure_that_is_told(
    api: FakeKubernetes, kubeconfig: Path, tmp_path: Path
) -> None:
    del api.objects[NODES]
    async with kwok(kubeconfig, tmp_path) as (_, remote):
        with pytest.raises(Problem, match="the provider of general answered UNKNOWN"):
            await remote.ask(POOL, await remote.look(POOL), 1, 0)
