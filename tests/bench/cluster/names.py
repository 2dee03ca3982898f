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
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, cast

from kubernetes_asyncio import client as kubernetes_client
from kubernetes_asyncio import config as kubernetes_config

from tests.bench.cluster.fake_node import NAME, fake_node
from tests.bench.progress import doing
from tests.bench.record import Baseline, Record, distribution
from tests.support.installed import Installed, kubeconfig, kubectl, objects

PODS = 100
CHANGES_PER_S = 20.0
ASK_EVERY_S = 0.005
# Of the time waited so far: asking on at the first pace through a remembered "no" would itself be the load.
ASK_EVERY_SHARE = 0.02
ANSWER_WITHIN_S = 1.0
GIVE_UP_S = 60.0


def question(name: str, number: int) -> bytes:
    """A DNS query for the A record of `name`."""
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    return struct.pack(">HHHHHH", number, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", 1, 1)


def answered(data: bytes) -> tuple[int, bool]:
    """Of a DNS answer: the number of its question, and whether it holds an address."""
    number, _, _, answers = struct.unpack(">HHHH", data[:8])
    return number, answers > 0


@dataclass
class Resolver(asyncio.DatagramProtocol):
    """Asks one name server until a name has an address; counts nothing as an answer but an answer."""

    waiting: dict[int, asyncio.Future[bool]] = field(default_factory=dict)
    numbers: count[int] = field(default_factory=count)
    transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the transport."""
        self.transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        """Wakes who asked: with whether there was an answer."""
        number, known = answered(data)
        if (future := self.waiting.get(number)) is not None and not future.done():
            future.set_result(known)

    async def until_known(self, name: str) -> float:
        """The moment (``perf_counter``) at which the name first had an address."""
        began_s = time.perf_counter()
        async with asyncio.timeout(GIVE_UP_S):
            # A name server has no way to call back: this is what a client of DNS does.
            while not await self._ask(name):
                waited_s = time.perf_counter() - began_s
                await asyncio.sleep(max(ASK_EVERY_S, waited_s * ASK_EVERY_SHARE))
        return time.perf_counter()

    async def _ask(self, name: str) -> bool:
        number = next(self.numbers) & 0xFFFF
        future: asyncio.Future[bool]
        future = self.waiting[number] = asyncio.get_running_loop().create_future()
        assert self.transport is not None
        self.transport.sendto(question(name, number))
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                return await future
        except TimeoutError:
            return False
        finally:
            del self.waiting[number]


@contextlib.asynccontextmanager
async def resolver(address: str) -> AsyncIterator[Resolver]:
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
        doing(f"{PODS} names")
        took = await _under_churn(product, {"tuned": tuned, "default": default})
    mine, other = distribution(took["tuned"]), distribution(took["default"])
    where = f"{PODS} pods get their addresses at {CHANGES_PER_S:.0f} a second, each asked for from just before on"
    pace = f"every {ASK_EVERY_S * 1e3:.0f} ms, later every {ASK_EVERY_SHARE:.0%} of the time waited"
    return [
        Record(
            "pod has an address to its name resolves, p50, the sandboxes' CoreDNS",
            mine["p50"],
            "ms",
            f"{where}, {pace}; the pushed route needs no name at all: see readiness",
            Baseline("the cluster's CoreDNS with its defaults, which remembers a no, p50", other["p50"], other),
            distribution=mine,
        )
    ]


async def _under_churn(product: Installed, resolvers: dict[str, Resolver]) -> dict[str, list[float]]:
    classes = await objects("runtimeclasses", "-l", f"app.kubernetes.io/instance={product.release}")
    runtime = str(classes[0]["metadata"]["name"])
    names = [f"name-{secrets.token_hex(6)}" for _ in range(PODS)]
    async with kubernetes_client.ApiClient() as api:
        core = kubernetes_client.CoreV1Api(api)
        make = core.create_namespaced_pod
        pods: list[Any] = [_pod(name, product.release, runtime) for name in names]
        try:
            await asyncio.gather(*(make(product.sandboxes, pod) for pod in pods))
            async with asyncio.TaskGroup() as group:
                timed = [
                    group.create_task(_time(core, product.sandboxes, name, place / CHANGES_PER_S, resolvers))
                    for place, name in enumerate(names)
                ]
        finally:
            await core.delete_collection_namespaced_pod(
                product.sandboxes, label_selector="bench=names", grace_period_seconds=0
            )
    return {how: [one.result()[how] for one in timed] for how in resolvers}


async def _time(
    core: kubernetes_client.CoreV1Api, namespace: str, name: str, after_s: float, resolvers: dict[str, Resolver]
) -> dict[str, float]:
    """Gives one pod an address; the milliseconds until each resolver knew it."""
    await asyncio.sleep(after_s)
    host = f"{name}.shard-0.{namespace}.svc.cluster.local"
    address = socket.inet_ntoa(struct.pack(">I", 0x0A_C8_00_00 + random.randrange(1, 1 << 16)))
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
    async with asyncio.TaskGroup() as group:
        # As a user meets it: the name is asked for before it exists, so a negative answer may be remembered.
        asking = {how: group.create_task(who.until_known(host)) for how, who in resolvers.items()}
        began_s = time.perf_counter()
        await core.patch_namespaced_pod_status(name, namespace, {"status": status})
    return {how: (known.result() - began_s) * 1e3 for how, known in asking.items()}


def _pod(name: str, release: str, runtime: str) -> dict[str, Any]:
    """A pod that the namespace admits and the sandboxes' headless Service selects; nobody starts it."""
    resources = {"cpu": "1m", "memory": "1Mi", "ephemeral-storage": "1Mi"}
    container = {"name": "target", "image": "none", "resources": {"requests": resources, "limits": resources}}
    labels = {"bench": "names", "rollbox.dev/shard": "0", "rollbox.dev/installation": release}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "hostname": name,
            "subdomain": "shard-0",
            "nodeName": NAME,
            "runtimeClassName": runtime,
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "containers": [container],
        },
    }
