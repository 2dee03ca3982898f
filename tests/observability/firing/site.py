"""Where faults are injected: a release with a mirror, node agents and a scaler, and a Prometheus with hasty rules."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from rollbox import Client
from tests.cluster.layout import LAZY_RELEASE
from tests.e2e.test_lazy_starts import AGENT, Place, open_place
from tests.observability.firing.hasty import hasty
from tests.observability.live.scraping import Prometheus, scraping
from tests.support.authority import Authority
from tests.support.faults import processes_of
from tests.support.installed import ROOT, Installed, kubectl, node_address
from tests.support.node_provider import NodeProvider, provided
from tests.support.outside import ALLOWED
from tests.support.stack import free_port
from tests.support.waiting import until

RULES = ROOT / "helm/files/rules.yaml"
# Gateways are scraped so often that the shortest window, ten seconds, has five of their samples.
EVERY = "2s"
# Nobody is at this address: no test of alerts reaches anything through egress.
EGRESS = (
    "egress.enabled=true",
    "egress.replicas=1",
    "egress.resources.requests.cpu=5m",
    "egress.packages.enabled=true",
    "egress.packages.resources.requests.cpu=5m",
    "egress.packages.resources.requests.memory=32Mi",
    f"egress.allowedPrivateCidrs[0]={ALLOWED}/32",
    # Of the pod itself, which has no name server. At an address where nobody is, a machine's own network may answer.
    "egress.dnsServers[0]=127.0.0.1:53",
)
PROVIDER = "provider"
NODES = "remote"


@dataclass(frozen=True)
class Site:
    """The release, what scrapes it, and a client of it.

    Attributes:
        place: the release with the registry from which its mirror copies.
        stack: the release.
    """

    place: Place
    stack: Installed
    prometheus: Prometheus
    client: Client
    nodes: NodeProvider

    async def firing(self) -> set[str]:
        """The alerts that fire now."""
        found = await self.prometheus.alerts()
        return {one["labels"]["alertname"] for one in found if one["state"] == "firing"}

    async def scale(self, component: str, replicas: int) -> None:
        """So many replicas of a part; returns when its pods are there, or are gone."""
        label = f"app.kubernetes.io/component={component}"
        await kubectl(
            "scale", "deployment,statefulset", "-l", label, "-n", self.stack.namespace, f"--replicas={replicas}"
        )
        await until(lambda: self._as_many(component, replicas), 120)

    async def _as_many(self, component: str, replicas: int) -> bool:
        await asyncio.sleep(0.5)
        pods = await self.stack.component(component)
        conditions = [one for pod in pods for one in pod["status"].get("conditions", ()) if one["type"] == "Ready"]
        return bool(len(pods) == replicas == sum(one["status"] == "True" for one in conditions))

    async def process(self, component: str, name: str) -> int:
        """The process of this name in the first pod of a part, on this machine.

        Raises:
            RuntimeError: there is none.
        """
        pod = next(one for one in await self.stack.component(component) if "deletionTimestamp" not in one["metadata"])
        found = await asyncio.to_thread(lambda: list(processes_of(pod["metadata"]["uid"], name)))
        if len(found) != 1:
            raise RuntimeError(f"{component} has {len(found)} processes {name}")
        return found[0]


@contextlib.asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Site]:
    """The release while the block runs; gone without a trace afterwards."""
    rules = folder / "hasty.yaml"
    rules.write_text(yaml.safe_dump(dict(hasty(yaml.safe_load(RULES.read_text())))))
    address = await node_address()
    port = free_port(address)
    nodes = NodeProvider([NODES], _machine, _no_machine)
    # No node pool gives a node: what has no room on the nodes has none at all.
    nodes.stock = 0
    tls = Authority().write(folder / "tls", PROVIDER)
    async with (
        provided(nodes, tls, address, port),
        _credentials(tls),
        open_place(folder, *AGENT, *EGRESS, *_scaling(f"{address}:{port}")) as place,
        scraping(place.stack.namespace, folder, rules, EVERY) as prometheus,
        Client(place.stack.url, place.stack.api_key) as client,
    ):
        await until(lambda: _all_answer(prometheus), 120)
        yield Site(place, place.stack, prometheus, client, nodes)


async def _machine(group: str, name: str) -> str:
    raise AssertionError(f"{group} has no stock, and was asked for {name}")


async def _no_machine(name: str) -> None:
    raise AssertionError(f"there is no machine {name}")


async def _all_answer(prometheus: Prometheus) -> bool:
    targets = await prometheus.targets()
    return bool(targets) and all(one["health"] == "up" for one in targets)


def _scaling(address: str) -> tuple[str, ...]:
    pool = {
        "name": NODES,
        "labels.rollbox-test/pool": NODES,
        "max": 1,
        "grpc.group": NODES,
        "size.cpuMillicores": 4000,
        "size.memoryMebibytes": 8192,
        "size.diskMebibytes": 20480,
        "size.pods": 64,
    }
    return (
        "scaling.enabled=true",
        f"scaling.grpc.address={address}",
        f"scaling.grpc.serverName={PROVIDER}",
        f"scaling.grpc.tlsSecret={PROVIDER}",
        *(f"scaling.nodePools[0].{name}={value}" for name, value in pool.items()),
    )


@contextlib.asynccontextmanager
async def _credentials(tls: Path) -> AsyncIterator[None]:
    await kubectl("create", "namespace", LAZY_RELEASE)
    try:
        files = (f"--from-file={tls / name}" for name in ("ca.crt", "tls.crt", "tls.key"))
        await kubectl("create", "secret", "generic", PROVIDER, "-n", LAZY_RELEASE, *files)
        yield
    finally:
        await kubectl("delete", "namespace", LAZY_RELEASE, "--ignore-not-found", "--timeout=120s")
