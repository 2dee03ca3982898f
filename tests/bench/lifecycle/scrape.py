"""What a scrape of the control plane costs with 5,000 live sandboxes: its time and its size."""

from __future__ import annotations

import time

import aiohttp

from tests.bench.lifecycle.live import come_up
from tests.bench.lifecycle.stage import stage
from tests.bench.progress import doing
from tests.bench.record import Record, distribution

MANY = 5_000
SCRAPES = 50
MEGABYTE = 1e6
# As Prometheus asks.
ACCEPT = {"Accept": "application/openmetrics-text;version=1.0.0"}


async def measure() -> list[Record]:
    """The records of this scenario. Cost: about two minutes."""
    async with stage() as ground, ground.client() as client:
        doing(f"{MANY} sandboxes come up")
        await come_up(client, MANY, "scraped")
        there = len(await client.list())
        took_ms, size = await _scraped(f"{ground.plane_urls[0]}/metrics")
    how = f"{SCRAPES} scrapes, one after the other; {there} sandboxes, of one owner; everything on this machine"
    mine = distribution(took_ms)
    return [
        Record(f"scrape of the control plane, {MANY} sandboxes, p99", mine["p99"], "ms", how, distribution=mine),
        Record(f"size of a scrape, {MANY} sandboxes", size / MEGABYTE, "MB", how),
    ]


async def _scraped(url: str) -> tuple[list[float], int]:
    took_ms, size = [], 0
    # Prometheus takes it compressed; what it has to read is counted here.
    async with aiohttp.ClientSession(headers=ACCEPT) as session:
        for _ in range(SCRAPES):
            began = time.perf_counter()
            async with session.get(url) as answer:
                answer.raise_for_status()
                size = max(size, len(await answer.read()))
            took_ms.append(1000 * (time.perf_counter() - began))
    return took_ms, size
