"""What a full house costs: claims beside 4,096 live sandboxes against claims beside 64, and the delete of 4,000."""

from __future__ import annotations

import time
from functools import partial

from rollbox import Client, SandboxGroup
from rollbox.bench import arrivals
from tests.bench.lifecycle.stage import IMAGE, stage
from tests.bench.progress import doing
from tests.bench.record import Baseline, Record, distribution

FEW, MANY = 64, 4096
DELETED = 4000
POOL = 200
CLAIMS = 400
PER_SECOND = 40.0


async def measure() -> list[Record]:
    """The records of this scenario. Cost: about three minutes."""
    async with stage() as ground, ground.client() as client:
        await ground.fill(client, "warm", POOL)
        await come_up(client, FEW, "house")
        await _claims(client)
        few = await _claims(client)
        await ground.filled(client, "warm", POOL)
        doing(f"{MANY} sandboxes come up")
        await come_up(client, MANY - FEW - DELETED, "house")
        await come_up(client, DELETED, "crowd")
        await ground.filled(client, "warm", POOL)
        many = await _claims(client)
        live = len(await client.list())
        doing(f"delete of {DELETED}")
        began = time.perf_counter()
        report = await client.delete(labels={"bench": "crowd"}, wait=True)
        delete_s = time.perf_counter() - began
    if len(report.deleted) != DELETED or report.failed:
        raise RuntimeError(f"{len(report.deleted)} of {DELETED} were deleted, {len(report.failed)} failed")
    how = f"Poisson, {PER_SECOND:g}/s, {CLAIMS} claims from a pool of {POOL}; everything on this machine"
    mine, other = distribution(many), distribution(few)
    return [
        Record(
            f"warm create, p99, {MANY} live sandboxes",
            mine["p99"],
            "ms",
            f"{how}; {live} listed",
            Baseline(f"{FEW} live, p99", other["p99"], other),
            distribution=mine,
        ),
        Record(f"delete of {DELETED} by label", delete_s, "s", "one call, until all ends are confirmed"),
    ]


async def come_up(client: Client, count: int, label: str) -> None:
    """Make so many that stay: cold, of an image that no pool has."""
    for first in range(0, count, 500):
        wish = {"labels": {"bench": label}, "lease": None}
        await SandboxGroup.create("localhost/bench/cold:1", n=min(500, count - first), client=client, **wish)  # type: ignore[arg-type]


async def _claims(client: Client) -> list[float]:
    async def claim(number: int) -> object:
        return await client.create(IMAGE, labels={"bench": "claim"})

    met = await arrivals.open_loop(arrivals.poisson(CLAIMS, PER_SECOND), partial(claim))
    await client.delete(labels={"bench": "claim"}, wait=True)
    return [one.ms for one in met]
