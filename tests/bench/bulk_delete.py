"""Deleting 4,000 sandboxes by one label in one call: `python -m tests.bench.bulk_delete [COUNT]`.

The real API, service and stores (a process's own, and a real Redis); a simulated cluster that takes the API server's
5 ms a delete, eight at a time, and a kubelet's one and a half seconds.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from controlplane.clock import SystemClock
from controlplane.lifecycle import Options
from controlplane.model import SandboxSpec
from controlplane.store import MemoryStore, RedisStore
from controlplane.telemetry import configure_log
from tests.bench.record import Record, save
from tests.support.fake_cluster import FakeCluster
from tests.support.redis_server import redis_server
from tests.support.world import OWNER, World, world

COUNT = 4_000
ASKING_AT_ONCE = 8
ASK_S = 0.005
KUBELET_S = 1.5


@dataclass
class Simulated(FakeCluster):
    """Starts at once; ends as pods do."""

    start_s: float = 0.0
    ready_s: float | None = 0.0
    slots: int = 100_000
    stops_at_once: int = 4096
    annotates_behind: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._asking = asyncio.Semaphore(ASKING_AT_ONCE)

    async def stop(self, sandbox_id: str) -> None:
        async with self._asking:
            await asyncio.sleep(ASK_S)
        await asyncio.sleep(KUBELET_S)
        self.stopped.append(sandbox_id)
        self.held.pop(sandbox_id, None)


async def _deleted_s(plane: World, count: int) -> float:
    spec = SandboxSpec(image="a", labels={"run": "r1"}, start_timeout_ms=600_000)
    keep = await plane.create(OWNER, SandboxSpec(image="a", labels={"run": "r2"}))
    await asyncio.gather(*(plane.create(OWNER, spec) for _ in range(count)))
    began_s = time.perf_counter()
    answer = await plane.api("DELETE", "/v1/sandboxes", query=[("label", "run=r1"), ("wait_ms", "60000")])
    took_s = time.perf_counter() - began_s
    if len(answer.json["deleted"]) != count or answer.json["failed"]:
        raise RuntimeError(f"not all were deleted: {answer.body[:500]!r}")
    left = [one.id for one in await plane.service.find(OWNER, {})]
    if left != [keep.sandbox.id]:
        raise RuntimeError(f"{len(left)} are left instead of the one with another label")
    return took_s


async def measure(count: int) -> list[Record]:
    """One record a store."""
    clock, records = SystemClock(), []
    options = Options(starts_in_flight=64)
    for name in ("memory", "redis"):
        async with AsyncExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            store: MemoryStore | RedisStore = MemoryStore(clock)
            if name == "redis":
                url = stack.enter_context(redis_server(folder))
                store = await stack.enter_async_context(RedisStore.open(url, installation="bench", clock=clock))
            plane = await stack.enter_async_context(world(Simulated(), options=options, clock=clock, store=store))
            took_s = await _deleted_s(plane, count)
        conditions = f"{count} sandboxes, {ASK_S * 1000:g} ms a delete, {ASKING_AT_ONCE} at once, kubelet {KUBELET_S} s"
        records.append(Record(f"bulk_delete_{name}", took_s, "s", conditions=conditions))
    return records


def main() -> None:
    """Measure, write the records and print them."""
    configure_log("critical")
    records = asyncio.run(measure(int(sys.argv[1]) if len(sys.argv) > 1 else COUNT))
    records = save("bulk_delete", records, {"python": sys.version.split()[0]})
    for record in records:
        print(f"{record.figure}: {record.value:.2f} {record.unit} ({record.target}, {record.conditions})")


if __name__ == "__main__":
    main()
