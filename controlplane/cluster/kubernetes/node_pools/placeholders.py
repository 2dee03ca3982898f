"""``Placeholders``: a node pool of which an autoscaler of the cluster adds and removes the nodes.

The chart has a CapacityBuffer, for which the autoscaler counts pods of the size of a node that exist nowhere else, and
this sets how many these are: one for each node that is wanted and holds no sandbox. The autoscaler adds nodes for them,
and keeps as many; sandboxes take their place. Which node goes is its choice.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from controlplane.cluster.kubernetes.api_server.client import KubernetesClient
from controlplane.cluster.kubernetes.node_pools.provider import CALL_WITHIN_S, changed
from controlplane.errors import Problem
from controlplane.scaling.node_pool import NodePool
from controlplane.scaling.seen import Group, Machine

PATH: Final = "/apis/autoscaling.x-k8s.io/v1beta1/namespaces/{}/capacitybuffers/{}"


class Placeholders:
    """Sets how many placeholders there are.

    Args:
        client: of the sandboxes' cluster.
        held: how many nodes of a pool hold a sandbox.
    """

    def __init__(self, client: KubernetesClient, held: Callable[[NodePool], int]) -> None:
        self._client = client
        self._held = held

    async def look(self, pool: NodePool) -> Group:
        """See ``Provider.look``: what was asked for is the nodes that hold sandboxes, and the placeholders."""
        found = await self._client.get(self._path(pool), within_s=CALL_WITHIN_S)
        replicas = int((found.get("spec") or {}).get("replicas") or 0)
        return Group(self._held(pool) + replicas, (), str(found["metadata"].get("resourceVersion") or ""), names=False)

    async def ask(self, pool: NodePool, group: Group, target: int, held: int) -> None:
        """See ``Provider.ask``."""
        change: dict[str, Any] = {
            "metadata": {"resourceVersion": group.version},
            "spec": {"replicas": max(0, target - held)},
        }
        await changed(self._client, self._path(pool), change, pool)

    async def remove(self, pool: NodePool, group: Group, machines: Sequence[Machine]) -> None:
        """See ``Provider.remove``: the autoscaler does."""
        raise Problem("unsupported", f"the nodes of {pool.name} are removed by the cluster's autoscaler")

    async def keep(self, pool: NodePool, node: str) -> None:
        """See ``Provider.keep``: nothing is left at nodes."""

    @staticmethod
    def _path(pool: NodePool) -> str:
        return PATH.format(*pool.group.split("/"))
