"""Addresses in a cluster, as its API server tells them."""

from __future__ import annotations

from tests.support.installed import objects
from tests.support.waiting import until


async def service(name: str, namespace: str) -> str:
    """The cluster address of a Service."""
    (found,) = await objects("services", "-n", namespace, "--field-selector", f"metadata.name={name}")
    return str(found["spec"]["clusterIP"])


async def pod_address(name: str, namespace: str) -> str:
    """The address of a pod; a sandbox is ready before the API server knows its address."""

    async def known() -> str:
        (found,) = await objects("pods", "-n", namespace, "--field-selector", f"metadata.name={name}")
        return str(found["status"].get("podIP") or "")

    return await until(known)
