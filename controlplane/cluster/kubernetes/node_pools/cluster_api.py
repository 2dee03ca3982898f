"""``ClusterApi``: a node pool that is a MachineDeployment of Cluster API (cluster.x-k8s.io).

More nodes: its replicas, by ``scale``. Fewer: the machines are marked first, by the annotation that Cluster API deletes
by, then there are fewer replicas, so that its controller takes the marked ones. A change of the replicas names the
version by which it was decided.
"""

import contextlib
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from controlplane.cluster.kubernetes.api_server.client import KubernetesClient
from controlplane.cluster.kubernetes.api_server.refusals import Refused
from controlplane.cluster.kubernetes.node_pools.provider import CALL_WITHIN_S, changed
from controlplane.errors import Problem
from controlplane.scaling.node_pool import NodePool
from controlplane.scaling.seen import Group, Machine

API: Final = "/apis/cluster.x-k8s.io"
VERSIONS: Final = ("v1beta2", "v1beta1")
DEPLOYMENT_LABEL: Final = "cluster.x-k8s.io/deployment-name"
DELETE_FIRST: Final = "cluster.x-k8s.io/delete-machine"
# Where another autoscaler takes the group for its own.
AUTOSCALER: Final = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size"
# The value of our marks.
BY: Final = "rollbox"


class ClusterApi:
    """The MachineDeployments of a management cluster.

    Args:
        client: of the cluster that has the objects of Cluster API, which may be another one than the sandboxes'.
    """

    def __init__(self, client: KubernetesClient) -> None:
        self._client = client
        self._version = ""

    async def look(self, pool: NodePool) -> Group:
        """See ``Provider.look``.

        Raises:
            Problem: conflict: an autoscaler of Cluster API's has the group too.
        """
        path = await self._path(pool)
        found = await self._client.get(path, within_s=CALL_WITHIN_S)
        about = found["metadata"]
        if AUTOSCALER in (about.get("annotations") or {}):
            detail = f"{pool.group} has the annotation {AUTOSCALER}: another autoscaler adds and removes its machines"
            raise Problem("conflict", detail, node_pool=pool.name)
        there = [_machine(one) for one in await self._machines(pool) if not one["metadata"].get("deletionTimestamp")]
        target = (found.get("spec") or {}).get("replicas")
        return Group(1 if target is None else int(target), there, str(about.get("resourceVersion") or ""))

    async def ask(self, pool: NodePool, group: Group, target: int, held: int) -> None:
        """See ``Provider.ask``."""
        del held
        await self._replicas(pool, group, target)

    async def remove(self, pool: NodePool, group: Group, machines: Sequence[Machine]) -> None:
        """See ``Provider.remove``. Marks that an earlier try has left are taken away: those would go in their place."""
        there = await self._machines(pool)
        marked = {_name(one) for one in there if _is_marked(one)}
        if sum(not one["metadata"].get("deletionTimestamp") for one in there) <= group.target:
            for name in sorted(marked - {one.id for one in machines}):
                await self._mark(pool, name, None)
            marked = set()
        # Those are counted already, and go once Cluster API gets to it.
        going = [one.id for one in machines if one.id not in marked]
        try:
            for name in going:
                await self._mark(pool, name, BY)
            # One that was deleted meanwhile is counted by the replicas still, and would be replaced.
            await self._replicas(pool, group, max(0, group.target - len(going)))
        except Problem:
            with contextlib.suppress(Problem):
                for name in going:
                    await self._mark(pool, name, None)
            raise

    async def keep(self, pool: NodePool, node: str) -> None:
        """See ``Provider.keep``: takes the mark off, which would have its machine go before others."""
        for one in await self._machines(pool):
            if _is_marked(one) and _machine(one).node == node:
                await self._mark(pool, _name(one), None)

    async def _mark(self, pool: NodePool, machine: str, value: str | None) -> None:
        path = f"{await self._base()}/namespaces/{_namespace(pool)}/machines/{machine}"
        try:
            mark = {"metadata": {"annotations": {DELETE_FIRST: value}}}
            await self._client.patch(path, mark, within_s=CALL_WITHIN_S)
        except Refused as refused:
            if refused.refusal.status != HTTPStatus.NOT_FOUND:
                raise

    async def _machines(self, pool: NodePool) -> Sequence[Mapping[str, Any]]:
        query = {"labelSelector": f"{DEPLOYMENT_LABEL}={pool.group.split('/')[1]}"}
        found = await self._client.list(f"{await self._base()}/namespaces/{_namespace(pool)}/machines", query)
        return found.items

    async def _replicas(self, pool: NodePool, group: Group, replicas: int) -> None:
        change = {"metadata": {"resourceVersion": group.version}, "spec": {"replicas": replicas}}
        # Not the MachineDeployment itself, by whose template machines could be given anything.
        await changed(self._client, f"{await self._path(pool)}/scale", change, pool)

    async def _path(self, pool: NodePool) -> str:
        name = pool.group.split("/")[1]
        return f"{await self._base()}/namespaces/{_namespace(pool)}/machinedeployments/{name}"

    async def _base(self) -> str:
        """The path of the newest version that the cluster serves."""
        if not self._version:
            found = await self._client.get(API, within_s=CALL_WITHIN_S)
            served = {str(one.get("version")) for one in found.get("versions") or ()}
            self._version = next((one for one in VERSIONS if one in served), "")
            if not self._version:
                raise Problem("not_found", f"Cluster API serves {sorted(served)}; known are {', '.join(VERSIONS)}")
        return f"{API}/{self._version}"


def _namespace(pool: NodePool) -> str:
    return pool.group.split("/")[0]


def _name(found: Mapping[str, Any]) -> str:
    return str(found["metadata"]["name"])


def _is_marked(found: Mapping[str, Any]) -> bool:
    return (found["metadata"].get("annotations") or {}).get(DELETE_FIRST) == BY


def _machine(found: Mapping[str, Any]) -> Machine:
    status = found.get("status") or {}
    # v1beta1 has these at its top, v1beta2 keeps them there while they last.
    deprecated = (status.get("deprecated") or {}).get("v1beta1") or {}
    why = status.get("failureMessage") or deprecated.get("failureMessage") or ""
    failed = str(why) if why or status.get("phase") != "Failed" else "its phase is Failed"
    return Machine(_name(found), str((status.get("nodeRef") or {}).get("name") or ""), failed)
