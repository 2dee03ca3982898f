"""What an idle sandbox costs the machine, all in, and what the parts of the platform take."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

from rollbox import Client
from tests.bench.cluster.fill import filled
from tests.bench.record import Record
from tests.support.installed import Installed, kubectl, objects

SANDBOXES = 40
SETTLE_S = 10.0


def used_mib() -> float:
    """Memory of the machine that is in use: what the kernel does not call available."""
    found = dict(re.findall(r"^(MemTotal|MemAvailable):\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE))
    return (int(found["MemTotal"]) - int(found["MemAvailable"])) / 1024


async def measure(product: Installed) -> list[Record]:
    """The records of this scenario. Cost: two minutes."""
    async with Client(product.url, product.api_key) as client:
        before = used_mib()
        async with filled(client, SANDBOXES, "memory") as sandboxes:
            await asyncio.gather(*(sandbox.exec(["true"]) for sandbox in sandboxes))
            await asyncio.sleep(SETTLE_S)
            each = (used_mib() - before) / SANDBOXES
            sidecars = await _containers_mib(product, "sidecar")
    if not sidecars:
        raise RuntimeError("the kubelet tells of no sidecar")
    where = f"{SANDBOXES} idle sandboxes that have run one command, {SETTLE_S:.0f} s after the last"
    return [
        Record("memory of the machine for each idle sandbox, all in", each, "MiB", where),
        Record(
            "working set of the sidecar container as the kubelet counts it, mean",
            sum(sidecars) / len(sidecars),
            "MiB",
            f"{where}; under gVisor the runtime's share of the pod is in it",
        ),
    ]


async def _containers_mib(product: Installed, container: str) -> list[float]:
    node = (await objects("nodes"))[0]["metadata"]["name"]
    summary = json.loads(await kubectl("get", "--raw", f"/api/v1/nodes/{node}/proxy/stats/summary"))
    return [
        one["memory"]["workingSetBytes"] / 2**20
        for pod in summary["pods"]
        if pod["podRef"]["namespace"] == product.sandboxes
        for one in pod.get("containers", [])
        if one["name"] == container and "workingSetBytes" in one.get("memory", {})
    ]
