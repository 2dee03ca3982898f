"""Nodes that the scaler asks for: a provider of KWOK nodes, by the documented protocol, in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from controlplane.cluster.kubernetes.api_server.client import KubernetesClient
from tests.scale import cluster
from tests.support.authority import Authority
from tests.support.kwok_provider import kwok_provider
from tests.support.node_provider import NodeProvider, provided

GROUP = "added"
NAME = "provider"
HOST, PORT = "10.97.2.1", 9443
# KWOK's process of this zone plays them.
ZONE = "a"
LABELS = {"pool": GROUP, cluster.LABEL_ZONE: ZONE}
DOWN_AFTER_S = 20
TLS_FOLDER = "ROLLBOX_CONTROLPLANE_SCALING_PROVIDER_TLS_FOLDER"


def values(most: int, pods: int) -> Iterator[str]:
    """What the chart is told of the scaler.

    Args:
        most: nodes at a time.
        pods: that each takes.
    """
    pool = "scaling.nodePools[0]"
    size = {"cpuMillicores": 256_000, "memoryMebibytes": 1 << 20, "diskMebibytes": 1 << 23, "gpu": 0, "pods": pods}
    yield "scaling.enabled=true"
    yield f"scaling.downAfterSeconds={DOWN_AFTER_S}"
    yield f"scaling.grpc.address={HOST}:{PORT}"
    yield f"scaling.grpc.serverName={NAME}"
    yield f"scaling.grpc.tlsSecret={NAME}"
    yield from (f"{pool}.{key}={value}" for key, value in (("name", GROUP), ("grpc.group", GROUP), ("max", most)))
    yield from (f"{pool}.size.{key}={value}" for key, value in size.items())
    yield from (f"{pool}.labels.{key.replace('.', chr(92) + '.')}={value}" for key, value in LABELS.items())


@asynccontextmanager
async def added_nodes(client: KubernetesClient, folder: Path, pods: int) -> AsyncIterator[NodeProvider]:
    """The provider, while the block runs; `folder` gets the certificates of both sides."""
    provider = kwok_provider(client, {GROUP: LABELS}, cluster.room(pods))
    async with provided(provider, Authority().write(folder, NAME), HOST, PORT):
        yield provider
