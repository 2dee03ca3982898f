"""Addresses in a cluster, as its API server tells them."""

from __future__ import annotations

import json

from tests.support.installed import kubectl
from tests.support.waiting import until


async def service(name: str, namespace: str) -> str:
    """The cluster address of a Service."""
    found = json.loads(await kubectl("get", "service", name, "-n", namespace, "-o", "json"))
    return str(found["spec"]["clusterIP"])


async def pod_address(name: str, namespace: str) -> str:
    """The address of a pod; a sandbox is ready before the API server knows its address."""

    async def known() -> str:
        found = json.loads(await kubectl("get", "pod", name, "-n", namespace, "-o", "json"))
        return str(found["status"].get("podIP") or "")

    return await until(known)
