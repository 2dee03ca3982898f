"""The faults: each breaks something of the real stack while its block runs, and goes on with it as long as it must."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from rollbox import Client, Sandbox
from rollbox.errors import SandboxError
from tests.cluster import processes
from tests.e2e.test_room import filled, open_node
from tests.observability.firing import egress_faults, node_faults
from tests.observability.firing.fault import SMALL, Fault, beside
from tests.observability.firing.site import Site
from tests.support.faults import node_part, standing_still
from tests.support.images import IMAGE
from tests.support.installed import kubectl
from tests.support.waiting import until

# Of what has to find room: with its sidecar and its runtime it requests 110 millicores.
LARGER: dict[str, Any] = {**SMALL, "cpu": (0.1, 1)}
LEFT_MILLICORES = 60
HELD_S = 400.0
POOL = "dry"
KUBELET_STILL_S = 12.0
GATEWAY_STILL_S, GATEWAY_RUNS_S = 2.5, 0.5
REDIS_STILL_S, REDIS_RUNS_S = 0.8, 1.0


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
        async with await site.client.create(IMAGE, **SMALL), beside(in_vain):
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

    async with beside(slow_start):
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

    async with Client(plane, site.stack.api_key) as past_it, beside(still), beside(lambda: _short(past_it)):
        yield


@asynccontextmanager
async def dns_gone(site: Site) -> AsyncIterator[None]:
    """The DNS of sandboxes has no pod, while sandboxes start."""
    await site.scale("dns", 0)
    try:
        # Gateways compare the DNS 15 s after a push, of what still lives then.
        async with beside(lambda: _short(site.client, 18.0)):
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

    async with beside(still), beside(lambda: _short(site.client)):
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

    async with beside(lost):
        yield


@asynccontextmanager
async def provider_broken(site: Site) -> AsyncIterator[None]:
    """What gives the scaler its nodes answers with errors."""
    site.nodes.broken = True
    try:
        yield
    finally:
        site.nodes.broken = False


async def _in_redis(site: Site, *words: str) -> None:
    """A command to the release's Redis, on keys that begin as the store's do: ``KEY`` stands for that beginning."""
    (pod,) = await site.stack.pods("redis")
    prefix = f"{{rollbox:{site.stack.release}}}:"
    command = " ".join(shlex.quote(one.replace("KEY", prefix, 1)) for one in words)
    shell = f'redis-cli ${{REDIS_PASSWORD:+-a "$REDIS_PASSWORD"}} --no-auth-warning {command}'
    await kubectl("exec", "-n", site.stack.namespace, pod, "--", "sh", "-c", shell)


@asynccontextmanager
async def sweep_taken(site: Site) -> AsyncIterator[None]:
    """Two replicas of the control plane answer, and a stranger in Redis has the role of the sweep."""
    await site.scale("controlplane", 2)
    until_ms = str(int((time.time() + HELD_S) * 1000))
    try:
        await _in_redis(site, "HSET", "KEYlease:sweep", "holder", "stranger", "until", until_ms)
        yield
    finally:
        await _in_redis(site, "DEL", "KEYlease:sweep")
        await site.scale("controlplane", 1)


@asynccontextmanager
async def use_changed(site: Site) -> AsyncIterator[None]:
    """Somebody changes in Redis what all owners use, which the next count over the records finds."""

    async def change() -> None:
        await _in_redis(site, "HINCRBY", "KEYused:", "cpu_millicores", "1000")
        await asyncio.sleep(5)

    async with beside(change):
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
        "the control plane is scaled to no pod",
        ("RollboxMetricsAbsent", "RollboxRouteFeedLost", "RollboxEgressFeedLost"),
        controlplane_gone,
    ),
    "pods_deleted": Fault(
        "pods of sandboxes are deleted with kubectl, and other sandboxes pass their `ttl`",
        ("RollboxMaskedSamples", "RollboxInfraFaults"),
        pods_deleted,
    ),
    "provider_broken": Fault(
        "the node pool's provider answers with errors", ("RollboxNodeProviderFailing",), provider_broken
    ),
    "mirror_still": Fault(
        "the mirror stands still (SIGSTOP) while sandboxes of images that it has not copied start",
        ("RollboxCopiesFailing",),
        node_faults.mirror_still,
    ),
    "registry_small": Fault(
        "the private registry's budget is set to less than the image of a sandbox that runs",
        ("RollboxImageStoreNearlyFull",),
        node_faults.registry_small,
    ),
    "sweep_taken": Fault(
        "the control plane has two replicas, and the lease of the sweep in Redis is somebody else's",
        ("RollboxSweepVacant",),
        sweep_taken,
    ),
    "use_changed": Fault("the use of all owners is changed in Redis by hand", ("RollboxQuotaMiscounted",), use_changed),
    "shell_broken": Fault(
        "sandboxes of new images start whose shell ends with an error, so that no converted copy passes its trial",
        ("RollboxConversionsFailing",),
        node_faults.shell_broken,
    ),
    "agent_still": Fault(
        "the node's agent stands still (SIGSTOP) while sandboxes are committed",
        ("RollboxCommitsFailing",),
        node_faults.agent_still,
    ),
    "containerd_still": Fault(
        "the node's containerd stands still (SIGSTOP)", ("RollboxNodeTroubles",), node_faults.containerd_still
    ),
    "kernel_still": Fault(
        "a sandbox is deleted whose gVisor kernel stands still (SIGSTOP), and so does the node's agent, "
        "which would end it",
        ("RollboxSandboxesNotStopped",),
        node_faults.kernel_still,
    ),
    "egress_gone": Fault(
        "egress is scaled to no pod, and a sandbox has a network policy",
        ("RollboxEgressDown",),
        egress_faults.egress_gone,
    ),
    "link_missing": Fault(
        "a sandbox gets a network policy while its gVisor kernel stands still (SIGSTOP)",
        ("RollboxEgressLinksDown",),
        egress_faults.link_missing,
    ),
    "feed_without_key": Fault(
        "the feed of egress is asked for without its key every second",
        ("RollboxEgressFeedRefused",),
        egress_faults.feed_without_key,
    ),
    "names_silent": Fault(
        "the name server of egress does not answer, and a sandbox asks for an allowed name twice a second",
        ("RollboxEgressResolverFailing",),
        egress_faults.names_silent,
    ),
    "forbidden_asked": Fault(
        "a sandbox asks fifty times a second for what its policy does not name",
        ("RollboxEgressRefusals",),
        egress_faults.forbidden_asked,
    ),
    "limit_passed": Fault(
        "a sandbox asks five times a second where its policy allows one connection",
        ("RollboxEgressFull",),
        egress_faults.limit_passed,
    ),
    "packages_gone": Fault(
        "the package cache is scaled to no pod, and a sandbox asks it twice a second",
        ("RollboxPackageCacheFailing",),
        egress_faults.packages_gone,
    ),
    "record_lost": Fault(
        "Redis is scaled to no pod while a sandbox asks for what its policy does not name",
        ("RollboxEgressUnrecorded",),
        egress_faults.record_lost,
    ),
}
