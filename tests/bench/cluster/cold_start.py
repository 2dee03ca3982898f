"""A cold create until its first exec has answered, against a watch on the same pod; and a burst of them."""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from rollbox import Client
from tests.bench.cluster.by_hand import fill_by_hand
from tests.bench.cluster.fill import filled
from tests.bench.progress import doing
from tests.bench.record import Baseline, Record, distribution
from tests.support.images import ON_CLUSTER
from tests.support.installed import Installed, kubeconfig, program

CREATES = 40
LONGEST_PAUSE_S = 2.0
IN_A_ROW = 12
BURST = 40


class ReadyTimes:
    """When the API server first said of each pod that it is Ready, by a watch of kubectl."""

    def __init__(self) -> None:
        self._seen: defaultdict[str, asyncio.Future[float]] = defaultdict(asyncio.Future)

    async def of(self, pod: str) -> float:
        """The moment (``perf_counter``); waits for it."""
        async with asyncio.timeout(30):
            return await self._seen[pod]

    async def read(self, lines: asyncio.StreamReader) -> None:
        """Takes the watch's events in."""
        while line := await lines.readline():
            name, _, ready = line.decode().strip().partition(" ")
            if ready == "True" and not self._seen[name].done():
                self._seen[name].set_result(time.perf_counter())


@asynccontextmanager
async def watching(namespace: str) -> AsyncIterator[ReadyTimes]:
    """A watch on all pods of the namespace while the block runs."""
    path = '{.metadata.name} {.status.conditions[?(@.type=="Ready")].status}{"\\n"}'
    process = await asyncio.create_subprocess_exec(
        program("kubectl"),
        "--kubeconfig",
        str(kubeconfig()),
        "get",
        "pods",
        "-n",
        namespace,
        "--watch",
        "--output",
        f"jsonpath={path}",
        stdout=asyncio.subprocess.PIPE,
    )
    times = ReadyTimes()
    assert process.stdout is not None
    reading = asyncio.create_task(times.read(process.stdout))
    try:
        yield times
    finally:
        process.terminate()
        await process.wait()
        await reading


async def measure(product: Installed) -> list[Record]:
    """The records of this scenario. Cost: two minutes."""
    async with Client(product.url, product.api_key) as client:
        return [*await _one_at_a_time(product, client), *await _burst(product, client)]


@dataclass(frozen=True)
class Taken:
    """Seconds of some creates, one after the other: ours, and until a watch on the same pods said Ready."""

    ours_s: list[float]
    watch_s: list[float]

    def record(self, figure: str, statistic: Callable[[list[float]], float], where: str) -> Record:
        """One figure of them."""
        mine, other = distribution(self.ours_s), distribution(self.watch_s)
        baseline = Baseline("create call until a watch on the same pod says Ready", statistic(self.watch_s), other)
        name = f"cold create to first exec answered, {figure}"
        return Record(name, statistic(self.ours_s), "s", where, baseline, distribution=mine)


async def _one_at_a_time(product: Installed, client: Client) -> list[Record]:
    phases: list[Mapping[str, float]] = []
    async with watching(product.sandboxes) as ready:
        doing(f"{IN_A_ROW} creates in a row, {CREATES} with pauses")
        row = Taken([], [])
        for _ in range(IN_A_ROW):
            await _create(client, ready, row, phases)
        spread = Taken([], [])
        for _ in range(CREATES):
            # The kubelet looks once a second: without a pause of chance every create meets the same moment of it.
            await asyncio.sleep(random.random() * LONGEST_PAUSE_S)
            await _create(client, ready, spread, phases)
    middle = {name: statistics.median(one.get(name, 0) for one in phases) for name in phases[0]}
    where = "one at a time, image on the node"
    how = f"{CREATES} creates {where}, pauses of 0 to {LONGEST_PAUSE_S:g} s; phases in ms: {json.dumps(middle)}"
    return [
        spread.record("p50", statistics.median, how),
        spread.record("mean", statistics.fmean, how),
        row.record(f"p50 of {IN_A_ROW} in a row", statistics.median, f"{IN_A_ROW} creates {where}"),
    ]


async def _create(client: Client, ready: ReadyTimes, taken: Taken, phases: list[Mapping[str, float]]) -> None:
    began_s = time.perf_counter()
    async with await client.create(ON_CLUSTER, memory="256Mi") as sandbox:
        await sandbox.exec(["true"], check=True)
        taken.ours_s.append(time.perf_counter() - began_s)
        taken.watch_s.append(await ready.of(sandbox.id) - began_s)
        phases.append((await client.get(sandbox.id)).timings_ms)


async def _burst(product: Installed, client: Client) -> list[Record]:
    by_hand_s = await fill_by_hand(product, BURST)
    began_s = time.perf_counter()
    async with filled(client, BURST, "burst") as sandboxes:
        results = await asyncio.gather(*(sandbox.exec(["true"]) for sandbox in sandboxes))
        burst_s = time.perf_counter() - began_s
    good = sum(result.exit_code == 0 for result in results)
    where = f"{BURST} creates at once on this node, image on it; each sandbox has run a command"
    return [
        Record(f"burst of {BURST}: share that succeeded", 100 * good / BURST, "%", where),
        Record(
            f"burst of {BURST}: all have run a command",
            burst_s,
            "s",
            where,
            Baseline("the same pods made by hand, 8 starts in flight, until the API says Ready", by_hand_s),
        ),
    ]
