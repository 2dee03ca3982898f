"""The baseline of a burst: the product's own pod manifests, made with kubectl, a bounded number of starts in flight."""

from __future__ import annotations

import asyncio
import json
import time

from rollbox import Client
from tests.bench.progress import doing
from tests.support.images import ON_CLUSTER
from tests.support.installed import Installed, kubectl, objects, run

IN_FLIGHT = 8


async def fill_by_hand(product: Installed, count: int) -> float:
    """Seconds until `count` pods like the product's are Ready; they are removed again."""
    doing(f"{count} pods by hand")
    template = await _template(product)
    slots = asyncio.Semaphore(IN_FLIGHT)
    began_s = time.perf_counter()
    try:
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                group.create_task(_start(product, template, number, slots))
        return time.perf_counter() - began_s
    finally:
        await kubectl("delete", "pods", "-n", product.sandboxes, "-l", "bench=by-hand", "--wait=true", "--timeout=300s")


async def _start(product: Installed, template: dict[str, object], number: int, slots: asyncio.Semaphore) -> None:
    name = f"by-hand-{number}"
    manifest = {**template, "metadata": {"name": name, "labels": {"bench": "by-hand"}}}
    async with slots:
        await run("kubectl", "apply", "-n", product.sandboxes, "-f", "-", stdin=json.dumps(manifest).encode())
        where = ("-n", product.sandboxes, "--for=condition=Ready", "--timeout=300s")
        await kubectl("wait", f"pod/{name}", *where)


async def _template(product: Installed) -> dict[str, object]:
    """A pod of the product's, as it made it, without its name and its place."""
    async with (
        Client(product.url, product.api_key) as client,
        await client.create(ON_CLUSTER, cpu=(0.001, 2), memory=("64Mi", "256Mi"), ttl=3600) as sandbox,
    ):
        pods = await objects("pods", "-n", product.sandboxes)
        spec = next(pod["spec"] for pod in pods if pod["metadata"]["name"] == sandbox.id)
    spec = {key: value for key, value in spec.items() if key not in {"nodeName", "hostname", "subdomain"}}
    return {"apiVersion": "v1", "kind": "Pod", "spec": spec}
