"""``KubernetesNodePools``: all node pools of an installation; each is asked at the provider that it declares."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from typing import Any, Final, Self, TypeVar

from controlplane.cluster.kubernetes.api_server.client import KubernetesClient
from controlplane.cluster.kubernetes.api_server.refusals import Refused
from controlplane.cluster.kubernetes.marks import LABEL_SANDBOX
from controlplane.cluster.kubernetes.node_pools.cluster_api import ClusterApi
from controlplane.cluster.kubernetes.node_pools.placeholders import Placeholders
from controlplane.cluster.kubernetes.node_pools.provider import CALL_WITHIN_S, Provider, checked
from controlplane.cluster.kubernetes.node_pools.remote import RemoteProvider
from controlplane.cluster.kubernetes.nodes.drain_marks import ANNOTATION_DRAIN, own_fields
from controlplane.cluster.kubernetes.nodes.scaling_marks import LEAVING
from controlplane.errors import Problem
from controlplane.scaling import NodePool
from controlplane.scaling.seen import Group, Machine
from controlplane.settings import ScalingSettings

# Of one call of a provider's, all its requests together.
TURN_WITHIN_S: Final = 20.0
_OVER: Final = ("Succeeded", "Failed")
T = TypeVar("T")


class KubernetesNodePools:
    """See ``NodePools``.

    Args:
        client: of the sandboxes' cluster.
        installation: whose name is on what is marked.
        providers: by the kind that a pool declares.
        ready: whether a node is.
    """

    def __init__(
        self,
        client: KubernetesClient,
        installation: str,
        providers: Mapping[str, Provider],
        ready: Callable[[str], bool],
    ) -> None:
        self._client = client
        self._installation = installation
        self._providers = providers
        self._named: dict[str, tuple[NodePool, frozenset[str]]] = {}  # nodes that the providers named last, by pool
        self.ready = ready

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        settings: ScalingSettings,
        client: KubernetesClient,
        installation: str,
        *,
        held: Callable[[NodePool], int],
        ready: Callable[[str], bool],
    ) -> AsyncIterator[Self]:
        """With the providers that the declared pools need.

        Args:
            settings: which pools there are, and how providers are reached.
            client: of the sandboxes' cluster.
            installation: its name.
            held: how many nodes of a pool hold a sandbox.
            ready: whether a node is Ready.

        Raises:
            Problem: internal, if there is no usable configuration for the cluster of Cluster API.
            OSError: a file of the TLS folder cannot be read.
        """
        kinds = {one.provider for one in settings.options.pools}
        async with AsyncExitStack() as stack:
            providers: dict[str, Provider] = {"capacity-buffer": Placeholders(client, held)}
            if "cluster-api" in kinds:
                managing = client
                if settings.kubeconfig is not None:
                    managing = await stack.enter_async_context(KubernetesClient.connect(settings.kubeconfig))
                providers["cluster-api"] = ClusterApi(managing)
            if (remote := settings.provider) is not None:
                opening = RemoteProvider.open(remote.address, remote.tls_folder, remote.name)
                providers["grpc"] = await stack.enter_async_context(opening)
            yield cls(client, installation, providers, ready)

    def leaving(self, labels: Mapping[str, str]) -> bool:
        """See ``NodePools.leaving``."""
        return labels.get(LEAVING) == self._installation

    async def look(self, pool: NodePool) -> Group:
        """See ``NodePools.look``."""
        group = checked(pool, await _within(self._of(pool).look(pool), pool))
        self._named[pool.name] = pool, frozenset(one.node for one in group.machines)
        return group

    async def ask(self, pool: NodePool, group: Group, target: int, held: int) -> None:
        """See ``NodePools.ask``."""
        await _within(self._of(pool).ask(pool, group, target, held), pool)

    async def remove(self, pool: NodePool, group: Group, machines: Sequence[Machine]) -> None:
        """See ``NodePools.remove``."""
        await _within(self._remove(pool, group, machines), pool)

    async def cordon(self, node: str) -> None:
        """See ``NodePools.cordon``."""
        await self._patch(
            node, {"metadata": {"labels": {LEAVING: self._installation}}, "spec": {"unschedulable": True}}
        )

    async def uncordon(self, node: str) -> None:
        """See ``NodePools.uncordon``."""
        for pool in [pool for pool, names in self._named.values() if node in names]:
            await _within(self._of(pool).keep(pool, node), pool)
        try:
            now = await self._client.get(f"/api/v1/nodes/{node}", within_s=CALL_WITHIN_S)
            await self._patch(node, _opened(now))
        except Refused as refused:
            if refused.refusal.status != HTTPStatus.NOT_FOUND:
                raise

    async def _remove(self, pool: NodePool, group: Group, machines: Sequence[Machine]) -> None:
        # Not by the watch, which may be behind.
        for one in machines:
            if one.node and (there := await self._sandbox_on(one.node)):
                raise Problem("conflict", f"{there} is on {one.node}, which was to be removed", node_pool=pool.name)
        if not all(one.node for one in machines) and (stranger := await self._stranger(pool)):
            detail = f"no machine names {stranger}, which may be the node of one that was to be removed"
            raise Problem("conflict", detail, node_pool=pool.name)
        await self._of(pool).remove(pool, group, machines)

    async def _stranger(self, pool: NodePool) -> str:
        """A node with the pool's labels that no provider has named; empty: there is none."""
        query = {"labelSelector": ",".join(f"{key}={value}" for key, value in pool.labels.items())}
        found = await self._client.list("/api/v1/nodes", query)
        named = frozenset().union(*(names for _, names in self._named.values()))
        return next((name for one in found.items if (name := str(one["metadata"]["name"])) not in named), "")

    async def _sandbox_on(self, node: str) -> str:
        """The name of a sandbox there, of any installation; empty: there is none."""
        query = {"fieldSelector": f"spec.nodeName={node}", "labelSelector": LABEL_SANDBOX}
        found = await self._client.list("/api/v1/pods", query)
        live = (one for one in found.items if (one.get("status") or {}).get("phase") not in _OVER)
        return next((str(one["metadata"]["name"]) for one in live), "")

    async def _patch(self, node: str, change: dict[str, Any]) -> None:
        await self._client.patch(f"/api/v1/nodes/{node}", change, within_s=CALL_WITHIN_S)

    def _of(self, pool: NodePool) -> Provider:
        return self._providers[pool.provider]


def _opened(node: Mapping[str, Any]) -> dict[str, Any]:
    """What opens a node as it is; one that an operator drains stays cordoned, until the drain is taken back."""
    about = {"labels": {LEAVING: None}, "resourceVersion": node["metadata"]["resourceVersion"]}
    drain = own_fields(node)
    if drain is None or not (node.get("spec") or {}).get("unschedulable"):
        return {"metadata": about, "spec": {"unschedulable": None}}
    # The drain has found the scaler's cordon, which is not to outlive it.
    ours = {ANNOTATION_DRAIN: json.dumps({**drain, "cordoned": False})} if drain.get("cordoned") else {}
    return {"metadata": {**about, "annotations": ours}}


async def _within(call: Awaitable[T], pool: NodePool) -> T:
    try:
        async with asyncio.timeout(TURN_WITHIN_S):
            return await call
    except TimeoutError as error:
        detail = f"the provider of {pool.name} has not answered within {TURN_WITHIN_S:.0f} s"
        raise Problem("upstream_timeout", detail, node_pool=pool.name) from error
