"""Kubernetes Events on sandboxes' pods: what ``kubectl describe`` shows an operator."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

import structlog

from controlplane.clock import Clock
from controlplane.cluster.kubernetes.client import KubernetesClient
from controlplane.errors import Problem

WITHIN_S: Final = 10.0


class Notices:
    """Writes Events; one that cannot be written is logged, and nothing waits for it."""

    def __init__(self, client: KubernetesClient, clock: Clock, namespace: str) -> None:
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._log = structlog.get_logger("notices")

    async def tell(self, pod: Mapping[str, Any], reason: str, message: str) -> None:
        """Writes one Event about a pod."""
        try:
            path = f"/api/v1/namespaces/{self._namespace}/events"
            await self._client.create(path, self._event(pod, reason, message), within_s=WITHIN_S)
        except Problem as problem:
            self._log.warning("event not written", reason=reason, detail=problem.detail)

    def _event(self, pod: Mapping[str, Any], reason: str, message: str) -> dict[str, Any]:
        about = pod["metadata"]
        now = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{about['name']}.{uuid4().hex[:16]}", "namespace": self._namespace},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": about["name"],
                "namespace": self._namespace,
                "uid": about.get("uid"),
            },
            "type": "Warning",
            "reason": reason,
            "message": message,
            "source": {"component": "rollbox-operator"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
