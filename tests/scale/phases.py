"""What a simulation does, one phase after the other; each leaves its figures in the report."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from controlplane.cluster.kubernetes.api_server.client import KubernetesClient
from rollbox import Client, Sandbox
from rollbox.errors import NodeLost, SandboxError
from tests.scale import cluster, requests
from tests.scale.added_nodes import GROUP
from tests.scale.burst import Outcomes, burst
from tests.scale.pods import Sidecars
from tests.scale.product import Product
from tests.scale.usage import Samples, between
from tests.support.node_provider import NodeProvider

# By digest: what is here is what a node has, so no registry is asked.
IMAGE = f"registry.example.com/played@sha256:{'5c' * 32}"
BARE = "bare-"
START_TIMEOUT_S = 1800.0
TTL_S = 7200.0
PODS = f"/api/v1/namespaces/{cluster.SANDBOXES}/pods"
# Sandboxes of a lost node in which a command runs when that happens.
CALLED = 256
MOST_LOST_STARTS = 3
# As many calls as a gateway holds at a time, so that no process needs more open files than it may have.
CREATES_AT_ONCE = 4096


@dataclass
class Simulation:
    """A product on a played cluster, and what was measured.

    Attributes:
        lost_nodes: those that will be lost.
        provider: of the nodes that the scaler asks for; None: there is no scaler.
        report: figures by phase.
        phases: name, beginning and end of each, in seconds of `samples`.
        sandboxes: those that live.
        curves: moments and durations for plots, in seconds.
        lost_starts: creates that were told that their node was lost before they had a sandbox.
    """

    product: Product
    sidecars: Sidecars
    api: KubernetesClient
    clients: Sequence[Client]
    samples: Samples
    lost_nodes: Sequence[str]
    provider: NodeProvider | None = None
    report: dict[str, Any] = field(default_factory=dict)
    phases: list[tuple[str, float, float]] = field(default_factory=list)
    sandboxes: list[Sandbox] = field(default_factory=list)
    curves: dict[str, list[float]] = field(default_factory=dict)
    lost_starts: int = 0

    @asynccontextmanager
    async def phase(self, name: str) -> AsyncIterator[dict[str, Any]]:
        """Figures of one phase, which the block fills in; told when it ends."""
        began_s, figures = self.samples.now_s(), self.report.setdefault(name, {})
        used = self.samples.latest()
        try:
            yield figures
        finally:
            ended_s = self.samples.now_s()
            self.phases.append((name, began_s, ended_s))
            figures["took_s"] = ended_s - began_s
            figures["cpu_s"] = between(used, self.samples.latest())
            print(f"{name}: {json.dumps(figures)}", flush=True)
            if fallen := self.product.fallen():
                raise RuntimeError("\n".join(fallen))

    async def bare(self, count: int) -> None:
        """As many pods as sandboxes, of the same manifest, by nothing but the API server; then they are removed."""
        manifest = await self._manifest()
        async with self.phase("bare pods") as figures:
            asked, began_s = await asyncio.to_thread(requests.served), time.monotonic()
            reached = asyncio.create_task(self._running(count, began_s))
            await asyncio.gather(*(self._bare_pod(manifest, number) for number in range(count)))
            figures["created_s"] = time.monotonic() - began_s
            self.curves["bare pods"] = await reached
            figures.update({"pods": count, "per_second": count / self.curves["bare pods"][-1]})
            figures["requests_each"] = requests.per_pod(asked, await asyncio.to_thread(requests.served), count)
        async with self.phase("bare pods removed"):
            gone = (self.api.delete(f"{PODS}/{BARE}{number}", {"gracePeriodSeconds": 0}) for number in range(count))
            await asyncio.gather(*gone)
            while any(name.startswith(BARE) for name in self.sidecars.pods_running):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.1)

    async def fill(self, count: int) -> None:
        """From nothing to so many, all asked for at once, alternately at each gateway."""
        async with self.phase("fill") as figures:
            numbers, asked = range(count), await asyncio.to_thread(requests.served)
            outcomes = await burst(self._create, numbers, min(count, CREATES_AT_ONCE))
            self.sandboxes += outcomes.answers
            figures.update(outcomes.figures())
            self.curves["fill"] = sorted(outcomes.at_s)
            if bare := self.report.get("bare pods"):
                figures["of_bare"] = figures["per_second"] / bare["per_second"]
            # Facts of the last ones are written a little after they were answered.
            await asyncio.sleep(6)
            figures["requests_each"] = requests.per_pod(asked, await asyncio.to_thread(requests.served), count)
        self.report["fill"]["per_thousand"] = self._per_thousand()
        self.report["fill"]["nodes"] = self._packing()

    async def execs(self, rounds: int = 2) -> None:
        """A command in every sandbox at once; the second round finds the connections there."""
        for number in range(rounds):
            async with self.phase(f"execs, round {number + 1}") as figures:
                outcomes = await burst(_identify, self.sandboxes, len(self.sandboxes))
                wrong = sum(not same for same in outcomes.answers)
                figures.update({**outcomes.figures(), "answered by another sandbox": wrong})
                self.curves[f"execs {number + 1}"] = sorted(outcomes.took_s)

    async def churn(self, seconds: float, at_once: int = 32) -> None:
        """Sandboxes are deleted and others created in their place, each with one command."""
        # On a full cluster their pods would still have the room, and the scaler would add a node.
        await self._leave(min(2 * at_once, len(self.sandboxes) // 4))
        async with self.phase("churn") as figures:
            figures.update((await self._churned(seconds, min(at_once, len(self.sandboxes) // 2))).figures())

    async def upgrade(self) -> None:
        """Every control plane and gateway is replaced, one after the other, under commands and churn."""
        async with self.phase("upgrade") as figures:
            names = [name for name in self.product.parts if name.startswith(("plane-", "gateway-"))]
            stop = asyncio.Event()
            busy = asyncio.create_task(self._busy_while(stop))
            for name in names:
                await self.product.replace(name)
            stop.set()
            figures.update({"replaced": names, **(await busy)})

    async def nodes_lost(self, zone: str) -> None:
        """All nodes of a zone fall silent while commands run there; the scaler replaces them for who creates again."""
        async with self.phase("nodes lost") as figures:
            named, gone = {sandbox.id: sandbox for sandbox in self.sandboxes}, set(self.lost_nodes)
            there = [name for name, pod in self.sidecars.running.items() if pod.node in gone and name in named]
            calls = [asyncio.create_task(_told_end(named[name])) for name in there[:CALLED]]
            await asyncio.sleep(2)
            began_s = time.monotonic()
            await self.product.kill(f"kwok-{zone}")
            lost = {name for node in gone for name in self.sidecars.lose(node)}
            again = [asyncio.create_task(self._again(call, number)) for number, call in enumerate(calls)]
            asked = asyncio.create_task(self._asked_nodes(self._added()))
            figures["all_ended_s"] = await self._until_ended(lost, began_s)
            told = [await call for call in calls]
            figures.update({"nodes": len(gone), "sandboxes": len(lost), "calls": len(told)})
            figures.update({"ends": sorted({code for code, _ in told})})
            figures["first_call_told_s"] = min((at_s - began_s for _, at_s in told), default=0.0)
            figures["last_call_told_s"] = max((at_s - began_s for _, at_s in told), default=0.0)
            back = [await one for one in again]
            figures["first_back_s"] = min((at_s - began_s for _, at_s in back), default=0.0)
            figures["last_back_s"] = max((at_s - began_s for _, at_s in back), default=0.0)
            figures["starts_lost_with_their_node"] = self.lost_starts
            self.sandboxes = [one for one in self.sandboxes if one.id not in lost] + [one for one, _ in back]
        async with self.phase("refill") as figures:
            rest = len(lost) - len(back)
            outcomes = await burst(self._create, range(rest), max(1, rest))
            self.sandboxes += outcomes.answers
            figures.update({**outcomes.figures(), "nodes_added": self._added()})
            # None where the churn has had a node added that has room for them.
            figures["nodes_asked_s_after_silence"] = await asked - began_s if asked.done() else None
            asked.cancel()

    async def nodes_go(self) -> None:
        """The nodes that the scaler has asked for go, since nothing needs them any more."""
        async with self.phase("nodes go") as figures:
            began_s, figures["nodes"] = time.monotonic(), self._added()
            async with asyncio.timeout(900):
                while self._added():  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.2)
            figures["gone_s"] = time.monotonic() - began_s

    async def settle(self) -> None:
        """All are deleted by their label; how long until no pod is left."""
        async with self.phase("delete all") as figures:
            began_s = time.monotonic()
            report = await self.clients[0].delete(labels={"run": "scale"})
            figures.update({"deleted": len(report.deleted), "answered_s": time.monotonic() - began_s})
            async with asyncio.timeout(600):
                while self.sidecars.pods_running:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.2)
            figures["gone_s"] = time.monotonic() - began_s
        self.report["sidecars"] = await self.sidecars.tell()

    async def _manifest(self) -> dict[str, Any]:
        sandbox = await self._create(0)
        pod = await asyncio.to_thread(cluster.manifest_of, f"pod/{sandbox.id}")
        await sandbox.delete()
        pod["metadata"] = {"annotations": pod["metadata"]["annotations"]}
        del pod["status"], pod["spec"]["nodeName"]
        return pod

    async def _bare_pod(self, manifest: dict[str, Any], number: int) -> None:
        about = {**manifest["metadata"], "name": f"{BARE}{number}"}
        await self.api.create(PODS, {**manifest, "metadata": about}, within_s=START_TIMEOUT_S)

    async def _running(self, count: int, began_s: float) -> list[float]:
        """When the first, the second, ... of so many bare pods ran, in seconds."""
        moments: list[float] = []
        while len(moments) < count:
            running = sum(name.startswith(BARE) for name in self.sidecars.pods_running)
            moments += [time.monotonic() - began_s] * (running - len(moments))
            await asyncio.sleep(0.05)
        return moments

    async def _create(self, number: int) -> Sandbox:
        client = self.clients[number % len(self.clients)]
        options: Any = {"ttl": TTL_S, "start_timeout": START_TIMEOUT_S, "labels": {"run": "scale"}}
        return await Sandbox.create(IMAGE, client=client, **options)

    async def _again(self, call: asyncio.Task[tuple[str, float]], number: int) -> tuple[Sandbox, float]:
        """Creates another sandbox as soon as a call has been told the end of its own; it, and when."""
        await call
        for _ in range(MOST_LOST_STARTS):
            # A node that falls silent with others may get a start before its cluster knows. The error says what to do.
            with suppress(NodeLost):
                return await self._create(number), time.monotonic()
            self.lost_starts += 1
        raise AssertionError(f"{MOST_LOST_STARTS} starts in a row were lost with their nodes")

    async def _asked_nodes(self, there: int) -> float:
        """When the scaler has asked for more nodes than there were."""
        while self._added() <= there:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.1)
        return time.monotonic()

    async def _leave(self, count: int) -> None:
        """So many are deleted; returns when their pods are gone."""
        gone, self.sandboxes = self.sandboxes[:count], self.sandboxes[count:]
        await asyncio.gather(*(one.delete() for one in gone))
        while {one.id for one in gone} & self.sidecars.pods_running:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.1)

    def _added(self) -> int:
        return 0 if self.provider is None else len(self.provider.groups[GROUP].machines)

    async def _churned(self, seconds: float, at_once: int, spared: int = 0) -> Outcomes[bool]:
        """Replaces sandboxes, but not the first so many."""
        until_s, outcomes = time.monotonic() + seconds, Outcomes[bool]()

        async def turn(number: int) -> bool:
            at = random.randrange(spared, len(self.sandboxes))
            self.sandboxes[at], last = self.sandboxes[-1], self.sandboxes[at]
            self.sandboxes.pop()
            await last.delete()
            fresh = await self._create(number)
            same = await _identify(fresh)
            self.sandboxes.append(fresh)
            return same

        while time.monotonic() < until_s:
            some = await burst(turn, range(at_once), at_once)
            outcomes.took_s += some.took_s
            outcomes.answers += some.answers
            outcomes.failed += some.failed
            outcomes.words += some.words
            outcomes.whole_s += some.whole_s
        return outcomes

    async def _busy_while(self, stop: asyncio.Event) -> dict[str, Any]:
        """Commands of a second, by the gateways' Service, until told to stop; and a few creates and deletes."""
        ran: Outcomes[bool] = Outcomes()
        made: Outcomes[bool] = Outcomes()
        spared = len(self.sandboxes) // 2
        async with self.product.client_of_all() as client:
            while not stop.is_set():
                some = random.sample(self.sandboxes[:spared], min(64, spared))
                reached = [await client.connect(one.id) for one in some[:8]]
                execs = burst(_identify_in_a_second, [*some[8:], *reached], 64)
                one, churned = await asyncio.gather(execs, self._churned(1.0, 4, spared))
                for of, into in ((one, ran), (churned, made)):
                    into.took_s += of.took_s
                    into.answers += of.answers
                    into.failed += of.failed
                    into.whole_s += of.whole_s
                    into.words += of.words
        told = {"execs": ran.figures(), "churn": made.figures()}
        return {**told, "failures": {**ran.failed, **made.failed}}

    async def _until_ended(self, lost: set[str], began_s: float) -> float:
        async with asyncio.timeout(300):
            while True:
                ended = {one.id for one in await self.clients[0].list(all=True) if one.state == "ended"}
                if lost <= ended:
                    return time.monotonic() - began_s
                await asyncio.sleep(0.5)

    def _per_thousand(self) -> list[dict[str, float]]:
        """What the control planes hold and have used when each further quarter of the sandboxes lived."""
        name, began_s, ended_s = self.phases[-1]
        assert name == "fill"
        rows = [row for row in self.samples.rows if began_s <= row[0] <= ended_s]
        most = max((live for _, live, _ in rows), default=0)
        told = []
        for quarter in range(1, 5):
            found = next(((at, live, used) for at, live, used in rows if live >= most * quarter // 4), None)
            if found is None:
                continue
            planes = [used for part, used in found[2].items() if part.startswith("plane-")]
            first = [used for part, used in rows[0][2].items() if part.startswith("plane-")]
            cpu_s = sum(one.cpu_s for one in planes) - sum(one.cpu_s for one in first)
            memory = sum(one.resident_bytes for one in planes) / len(planes)
            told.append(
                {"live": found[1], "plane_mib": memory / 2**20, "planes_cpu_s_per_1000": 1000 * cpu_s / found[1]}
            )
        return told

    def _packing(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for pod in self.sidecars.running.values():
            found[pod.node] = found.get(pod.node, 0) + 1
        return found


async def _identify(sandbox: Sandbox) -> bool:
    """A command; whether this sandbox itself has answered."""
    result = await sandbox.exec(["true"], timeout=300)
    return bool(result.stdout == sandbox.id)


async def _identify_in_a_second(sandbox: Sandbox) -> bool:
    result = await sandbox.exec(["sleep", "1"], timeout=300)
    return bool(result.stdout == sandbox.id)


async def _told_end(sandbox: Sandbox) -> tuple[str, float]:
    """What a command is told whose sandbox is lost, and when."""
    try:
        await sandbox.exec(["sleep", "600"], timeout=700)
    except SandboxError as error:
        return error.code, time.monotonic()
    return "exited", time.monotonic()
