"""From "the pod has an address" to "its name resolves": through the sandboxes' own CoreDNS, through the cluster's."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import secrets
import socket
import struct
import time
from dataclasses import dataclass, field
from typing import Any, cast

from kubernetes_asyncio import client as kubernetes_client
from kubernetes_asyncio import config as kubernetes_config

from tests.bench.cluster.fake_node import NAME, fake_node
from tests.bench.record import Baseline, Record, distribution
from tests.support.installed import Installed, kubeconfig, kubectl

PODS = 100
CHANGES_PER_S = 20.0
ASK_EVERY_S = 0.005
GIVE_UP_S = 60.0


def question(name: str, number: int) -> bytes:
    """A DNS query for the A record of `name`."""
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    return struct.pack(">HHHHHH", number, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", 1, 1)


@dataclass
class Resolver(asyncio.DatagramProtocol):
    """Asks one name server until a name has an address; counts nothing as an answer but an answer."""

    waiting: dict[int, asyncio.Future[bool]] = field(default_factory=dict)
    transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the transport."""
        self.transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        """Wakes who asked: with whether there was an answer."""
        number, _, _, answers = struct.unpack(">HHHH", data[:8])
        if (future := self.waiting.pop(number, None)) is not None and not future.done():
            future.set_result(answers > 0)

    async def until_known(self, name: str) -> float:
        """The moment (``perf_counter``) at which the name first had an address."""
        async with asyncio.timeout(GIVE_UP_S):
            # A name server has no way to call back: this is what a client of DNS does.
            while not await self._ask(name):  # noqa: ASYNC110
                await asyncio.sleep(ASK_EVERY_S)
        return time.perf_counter()

    async def _ask(self, name: str) -> bool:
        number = secrets.randbelow(1 << 16)
        future: asyncio.Future[bool]
        future = self.waiting[number] = asyncio.get_running_loop().create_future()
        assert self.transport is not None
        self.transport.sendto(question(name, number))
        try:
            async with asyncio.timeout(1):
                return await future
        except TimeoutError:
            return False


@contextlib.asynccontextmanager
async def resolver(address: str) -> Any:
    """A resolver that asks the server at `address`."""
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.create_datagram_endpoint(Resolver, remote_addr=(address, 53))
    try:
        yield protocol
    finally:
        transport.close()


async def _address(name: str, namespace: str) -> str:
    return str(json.loads(await kubectl("get", "service", name, "-n", namespace, "-o", "json"))["spec"]["clusterIP"])


async def measure(product: Installed) -> list[Record]:
    """The records of this scenario. Cost: a minute."""
    async with (
        fake_node(),
        resolver(await _address(f"{product.release}-dns", product.namespace)) as tuned,
        resolver(await _address("kube-dns", "kube-system")) as default,
    ):
        await kubernetes_config.load_kube_config(str(kubeconfig()))
        took = await _under_churn(product, {"tuned": tuned, "default": default})
    mine, other = distribution(took["tuned"]), distribution(took["default"])
    where = f"{PODS} pods get their addresses at {CHANGES_PER_S:.0f} a second; asked every {ASK_EVERY_S * 1e3:.0f} ms"
    return [
        Record(
            "pod has an address to its name resolves, p50, the sandboxes' CoreDNS",
            mine["p50"],
            "ms",
            "",
            f"{where}; the pushed route needs no name at all: see readiness",
            Baseline("the cluster's CoreDNS with its defaults, p50", other["p50"], other),
            distribution=mine,
        )
    ]


async def _under_churn(product: Installed, resolvers: dict[str, Resolver]) -> dict[str, list[float]]:
    core = kubernetes_client.CoreV1Api()
    names = [f"name-{secrets.token_hex(6)}" for _ in range(PODS)]
    make = core.create_namespaced_pod
    pods = [_pod(name, product.release) for name in names]
    await asyncio.gather(*(make(product.sandboxes, pod) for pod in pods))  # type: ignore[arg-type]
    took: dict[str, list[float]] = {name: [] for name in resolvers}

    async def one(place: int, name: str) -> None:
        await asyncio.sleep(place / CHANGES_PER_S)
        host = f"{name}.shard-0.{product.sandboxes}.svc.cluster.local"
        # As a user meets it: the name is asked for before it exists, so a negative answer may be remembered.
        asking = {how: asyncio.create_task(who.until_known(host)) for how, who in resolvers.items()}
        began_s = time.perf_counter()
        address = socket.inet_ntoa(struct.pack(">I", 0x0A_C8_00_00 + random.randrange(1, 1 << 16)))
        status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
        await core.patch_namespaced_pod_status(name, product.sandboxes, {"status": status})
        for how, task in asking.items():
            took[how].append((await task - began_s) * 1e3)

    try:
        await asyncio.gather(*(one(place, name) for place, name in enumerate(names)))
    finally:
        where = ("-n", product.sandboxes, "-l", "bench=names")
        await kubectl("delete", "pods", *where, "--grace-period=0", "--force", "--wait=false")
    return took


def _pod(name: str, release: str) -> dict[str, Any]:
    resources = {"cpu": "1m", "memory": "1Mi", "ephemeral-storage": "1Mi"}
    container = {"name": "target", "image": "none", "resources": {"requests": resources, "limits": resources}}
    labels = {"bench": "names", "rollbox.dev/shard": "0", "rollbox.dev/installation": release}
    spec = {"hostname": name, "subdomain": "shard-0", "nodeName": NAME, "containers": [container]}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {**spec, "automountServiceAccountToken": False},
    }
