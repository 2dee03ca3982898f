"""Writes Kubernetes Events on sandboxes' pods and on nodes, which ``kubectl describe`` shows."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

import structlog

from controlplane.clock import Clock
from controlplane.cluster.kubernetes.api_server.client import KubernetesClient
from controlplane.errors import Problem

WITHIN_S: Final = 10.0
# The API server refuses longer messages.
MAX_MESSAGE_CHARS: Final = 1024


class Notices:
    """Writes Events; a failure to write one is only logged."""

    def __init__(self, client: KubernetesClient, clock: Clock, namespace: str) -> None:
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._log = structlog.get_logger("notices")

    async def write(self, pod: Mapping[str, Any], reason: str, message: str) -> None:
        """Writes one Event about a pod."""
        about = pod["metadata"]
        involved = {"kind": "Pod", "name": about["name"], "namespace": self._namespace, "uid": about.get("uid")}
        await self._write(self._namespace, involved, reason, message)

    async def write_for_node(self, node: str, reason: str, message: str) -> None:
        """Writes one Event about a node; Events about cluster-scoped objects are in the namespace ``default``."""
        # The uid is the node's name, as in kubelets' Events: ``kubectl describe node`` selects by that.
        await self._write("default", {"kind": "Node", "name": node, "uid": node}, reason, message)

    async def _write(self, namespace: str, involved: dict[str, Any], reason: str, message: str) -> None:
        try:
            event = self._event(namespace, involved, reason, message[:MAX_MESSAGE_CHARS])
            await self._client.create(f"/api/v1/namespaces/{namespace}/events", event, within_s=WITHIN_S)
        except Problem as problem:
            self._log.warning("event not written, skipped", reason=reason, detail=problem.detail)

    def _event(self, namespace: str, involved: dict[str, Any], reason: str, message: str) -> dict[str, Any]:
        now = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{involved['name']}.{uuid4().hex[:16]}", "namespace": namespace},
            "involvedObject": {"apiVersion": "v1", **involved},
            "type": "Warning",
            "reason": reason,
            "message": message,
            "source": {"component": "rollbox-operator"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
