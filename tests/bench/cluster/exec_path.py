"""exec of `true` in gVisor pods, against `kubectl exec` and the Kubernetes client's `stream()` into the same pods."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import aiohttp
from kubernetes import client as kubernetes_client
from kubernetes import config as kubernetes_config
from kubernetes.stream import stream

from rollbox import Client, Sandbox
from rollbox.bench.arrivals import closed_loop
from tests.bench.cluster import limit
from tests.bench.cluster.fill import filled
from tests.bench.progress import doing
from tests.bench.record import Baseline, Record, distribution
from tests.bench.took import took_ms
from tests.support.installed import Installed, kubeconfig, kubectl

SANDBOXES = 100
# In flight -> (execs of ours, of kubectl, of stream()).
COUNTS = {1: (1000, 20, 60), 20: (4000, 60, 200), 100: (6000, 100, 300)}
IN_ONE = 16
PARTS = ("queue", "spawn", "run", "sidecar", "total")


@dataclass(frozen=True)
class Sums:
    """What the gateways have counted: executions, and seconds by part."""

    count: float
    seconds: dict[str, float]

    @classmethod
    async def read(cls, product: Installed) -> Sums:
        """From the metrics of all gateways: a connection may be with any of them."""
        texts = []
        async with aiohttp.ClientSession() as http:
            for pod in await product.component("gateway"):
                async with http.get(f"http://{pod['status']['podIP']}:8080/metrics") as answer:
                    texts.append(await answer.text())
        sums = {part: sum(_value(text, f"rollbox_gateway_exec_{part}_seconds_sum") for text in texts) for part in PARTS}
        return cls(sum(_value(text, "rollbox_gateway_exec_total_seconds_count") for text in texts), sums)

    def means_ms(self, before: Sums) -> dict[str, float]:
        """Mean of each part of the executions since ``before``, in ms."""
        count = self.count - before.count
        return {part: (self.seconds[part] - before.seconds[part]) / count * 1e3 for part in PARTS}


def _value(text: str, name: str) -> float:
    found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"the gateway has no metric {name}")
    return float(found[1])


class Ways:
    """The ways to run `true` in lane `n`'s sandbox."""

    def __init__(self, product: Installed, sandboxes: list[Sandbox], threads: ThreadPoolExecutor) -> None:
        self._product = product
        self._sandboxes = sandboxes
        self._threads = threads
        self._own = threading.local()
        kubernetes_config.load_kube_config(str(kubeconfig()))  # type: ignore[no-untyped-call]

    @property
    def count(self) -> int:
        """How many sandboxes there are."""
        return len(self._sandboxes)

    async def ours(self, lane: int) -> None:
        """Through SDK, gateway and sidecar."""
        result = await self._sandbox(lane).exec(["true"])
        if result.exit_code != 0:
            raise RuntimeError(f"exec of true ended with {result}")

    async def kubectl(self, lane: int) -> None:
        """As people do it: a process for every call."""
        where = ("-n", self._product.sandboxes, self._sandbox(lane).id, "-c", "target")
        await kubectl("exec", *where, "--", "true")

    async def stream(self, lane: int) -> None:
        """As programs do it: the Python client, in one process, no process start in the figure."""
        await self._in_thread(self._stream, lane)

    async def stream_anew(self, lane: int) -> None:
        """The same with a new client for every call: the baseline of the version before."""
        await self._in_thread(self._stream_anew, lane)

    async def _in_thread(self, call: Callable[[str], None], lane: int) -> None:
        await asyncio.get_running_loop().run_in_executor(self._threads, call, self._sandbox(lane).id)

    def _stream(self, pod: str) -> None:
        # A client for each thread, kept: `stream` swaps a method of the one it is given, which no two may share. The
        # connection, and its TLS, are new for every call: the library has no other way.
        if not hasattr(self._own, "api"):
            self._own.api = kubernetes_client.CoreV1Api(kubernetes_client.ApiClient())
        self._run(self._own.api, pod)

    def _stream_anew(self, pod: str) -> None:
        self._run(kubernetes_client.CoreV1Api(kubernetes_client.ApiClient()), pod)

    def _run(self, api: kubernetes_client.CoreV1Api, pod: str) -> None:
        stream(
            api.connect_get_namespaced_pod_exec,
            pod,
            self._product.sandboxes,
            container="target",
            command=["true"],
            stdout=True,
            stderr=True,
            _request_timeout=120,
        )

    def _sandbox(self, lane: int) -> Sandbox:
        return self._sandboxes[lane % len(self._sandboxes)]


async def measure(product: Installed) -> list[Record]:
    """The records of this scenario. Cost: some minutes, most of them for 100 sandboxes and for kubectl."""
    async with contextlib.AsyncExitStack() as exits:
        client = await exits.enter_async_context(Client(product.url, product.api_key))
        threads = exits.enter_context(ThreadPoolExecutor(max(COUNTS)))
        async with filled(client, 1, "exec-path-one") as one:
            alone = Ways(product, one, threads)
            records = [*await _at(1, alone), *await _split(product, alone), *await _in_one(alone)]
            records.append(await limit.measure(1, one))
        sandboxes = await exits.enter_async_context(filled(client, SANDBOXES, "exec-path"))
        ways = Ways(product, sandboxes, threads)
        records += [*await _at(20, ways), *await _at(100, ways)]
        return [*records, *[await limit.measure(at_once, sandboxes) for at_once in (20, 100)]]


async def _at(at_once: int, ways: Ways) -> list[Record]:
    ours, theirs, streamed = COUNTS[at_once]
    doing(f"{at_once} at once, against kubectl and stream()")
    await closed_loop(at_once, max(at_once, ours // 10), ways.ours)
    mine = distribution(took_ms(await closed_loop(at_once, ours, ways.ours)))
    by_kubectl = distribution(took_ms(await closed_loop(at_once, theirs, ways.kubectl)))
    by_stream = distribution(took_ms(await closed_loop(at_once, streamed, ways.stream)))
    by_stream_anew = distribution(took_ms(await closed_loop(at_once, streamed, ways.stream_anew)))
    name = f"exec of true in gVisor, {at_once} at once in different sandboxes"
    where = f"closed loop, {ways.count} sandboxes on the node, everything on this machine"
    against = {
        "kubectl exec": by_kubectl,
        "stream() of the client": by_stream,
        "stream() of a new client each": by_stream_anew,
    }
    return [
        *(
            Record(
                f"{name}, p50, against {what}",
                mine["p50"],
                "ms",
                f"{where}; {mine['n']:.0f} of ours, {other['n']:.0f} of theirs",
                Baseline(f"{what}, p50", other["p50"], other),
                distribution=mine,
            )
            for what, other in against.items()
        ),
        _tail(name, mine, where),
    ]


def _tail(name: str, mine: dict[str, float], where: str) -> Record:
    # Said as a ratio of p50 to p99, so that "at most 5 times" is "at least 0.2".
    return Record(
        f"{name}, p99 against p50",
        mine["p99"],
        "ms",
        where,
        Baseline("p50 of the same execs", mine["p50"], mine),
        distribution=mine,
    )


async def _in_one(ways: Ways) -> list[Record]:
    doing(f"{IN_ONE} at once in one sandbox")
    await closed_loop(IN_ONE, 320, ways.ours)
    mine = distribution(took_ms(await closed_loop(IN_ONE, 3200, ways.ours)))
    other = distribution(took_ms(await closed_loop(IN_ONE, 48, ways.kubectl)))
    name = f"exec of true in gVisor, {IN_ONE} at once in one sandbox"
    where = "closed loop, one sandbox, everything on this machine"
    baseline = Baseline("kubectl exec, p50", other["p50"], other)
    return [
        Record(f"{name}, p50, against kubectl exec", mine["p50"], "ms", where, baseline, distribution=mine),
        _tail(name, mine, where),
    ]


async def _split(product: Installed, ways: Ways) -> list[Record]:
    doing("parts of an exec")
    before = await Sums.read(product)
    mine = took_ms(await closed_loop(1, 1000, ways.ours))
    means = (await Sums.read(product)).means_ms(before)
    whole = sum(mine) / len(mine)
    parts = {
        "SDK and HTTP": whole - means["total"],
        "gateway's queue": means["queue"],
        "gateway": means["total"] - means["queue"] - means["sidecar"],
        "hop to the sidecar": means["sidecar"] - means["spawn"] - means["run"],
        "spawn": means["spawn"],
        "run": means["run"],
    }
    where = f"means over {len(mine)} execs of true, one at a time; the whole is {whole:.2f} ms"
    return [Record(f"part of an exec in gVisor: {name}", value, "ms", where) for name, value in parts.items()]
