"""A node provider of KWOK nodes: its machines are Node objects, of which KWOK plays the kubelets."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from controlplane.cluster.kubernetes.api_server.client import Json, KubernetesClient
from controlplane.cluster.kubernetes.api_server.refusals import Refused
from tests.support.node_provider import NodeProvider

NODES = "/api/v1/nodes"
# KWOK plays the nodes that have it, unless it was told to play others.
KWOK = {"kwok.x-k8s.io/node": "fake"}


def kwok_node(name: str, labels: Mapping[str, str]) -> Json:
    """A node that KWOK plays."""
    told = {"kubernetes.io/hostname": name, **labels}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": told, "annotations": KWOK}}


def kwok_provider(
    client: KubernetesClient, groups: Mapping[str, Mapping[str, str]], room: Mapping[str, str]
) -> NodeProvider:
    """A provider that makes and removes such nodes, each at once; they are Ready as soon as KWOK has seen them.

    Args:
        client: of the cluster that they join.
        groups: the labels of each one's nodes.
        room: what a node has.
    """

    async def make(group: str, name: str) -> str:
        await client.create(NODES, kwok_node(name, groups[group]))
        status = {"capacity": dict(room), "allocatable": dict(room), "nodeInfo": {"architecture": "amd64"}}
        await client.patch(f"{NODES}/{name}/status", {"status": status})
        return name

    async def unmake(name: str) -> None:
        try:
            await client.delete(f"{NODES}/{name}", {})
        except Refused as refused:
            if refused.refusal.status != HTTPStatus.NOT_FOUND:
                raise

    return NodeProvider([*groups], make, unmake)
