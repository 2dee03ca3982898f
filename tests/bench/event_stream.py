"""The events of 10,000 sandboxes through one connection: `python -m tests.bench.event_stream [COUNT]`.

The real API over HTTP, service and a store of the process's own, a simulated cluster that starts at once; the reader is
the SDK, in a process of its own. Lag is from the moment in the event to that at which the reader's program has it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from controlplane.api.app import create_app
from controlplane.api.auth import ApiKeys
from controlplane.api.context import Context
from controlplane.api.listeners import serving_http
from controlplane.clock import SystemClock
from controlplane.lifecycle import Options
from controlplane.model import SandboxSpec
from controlplane.settings import Listen
from controlplane.telemetry import configure_log
from rollbox import Client, Events
from tests.bench.record import Baseline, Record, distribution, of_rounds, save
from tests.support.fake_cluster import FakeCluster
from tests.support.stack import free_port
from tests.support.waiting import until
from tests.support.world import KEY, OWNER, World, world

COUNT = 10_000
PER_S = 100
ROUNDS = 5
OF_A_ROUND = 1_000
SPEC = SandboxSpec(image="a", start_timeout_ms=600_000)


@dataclass
class Simulated(FakeCluster):
    """Starts and ends at once."""

    start_s: float = 0.0
    ready_s: float | None = 0.0
    slots: int = 100_000
    stops_at_once: int = 4096
    annotates_behind: bool = True


async def _open(stream: Events) -> bool:
    return stream.cursor is not None


async def read(url: str, confirmed: int) -> None:
    """The reader: prints a line once it listens, and how late each event came once so many sandboxes have gone."""
    lags_ms: list[float] = []
    async with Client(url, KEY) as client:
        stream = client.events()
        async with aclosing(aiter(stream)) as events:
            first = asyncio.ensure_future(anext(events))
            await until(partial(_open, stream))
            print("listening", flush=True)
            event = await first
            while True:
                lags_ms.append(round(time.time() * 1000 - event.at_ms, 1))
                confirmed -= event.kind == "confirm"
                if not confirmed:
                    break
                event = await anext(events)
    print(json.dumps(lags_ms))


@asynccontextmanager
async def reading(url: str, confirmed: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """A reader that listens; leaving waits for its end."""
    words = ("-m", "tests.bench.event_stream", "--read", url, str(confirmed))
    child = await asyncio.create_subprocess_exec(
        sys.executable, *words, stdout=asyncio.subprocess.PIPE, limit=1 << 26, cwd=Path(__file__).parents[2]
    )
    assert child.stdout is not None
    try:
        if await child.stdout.readline() != b"listening\n":
            raise RuntimeError("the reader does not listen")
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


async def _lives(plane: World, count: int, *, per_s: float | None = None) -> float:
    """So many sandboxes are created and deleted; the seconds that it took."""

    async def life(number: int) -> None:
        if per_s is not None:
            await asyncio.sleep(number / per_s)
        made = await plane.create(OWNER, SPEC)
        await plane.service.delete(OWNER, made.sandbox.id, wait_s=60)

    began_s = time.perf_counter()
    await asyncio.gather(*(life(number) for number in range(count)))
    return time.perf_counter() - began_s


async def _lags_ms(plane: World, url: str, count: int) -> list[float]:
    async with reading(url, count) as child:
        await _lives(plane, count, per_s=PER_S)
        assert child.stdout is not None
        lags_ms: list[float] = json.loads(await child.stdout.readline())
    return lags_ms


async def _rates(plane: World, url: str) -> tuple[list[float], list[float]]:
    """Lives a second without a reader and with one, in turn."""
    without, beside = [], []
    for _ in range(ROUNDS):
        without.append(OF_A_ROUND / await _lives(plane, OF_A_ROUND))
        async with reading(url, OF_A_ROUND) as child:
            beside.append(OF_A_ROUND / await _lives(plane, OF_A_ROUND))
            assert child.stdout is not None
            await child.stdout.readline()
    return without, beside


async def measure(count: int) -> list[Record]:
    """How late events are, and what a stream costs."""
    address, clock = Listen(host="127.0.0.1", port=free_port()), SystemClock()
    url = f"http://{address.host}:{address.port}"
    async with AsyncExitStack() as stack:
        plane = await stack.enter_async_context(world(Simulated(), options=Options(starts_in_flight=64), clock=clock))
        app = create_app(
            Context(
                plane.service,
                plane.deps,
                ApiKeys({KEY: OWNER}, frozenset(), plane.service.keys, plane.deps.key, clock),
                {},
            )
        )
        await stack.enter_async_context(serving_http(app, address))
        stack.callback(plane.service.events.close)
        lags_ms = await _lags_ms(plane, url, count)
        without, beside = await _rates(plane, url)
    conditions = f"{count} sandboxes, {PER_S} of them a second, created and deleted; memory store, one control plane"
    lag = distribution(lags_ms)
    rate, plain = of_rounds(beside), of_rounds(without)
    return [
        Record("event to its reader, p99", lag["p99"], "ms", conditions=conditions, distribution=lag),
        Record(
            "lives of sandboxes with a stream of events",
            rate["p50"],
            "1/s",
            conditions=f"{ROUNDS} rounds of {OF_A_ROUND} creates and deletes at once, the reader on the same machine",
            baseline=Baseline("without a stream", plain["p50"], plain),
            faster_is="larger",
            distribution=rate,
        ),
    ]


def main() -> None:
    """Measure, write the records and print them."""
    configure_log("critical")
    if sys.argv[1:2] == ["--read"]:
        asyncio.run(read(sys.argv[2], int(sys.argv[3])))
        return
    records = asyncio.run(measure(int(sys.argv[1]) if len(sys.argv) > 1 else COUNT))
    records = save("event_stream", records, {"python": sys.version.split()[0]})
    for record in records:
        print(f"{record.figure}: {record.value:.2f} {record.unit} ({record.target}, {record.conditions})")


if __name__ == "__main__":
    main()
