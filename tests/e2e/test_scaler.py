"""The scaler on a real API server: objects of Cluster API, a gRPC provider, and nodes that come and go."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rollbox import Client, NodePool
from rollbox.errors import CapacityUnavailable
from tests.support.authority import Authority
from tests.support.cluster_api import Controller, defined, following, machine_deployment
from tests.support.images import IMAGE
from tests.support.installed import (
    BESIDE_ANOTHER,
    Installed,
    installed,
    kubectl,
    node_address,
    objects,
    own_cluster,
    run,
)
from tests.support.node_provider import NodeProvider, provided
from tests.support.played_nodes import TAINT, PlayedNodes, played_nodes
from tests.support.waiting import until

RELEASE = "rollbox-scaler"
MANAGED = "rollbox-scaler-capi"
LABEL = "rollbox-test/pool"
SIZE = {"cpuMillicores": 4000, "memoryMebibytes": 8192, "diskMebibytes": 20480, "pods": 64}
# With its sidecar two of them fill a node.
EACH: Any = {"cpu": (1.5, 2), "memory": ("32Mi", "128Mi"), "lease": None}
START_S = 25.0
DOWN_AFTER_S = 45


def pool(name: str, **provider: Any) -> dict[str, Any]:
    return {"name": name, "labels": {LABEL: name}, "max": 3, "size": SIZE, **provider}


VALUES = (
    *BESIDE_ANOTHER,
    # Of its own: no other release has to be there.
    "runtimeClass.create=true",
    f"runtimeClass.name={RELEASE}",
    "controlplane.replicas=2",
    "gateway.autoscaling.enabled=false",
    "gateway.replicas=1",
    "dns.replicas=1",
    # No pod is made of what has no room: nothing has to be played but nodes.
    "capacity.nodesCanBeAdded=false",
    "scaling.enabled=true",
    f"scaling.downAfterSeconds={DOWN_AFTER_S}",
    "scaling.grpc.serverName=provider",
    "scaling.grpc.tlsSecret=provider",
    f"sandboxes.tolerations[0].key={TAINT['key']}",
    "sandboxes.tolerations[0].operator=Exists",
)


@pytest.mark.played
@pytest.mark.timeout(600)
async def test_nodes_come_for_a_herd_and_go_marked_when_nothing_needs_them(tmp_path: Path) -> None:
    if not own_cluster():
        pytest.skip("a given cluster may have Cluster API, and nodes are played")
    async with contextlib.AsyncExitStack() as stays:
        await stays.enter_async_context(defined())
        await stays.enter_async_context(_namespace(MANAGED))
        await _create(machine_deployment("workers"), MANAGED)
        nodes = await stays.enter_async_context(played_nodes())
        provider, address = await stays.enter_async_context(_provider(nodes, tmp_path))
        await stays.enter_async_context(_namespace(RELEASE))
        await _secret(tmp_path)
        managed = pool("managed", clusterApi={"namespace": MANAGED, "machineDeployment": "workers"})
        remote = pool("remote", grpc={"group": "g"}, price=9)
        stack = await stays.enter_async_context(_scaled(managed, remote, address=address))
        async with Client(stack.url, stack.api_key) as client:
            controller = Controller(MANAGED, "workers")
            async with following(controller):
                await _comes_and_goes(client, controller, nodes)
            await _comes_and_goes_remotely(client, provider, nodes)


async def _comes_and_goes(client: Client, controller: Controller, nodes: PlayedNodes) -> None:
    """A herd has its machines asked for; these are marked before they go."""
    await _refused(client, "managed", 4)
    assert await controller.replicas() == 2
    told = await _told(client, "managed")
    assert (told.provider, told.coming, told.wanted, told.max) == ("cluster-api", 2, 2, 3)
    made = await until(lambda: _machines(controller, 2))
    for name in made:
        await nodes.make(f"played-{name}", {LABEL: "managed"})
        await controller.joined(name, f"played-{name}")
    await until(lambda: _has(client, "managed", ready=2), 60.0)
    # One after the other: at most one of so few leaves at a time.
    cordoned = await until(_cordoned, 180.0)
    assert cordoned[0]["metadata"]["labels"]["rollbox.dev/leaving"] == RELEASE
    await until(lambda: _machines(controller, 0), 180.0)
    assert controller.removed == dict.fromkeys(made, True)
    assert await controller.replicas() == 0
    for name in made:
        await nodes.remove(f"played-{name}")


async def _comes_and_goes_remotely(client: Client, provider: NodeProvider, nodes: PlayedNodes) -> None:
    """The same by the protocol of providers."""
    await _refused(client, "remote", 2)
    assert (provider.groups["g"].target, provider.groups["g"].machines) == (1, {"g-1": ""})
    await nodes.make("g-1", {LABEL: "remote"})
    provider.groups["g"].machines["g-1"] = "g-1"
    await until(lambda: _has(client, "remote", ready=1), 60.0)
    await until(lambda: _gone(provider), 180.0)
    assert "g-1" not in nodes.names
    # It has no stock: that is told, and the pool is left in peace.
    provider.stock = 0
    await _refused(client, "remote", 2)
    assert "pauses: the provider of remote answered RESOURCE_EXHAUSTED" in (await _told(client, "remote")).why


async def _refused(client: Client, label: str, count: int) -> None:
    """Creates that only a pool's nodes can hold wait for one, and are refused when none has come in time."""
    wishes = (client.create(IMAGE, **EACH, node_selector={LABEL: label}, start_timeout=START_S) for _ in range(count))
    for answer in await asyncio.gather(*wishes, return_exceptions=True):
        assert isinstance(answer, CapacityUnavailable), answer


async def _told(client: Client, name: str) -> NodePool:
    scaling = (await client.capacity()).scaling
    assert scaling is not None
    assert not scaling.dry_run
    return next(one for one in scaling.node_pools if one.name == name)


async def _has(client: Client, name: str, ready: int) -> bool:
    return (await _told(client, name)).ready == ready


async def _machines(controller: Controller, count: int) -> Any:
    found = [one["metadata"]["name"] for one in await controller.machines()]
    return (found or True) if len(found) == count else None


async def _cordoned() -> list[dict[str, Any]]:
    return [one for one in await objects("nodes", "-l", LABEL) if one["spec"].get("unschedulable")]


async def _gone(provider: NodeProvider) -> bool:
    return not provider.groups["g"].machines


@contextlib.asynccontextmanager
async def _provider(nodes: PlayedNodes, folder: Path) -> AsyncIterator[tuple[NodeProvider, str]]:
    async def make(group: str, name: str) -> str:
        del group, name
        return ""

    provider = NodeProvider(["g"], make, nodes.remove)
    async with provided(provider, Authority().write(folder, "provider"), await node_address()) as address:
        yield provider, address


@contextlib.asynccontextmanager
async def _scaled(*pools: dict[str, Any], address: str) -> AsyncIterator[Installed]:
    declared = (f"scaling.nodePools[{at}]={json.dumps(one)}" for at, one in enumerate(pools))
    async with installed(RELEASE, *VALUES, f"scaling.grpc.address={address}", as_json=tuple(declared)) as stack:
        yield stack


@contextlib.asynccontextmanager
async def _namespace(name: str) -> AsyncIterator[None]:
    await kubectl("create", "namespace", name)
    try:
        yield
    finally:
        await kubectl("delete", "namespace", name, "--ignore-not-found", "--timeout=120s")


async def _create(thing: dict[str, Any], namespace: str) -> None:
    """By the server, which is to be strict about what is not of the schema."""
    path = f"/apis/{thing['apiVersion']}/namespaces/{namespace}/machinedeployments?fieldValidation=Strict"
    await run("kubectl", "create", "--raw", path, "-f", "-", stdin=json.dumps(thing).encode())


async def _secret(folder: Path) -> None:
    files = (f"--from-file={folder / name}" for name in ("ca.crt", "tls.crt", "tls.key"))
    await kubectl("create", "secret", "generic", "provider", "-n", RELEASE, *files)
