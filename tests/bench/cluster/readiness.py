"""From "the sidecar is up" to "the client is told": pushed, and by a watch on the same cluster.

Played sidecars against the real control plane (two replicas, real store, real API server): the pods are bound to a
played node, and the scenario sends what their sidecars would send. It has no machine of its own, so what
it does itself counts against the figure: a push is written as bytes, each on a connection of its own.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from kubernetes_asyncio import client as kubernetes_client
from kubernetes_asyncio import config as kubernetes_config
from kubernetes_asyncio import watch as kubernetes_watch

from rollbox import Client
from tests.bench.cluster.fake_node import CONFIRMED_AT_ONCE, SELECTOR, TOLERATION, fake_node
from tests.bench.progress import doing
from tests.bench.record import Baseline, Record, distribution
from tests.support.images import ON_CLUSTER
from tests.support.installed import BESIDE_ANOTHER, Installed, installed, kubeconfig, kubectl
from tests.support.waiting import until

SINGLE = 200
HERD = 500
# A herd's sidecars come up over this time: three times the rate of thirty busy nodes.
SPREAD_S = 2.0
DELETED = 4000
RELEASE = "rollbox-readiness"
VALUES = (
    "controlplane.startsPerNode=1000",
    "controlplane.startsInFlight=1000",
    # Nobody plays what a sidecar answers later on.
    "controlplane.probeEverySeconds=0",
    *BESIDE_ANOTHER,
    *(f"sandboxes.tolerations[0].{key}={value}" for key, value in TOLERATION.items()),
)


@dataclass(frozen=True)
class Sidecar:
    """What a played sidecar needs: whom it speaks for, and with what."""

    sandbox_id: str
    token: str

    def push(self) -> bytes:
        """The request of its readiness push."""
        body = {
            "sandbox_id": self.sandbox_id,
            "kernel": "Linux version 4.19.0-gvisor (played)",
            "boot_us": {"target_found": 1, "entered": 2, "probed": 3},
            "address": "http://127.0.0.1:9",
        }
        text = json.dumps(body)
        head = f"Host: rollbox\r\nAuthorization: Bearer {self.token}\r\nContent-Type: application/json\r\n"
        return f"POST /v1/ready HTTP/1.1\r\n{head}Content-Length: {len(text)}\r\n\r\n{text}".encode()


class Stage:
    """The installed product with a played node."""

    def __init__(self, product: Installed, client: Client, core: kubernetes_client.CoreV1Api, ready_url: str) -> None:
        self._product = product
        self._client = client
        self._ready = urlsplit(ready_url)
        self._core = core

    async def pushed(self, count: int, spread_s: float) -> list[float]:
        """Milliseconds from each push to the answer of its create, for `count` creates that wait together."""
        doing(f"{count} pushes in {spread_s:g} s")
        labels = {"bench": f"readiness-{time.time_ns()}"}
        took_ms = await self._filled(labels, count, spread_s)
        if failed := (await self._client.delete(labels=labels, wait=True, wait_timeout=300)).failed:
            raise RuntimeError(f"{len(failed)} of {count} sandboxes did not end: {next(iter(failed.values()))}")
        return took_ms

    async def deleted(self, count: int) -> tuple[float, float]:
        """Seconds until the delete of `count` by one label answers, and until the API server has none of their pods."""
        crowd = {"crowd": f"delete-{time.time_ns()}"}
        for first in range(0, count, HERD):
            doing(f"sandbox {first} of {count} that will be deleted, and the next {HERD}")
            batch = {**crowd, "bench": f"batch-{first}"}
            await self._filled(batch, min(HERD, count - first), SPREAD_S)
        doing(f"delete of {count}")
        began_s = time.perf_counter()
        report = await self._client.delete(labels=crowd)
        answered_s = time.perf_counter() - began_s
        if len(report.deleted) != count or report.failed:
            raise RuntimeError(f"{len(report.deleted)} of {count} were deleted, {len(report.failed)} failed")
        await until(self._no_pods, 600)
        return answered_s, time.perf_counter() - began_s

    async def _no_pods(self) -> bool:
        # The control plane's own list is empty as soon as the ends are on record.
        await asyncio.sleep(0.2)
        return not (await self._core.list_namespaced_pod(self._product.sandboxes, limit=1)).items

    async def _filled(self, labels: dict[str, str], count: int, spread_s: float) -> list[float]:
        told_s: dict[str, float] = {}
        sent_s: dict[str, float] = {}
        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(self._create(labels, told_s))
            for place, sidecar in enumerate(await self._sidecars(labels, count)):
                group.create_task(self._push(sidecar, spread_s * place / count, sent_s))
        return [(told_s[one] - sent_s[one]) * 1e3 for one in sent_s]

    async def watched(self, count: int, spread_s: float) -> list[float]:
        """The same by the way of a status that the kubelet writes and a watch that tells."""
        doing(f"{count} status writes in {spread_s:g} s, for a watch")
        names = [f"watched-{time.time_ns()}-{number}" for number in range(count)]
        make = self._core.create_namespaced_pod
        await asyncio.gather(*(make(self._product.namespace, _pod(one)) for one in names))  # type: ignore[arg-type]
        told_s: dict[str, float] = {}
        sent_s: dict[str, float] = {}
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch(set(names), told_s))
            await asyncio.sleep(0.5)
            for place, name in enumerate(names):
                group.create_task(self._say_ready(name, spread_s * place / count, sent_s))
        # In one call: asking for each and waiting for it would take kubectl a minute.
        await self._core.delete_collection_namespaced_pod(
            self._product.namespace, label_selector="bench=watched", grace_period_seconds=0
        )
        return [(told_s[one] - sent_s[one]) * 1e3 for one in names]

    async def _create(self, labels: dict[str, str], told_s: dict[str, float]) -> None:
        sandbox = await self._client.create(
            ON_CLUSTER,
            cpu=(0.01, 1),
            memory=("16Mi", "64Mi"),
            labels=labels,
            node_selector=SELECTOR,
            start_timeout=600,
            lease=None,
        )
        told_s[sandbox.id] = time.perf_counter()
        await sandbox.detach()

    async def _sidecars(self, labels: dict[str, str], count: int) -> Sequence[Sidecar]:
        async with asyncio.timeout(300):
            while True:
                listed = {record.id for record in await self._client.list(labels)}
                pods = (await self._core.list_namespaced_pod(self._product.sandboxes)).items
                found = [_sidecar(pod) for pod in pods if pod.metadata.name in listed and pod.spec.node_name]
                if len(found) == count:
                    return found
                await asyncio.sleep(0.5)

    async def _push(self, sidecar: Sidecar, after_s: float, sent_s: dict[str, float]) -> None:
        push = sidecar.push()
        await asyncio.sleep(after_s)
        sent_s[sidecar.sandbox_id] = time.perf_counter()
        answers, requests = await asyncio.open_connection(self._ready.hostname, self._ready.port)
        try:
            requests.write(push)
            answer = await answers.readline()
        finally:
            requests.close()
        if answer.split()[1:2] != [b"204"]:
            raise RuntimeError(f"the push of {sidecar.sandbox_id} was answered {answer!r}")

    async def _say_ready(self, name: str, after_s: float, sent_s: dict[str, float]) -> None:
        await asyncio.sleep(after_s)
        sent_s[name] = time.perf_counter()
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        await self._core.patch_namespaced_pod_status(name, self._product.namespace, {"status": status})

    async def _watch(self, names: set[str], told_s: dict[str, float]) -> None:
        async with kubernetes_watch.Watch().stream(
            self._core.list_namespaced_pod, self._product.namespace, label_selector="bench=watched"
        ) as events:
            async for event in events:
                pod = event["object"]
                ready = any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions or ())
                if ready and pod.metadata.name in names:
                    told_s.setdefault(pod.metadata.name, time.perf_counter())
                if len(told_s) == len(names):
                    return


def _sidecar(pod: Any) -> Sidecar:
    environ = {one.name: one.value for one in pod.spec.containers[0].env}
    return Sidecar(pod.metadata.name, environ["ROLLBOX_SIDECAR_READY_TOKEN"])


def _pod(name: str) -> dict[str, Any]:
    container = {"name": "target", "image": ON_CLUSTER, "resources": {"requests": {"cpu": "1m"}}}
    return {
        "metadata": {"name": name, "labels": {"bench": "watched"}},
        "spec": {
            "nodeSelector": SELECTOR,
            "tolerations": [TOLERATION],
            "containers": [container],
            "automountServiceAccountToken": False,
        },
    }


@asynccontextmanager
async def _stage() -> AsyncIterator[Stage]:
    async with fake_node(), installed(RELEASE, *VALUES) as product:
        await kubernetes_config.load_kube_config(str(kubeconfig()))
        where = ("get", "service", f"{RELEASE}-ready", "-n", product.namespace, "-o", "json")
        service = json.loads(await kubectl(*where))["spec"]
        async with kubernetes_client.ApiClient() as api, Client(product.url, product.api_key) as client:
            yield Stage(product, client, kubernetes_client.CoreV1Api(api), f"http://{service['clusterIP']}:8082")


async def measure(product: Installed) -> list[Record]:
    """The records of this scenario. Cost: some minutes, for a release of its own and its pods."""
    async with _stage() as stage:
        await stage.pushed(10, 1.0)
        single = distribution(await stage.pushed(SINGLE, SINGLE * 0.05))
        single_watch = distribution(await stage.watched(SINGLE, SINGLE * 0.05))
        herd = distribution(await stage.pushed(HERD, SPREAD_S))
        herd_watch = distribution(await stage.watched(HERD, SPREAD_S))
        at_once = distribution(await stage.pushed(HERD, 0.0))
        at_once_watch = distribution(await stage.watched(HERD, 0.0))
        answered_s, confirmed_s = await stage.deleted(DELETED)
    played = "played sidecars, real control plane (2 replicas), store and API server, all on this machine"
    what = "the kubelet's status write until a watch tells, p99 (without the kubelet's own second)"
    shapes = (
        ("one at a time", single, single_watch, f"{SINGLE} pushes, 50 ms apart"),
        (f"a herd of {HERD}", herd, herd_watch, f"{HERD} waiting creates, pushes over {SPREAD_S} s"),
        (f"{HERD} in the same instant", at_once, at_once_watch, f"{HERD} waiting creates, pushes all at once"),
    )
    how = f"one call with one label; real control plane, store and API server, {CONFIRMED_AT_ONCE} confirmed at a time"
    delete = f"delete of {DELETED} by label"
    return [
        Record(f"{delete}, until it answers", answered_s, "s", how),
        Record(f"{delete}, until the cluster has confirmed all", confirmed_s, "s", how),
    ] + [
        Record(
            f"readiness, sidecar up to client told, p99, {shape}",
            mine["p99"],
            "ms",
            f"{how}; {played}",
            Baseline(what, other["p99"], other),
            distribution=mine,
        )
        for shape, mine, other, how in shapes
    ]
