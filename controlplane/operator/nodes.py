"""Reports nodes that are cordoned, drained or deleted: in the log, and as Events on the sandboxes' pods there."""

from collections.abc import Mapping
from typing import Any

import structlog

from controlplane.cluster.kubernetes.api_server.client import KubernetesClient
from controlplane.cluster.kubernetes.pods.podspec import selector
from controlplane.operator.notices import Notices


class NodeNotices:
    """Tracks which nodes are cordoned, and reports every change once."""

    def __init__(self, client: KubernetesClient, notices: Notices, *, namespace: str, installation: str) -> None:
        self._client = client
        self._notices = notices
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._label = selector(installation)
        self._cordoned: dict[str, bool] = {}
        self._log = structlog.get_logger("nodes")

    async def seen(self, node: Mapping[str, Any], *, deleted: bool) -> None:
        """Takes a node's current state.

        Raises:
            Problem: its pods cannot be listed.
        """
        name = str(node["metadata"]["name"])
        cordoned = bool((node.get("spec") or {}).get("unschedulable"))
        before = self._cordoned.get(name)
        if deleted:
            self._cordoned.pop(name, None)
            self._log.warning("node deleted", node=name)
            return
        self._cordoned[name] = cordoned
        if cordoned and not before:
            await self._cordon(name)
        elif before and not cordoned:
            self._log.info("node back in service", node=name)

    async def _cordon(self, name: str) -> None:
        query = {"labelSelector": self._label, "fieldSelector": f"spec.nodeName={name}"}
        pods = (await self._client.list(self._path, query)).items
        self._log.warning(
            "node cordoned: no sandbox starts on it, a drain ends its sandboxes", node=name, on_it=len(pods)
        )
        for pod in pods:
            message = f"node {name} is cordoned: this sandbox runs on until it ends, or is evicted by a drain"
            await self._notices.write(pod, "NodeCordoned", message)
