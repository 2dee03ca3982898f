"""The Kubernetes transport: starts, watches, facts and stops of a herd of pods, against a played API server."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median

from controlplane.cluster import Boot
from controlplane.cluster.kubernetes import KubernetesCluster, cluster
from controlplane.cluster.kubernetes.api_server.client import KubernetesClient
from controlplane.model import SandboxSpec
from controlplane.settings import KubernetesSettings
from tests.bench.ab.kubernetes_client import LibraryClient
from tests.bench.record import Baseline, Record, of_rounds
from tests.support.fake_kubernetes import NAMESPACE

HERD = 200
ROUNDS = 8
SPEC = SandboxSpec(image="localhost/bench/played:1")
BOOT = Boot("t" * 200, "k" * 43, json.dumps({"record": "r" * 900}))
FACTS = {"ready_at_ms": "1800000000000", "address": "http://10.0.0.1:7070", "kernel": "k"}


@asynccontextmanager
async def _opened(client: type[KubernetesClient]) -> AsyncIterator[KubernetesCluster]:
    with tempfile.TemporaryDirectory() as folder:
        command = (sys.executable, "-m", "tests.bench.ab.api_server", folder)
        with subprocess.Popen(command, stdout=subprocess.PIPE) as server:  # noqa: ASYNC220 - before anything is measured
            try:
                assert server.stdout is not None
                await asyncio.to_thread(server.stdout.readline)
                vars(cluster)["KubernetesClient"] = client
                settings = KubernetesSettings(
                    namespace=NAMESPACE,
                    installation="r",
                    sidecar_image="sidecar:1",
                    ready_url="http://127.0.0.1:8082",
                    runtime_class="gvisor",
                    required_kernel="gVisor",
                    dns_shards=16,
                    starts_per_node=1024,
                    priority_class="",
                    node_selector={},
                    tolerations=(),
                    image_pull_secrets=(),
                    kubeconfig=Path(folder) / "kubeconfig",
                )
                async with KubernetesCluster.open(settings) as opened:
                    yield opened
            finally:
                server.kill()


async def _herd(opened: KubernetesCluster, names: list[str]) -> float:
    """The milliseconds of this process for the life of one pod."""
    before_s = time.process_time()
    await asyncio.gather(*(opened.start(name, SPEC, BOOT) for name in names))
    while any(opened.placement(name) is None for name in names):  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.05)
    await asyncio.gather(*(opened.annotate(name, FACTS) for name in names))
    await asyncio.gather(*(opened.stop(name) for name in names))
    return (time.process_time() - before_s) * 1000 / len(names)


async def measure() -> list[Record]:
    """The records of this scenario. Cost: a minute."""
    clients = {"ours": KubernetesClient, "ours again": KubernetesClient, "library transport": LibraryClient}
    seen: dict[str, list[float]] = {name: [] for name in clients}
    async with AsyncExitStack() as stack:
        ways = {name: await stack.enter_async_context(_opened(client)) for name, client in clients.items()}
        for number in range(ROUNDS + 1):
            for name in list(ways)[:: -1 if number % 2 else 1]:
                seen[name].append(await _herd(ways[name], [f"sb-{number}x{one}" for one in range(HERD)]))
    # The first round opens connections.
    spent = {name: values[1:] for name, values in seen.items()}
    ours = spent.pop("ours")
    return [
        Record(
            f"CPU of the control plane for the calls and events of a pod, against {way}",
            median(ours),
            "ms",
            f"{HERD} pods at once: start, four events each, facts, stop; a played API server in another process",
            Baseline(way, median(theirs), of_rounds(theirs)),
            distribution=of_rounds(ours),
        )
        for way, theirs in spent.items()
    ]
