"""The faults: each breaks something of the real stack while its block runs, and goes on with it as long as it must."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from rollbox import Client, Sandbox
from rollbox.errors import SandboxError
from tests.cluster import processes
from tests.e2e.test_room import filled, open_node
from tests.observability.firing.site import Site, standing_still
from tests.support.faults import node_part
from tests.support.images import IMAGE
from tests.support.installed import kubectl
from tests.support.waiting import until

SMALL: dict[str, Any] = {"cpu": (0.001, 1), "memory": ("32Mi", "128Mi"), "lease": None}
# Of what has to find room: with its sidecar and its runtime it requests 110 millicores.
LARGER: dict[str, Any] = {**SMALL, "cpu": (0.1, 1)}
LEFT_MILLICORES = 60
HELD_S = 400.0
POOL = "dry"
KUBELET_STILL_S = 12.0
GATEWAY_STILL_S, GATEWAY_RUNS_S = 2.5, 0.5
REDIS_STILL_S, REDIS_RUNS_S = 0.8, 1.0

Injected = AbstractAsyncContextManager[None]


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        words: what is done, for the table.
        alerts: those that it must fire.
        inject: while its block runs, the fault is there.
    """

    words: str
    alerts: tuple[str, ...]
    inject: Callable[[Site], Injected]


@asynccontextmanager
async def _beside(going_on: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Something that is done again and again while the block runs; its last round is not cut off."""
    over = asyncio.Event()

    async def rounds() -> None:
        while not over.is_set():
            await going_on()

    task = asyncio.create_task(rounds())
    try:
        yield
    finally:
        over.set()
        await task


async def _short(client: Client, stays_s: float = 0.0) -> None:
    """A small sandbox, started and deleted, if it starts."""
    with contextlib.suppress(SandboxError):
        async with await client.create(IMAGE, **SMALL, start_timeout=60.0):
            await asyncio.sleep(stays_s)


@asynccontextmanager
async def quota_full(site: Site) -> AsyncIterator[None]:
    """An owner at the limit of its sandboxes, whose further creates wait in vain."""
    await site.client.set_quota(site.stack.owner, sandboxes=1)

    async def in_vain() -> None:
        with contextlib.suppress(SandboxError):
            await site.client.create(IMAGE, **SMALL, start_timeout=2.0)

    try:
        async with await site.client.create(IMAGE, **SMALL), _beside(in_vain):
            yield
    finally:
        await site.client.remove_quota(site.stack.owner)


@asynccontextmanager
async def node_filled(site: Site) -> AsyncIterator[None]:
    """Pods of somebody else fill the node: one create waits, and the pool cannot replace what was claimed of it."""
    await site.client.set_pool(POOL, IMAGE, 1, cpu=LARGER["cpu"], memory=LARGER["memory"])
    try:
        await until(lambda: _ready(site.client, 1))
        free = (await until(lambda: open_node(site.client))).free.cpu_millicores
        async with filled(free - LEFT_MILLICORES):
            claimed = await site.client.create(IMAGE, **LARGER)
            waits = asyncio.create_task(site.client.create(IMAGE, **LARGER, start_timeout=HELD_S))
            try:
                yield
            except BaseException:
                waits.cancel()
                raise
        # Now there is room: it starts, and the pool is filled.
        for sandbox in (claimed, await waits):
            await sandbox.delete()
        await until(lambda: _ready(site.client, 1))
    finally:
        await site.client.remove_pool(POOL)


async def _ready(client: Client, count: int) -> bool:
    return any(one.name == POOL and one.ready == count for one in await client.pools())


@asynccontextmanager
async def kubelet_slow(site: Site) -> AsyncIterator[None]:
    """The kubelet stands still for 12 s of every start."""
    pid = processes.running("kubelet")
    assert pid

    async def slow_start() -> None:
        with standing_still(pid):
            starts = asyncio.create_task(_short(site.client))
            await asyncio.sleep(KUBELET_STILL_S)
        await starts

    async with _beside(slow_start):
        yield


@asynccontextmanager
async def gateway_slow(site: Site) -> AsyncIterator[None]:
    """The gateway stands still for seconds, again and again, while sandboxes start and end."""
    pid = await site.process("gateway", "rollbox-gateway")
    (plane,) = await site.stack.controlplanes()

    async def still() -> None:
        with standing_still(pid):
            await asyncio.sleep(GATEWAY_STILL_S)
        await asyncio.sleep(GATEWAY_RUNS_S)

    async with Client(plane, site.stack.api_key) as past_it, _beside(still), _beside(lambda: _short(past_it)):
        yield


@asynccontextmanager
async def dns_gone(site: Site) -> AsyncIterator[None]:
    """The DNS of sandboxes has no pod, while sandboxes start."""
    await site.scale("dns", 0)
    try:
        async with _beside(lambda: _short(site.client, 8.0)):
            yield
    finally:
        await site.scale("dns", 1)


@asynccontextmanager
async def snapshotter_ended(site: Site) -> AsyncIterator[None]:
    """The snapshotter of the node has ended."""
    await node_part("stop", "snapshotter")
    try:
        yield
    finally:
        await node_part("start", "snapshotter")


@asynccontextmanager
async def redis_gone(site: Site) -> AsyncIterator[None]:
    """Redis has no pod."""
    await site.scale("redis", 0)
    try:
        yield
    finally:
        await site.scale("redis", 1)


@asynccontextmanager
async def redis_slow(site: Site) -> AsyncIterator[None]:
    """Redis stands still for most of a second, again and again."""
    pid = await site.process("redis", "redis-server")

    async def still() -> None:
        with standing_still(pid):
            await asyncio.sleep(REDIS_STILL_S)
        await asyncio.sleep(REDIS_RUNS_S)

    async with _beside(still), _beside(lambda: _short(site.client)):
        yield


@asynccontextmanager
async def controlplane_gone(site: Site) -> AsyncIterator[None]:
    """The control plane has no pod."""
    await site.scale("controlplane", 0)
    try:
        yield
    finally:
        await site.scale("controlplane", 1)


@asynccontextmanager
async def pods_deleted(site: Site) -> AsyncIterator[None]:
    """Somebody deletes the pods of sandboxes, and others outlive their time."""

    async def lost() -> None:
        sandboxes: list[Sandbox] = await asyncio.gather(*(site.client.create(IMAGE, **SMALL) for _ in range(2)))
        names = [one.id for one in sandboxes]
        await kubectl("delete", "pod", *names, "-n", site.stack.sandboxes, "--wait=false")
        # Its time may be over before its create is.
        with contextlib.suppress(SandboxError):
            await site.client.create(IMAGE, **SMALL, ttl=3)

    async with _beside(lost):
        yield


FAULTS: dict[str, Fault] = {
    "quota_full": Fault(
        "an owner is at its quota of sandboxes, and goes on creating", ("RollboxQuotaWaits",), quota_full
    ),
    "node_filled": Fault(
        "pods of somebody else fill the node, a create is held for want of room, the pool's only sandbox is claimed, "
        "and the node pool's provider has no stock",
        ("RollboxPoolDry", "RollboxOutOfRoom", "RollboxScalerOutOfRoom", "RollboxSandboxesStuck"),
        node_filled,
    ),
    "kubelet_slow": Fault(
        "the kubelet stands still (SIGSTOP) for 12 s of every start", ("RollboxSlowStarts",), kubelet_slow
    ),
    "gateway_slow": Fault(
        "the gateway stands still (SIGSTOP) for 2.5 s of every 3 s while sandboxes start and end",
        ("RollboxRouteLag",),
        gateway_slow,
    ),
    "dns_gone": Fault(
        "the DNS of sandboxes is scaled to no pod, while sandboxes start", ("RollboxDnsDisagreement",), dns_gone
    ),
    "snapshotter_ended": Fault(
        "the snapshotter of the node is ended", ("RollboxSnapshotterUnhealthy",), snapshotter_ended
    ),
    "redis_gone": Fault("Redis is scaled to no pod", ("RollboxStoreDown",), redis_gone),
    "redis_slow": Fault(
        "Redis stands still (SIGSTOP) for 0.8 s of every 1.8 s, while sandboxes start",
        ("RollboxStoreSlow",),
        redis_slow,
    ),
    "controlplane_gone": Fault(
        "the control plane is scaled to no pod", ("RollboxMetricsAbsent", "RollboxRouteFeedLost"), controlplane_gone
    ),
    "pods_deleted": Fault(
        "pods of sandboxes are deleted with kubectl, and other sandboxes pass their `ttl`",
        ("RollboxMaskedSamples", "RollboxInfraFaults"),
        pods_deleted,
    ),
}
