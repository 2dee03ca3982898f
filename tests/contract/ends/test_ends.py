"""Every row of contract/ends.toml, brought about in a real control plane and told by the SDK.

The cluster and its sidecars are played, and time is virtual; what a real engine and a real cluster do is in
`tests/product`, `tests/local` and `tests/e2e`.
"""

from __future__ import annotations

import asyncio
import re
import tomllib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from controlplane.cluster import Death
from controlplane.errors import TABLE, Code, Problem
from controlplane.lifecycle import Options
from rollbox import Client, Sandbox, SandboxError
from rollbox.errors import BY_CODE, SandboxForgotten, SandboxNotFound
from tests.support.abandoned import abandoned_create
from tests.support.fake_cluster import FakeCluster, FakeSidecars
from tests.support.front import front, user
from tests.support.reports import reporting
from tests.support.shared_store import SharedMemory
from tests.support.virtual_time import VirtualClock
from tests.support.waiting import until
from tests.support.world import KEY, OWNER, World, world

ROWS: dict[str, dict[str, str]] = tomllib.loads(
    (Path(__file__).parents[3] / "contract" / "ends.toml").read_text(encoding="utf-8")
)["end"]
# Longer than what silence is judged by, and than what a create's caller may be away.
LATER_S = 60.0


@dataclass
class Ground:
    """A control plane with everything around it, and a user of it."""

    plane: World
    client: Client
    url: str
    cluster: FakeCluster
    sidecars: FakeSidecars
    core: SharedMemory
    stack: AsyncExitStack = field(repr=False)

    async def create(self, **options: Any) -> Sandbox:
        return await self.client.create("python", **options)

    async def failed(self, **options: Any) -> str:
        """The id of a create that failed."""
        with pytest.raises(SandboxError) as failure:
            await self.create(**options)
        assert failure.value.sandbox_id is not None
        assert (failure.value.mask_sample, failure.value.fault) == _verdict(failure.value.code)
        return failure.value.sandbox_id

    async def dies(self, code: Code) -> str:
        """The id of a sandbox that the cluster says is dead."""
        sandbox = await self.create()
        self.cluster.kill(Death(sandbox.id, code, "as the cluster says"))
        return sandbox.id

    async def refuses(self, code: Code) -> str:
        """The id of a sandbox that the cluster would not start."""
        self.cluster.next_error = Problem(code, "as the cluster says")
        return await self.failed()


@asynccontextmanager
async def ground(options: Options | None = None, cluster: FakeCluster | None = None) -> AsyncIterator[Ground]:
    async with AsyncExitStack() as stack:
        cluster, sidecars, core = cluster or FakeCluster(), FakeSidecars(), SharedMemory(VirtualClock())
        plane = await stack.enter_async_context(world(cluster, sidecars, options, store=core.view("a")))
        url = await stack.enter_async_context(front(plane))
        client = await stack.enter_async_context(user(url))
        yield Ground(plane, client, url, cluster, sidecars, core, stack)


async def deleted(at: Ground) -> str:
    async with await at.create() as sandbox:
        return sandbox.id


async def create_abandoned(at: Ground) -> str:
    at.cluster.ready_s = None
    async with abandoned_create(at.url, KEY, {"image": "python"}, key="k"):
        (begun,) = await until(at.client.list)
    await asyncio.sleep(LATER_S)
    return begun.id


async def lease_expired(at: Ground) -> str:
    async with user(at.url) as trainer, reporting(at.plane):
        sandbox = await trainer.create("python", lease=2)
        await trainer.aclose()
        await asyncio.sleep(LATER_S)
    return sandbox.id


async def ttl_expired(at: Ground) -> str:
    sandbox = await at.create(ttl=2, lease=None)
    await asyncio.sleep(3)
    return sandbox.id


async def idle_expired(at: Ground) -> str:
    sandbox = await at.create(idle_timeout=2, lease=None)
    async with reporting(at.plane):
        await asyncio.sleep(LATER_S)
    return sandbox.id


async def refused_settings(at: Ground) -> str:
    sandbox = await at.create()
    why = Problem("invalid_argument", "there is no directory /no", reason="cwd_not_found")
    with pytest.raises(Problem, match="there is no directory"):
        await at.plane.service.unbound(OWNER, sandbox.id, why)
    return sandbox.id


async def start_queue_timeout(at: Ground) -> str:
    at.cluster.ready_s = None
    before = asyncio.create_task(at.create(start_timeout=60))
    await asyncio.sleep(1)
    late = await at.failed(start_timeout=2)
    before.cancel()
    await asyncio.wait([before])
    return late


async def stopped_by_operator(at: Ground) -> str:
    sandbox = await at.create()
    await at.plane.service.drain(delete=True)
    return sandbox.id


async def drained(at: Ground) -> str:
    sandbox = await at.create(lease=None)
    await at.client.drain_node("n1", 30)
    await asyncio.sleep(1)
    told = await sandbox.refresh()
    assert sandbox.draining_at is not None
    assert (told.state, sandbox.draining_at < sandbox.record.expires_at_ms / 1000) == ("running", True)
    await asyncio.sleep(30)
    return sandbox.id


async def silent(at: Ground) -> str:
    sandbox, *_ = [await at.create(lease=None) for _ in range(5)]
    at.sidecars.dead.add(at.cluster._address(sandbox.id))
    at.plane.gateways.unreached.add(sandbox.id)
    await asyncio.sleep(3 * LATER_S)
    return sandbox.id


async def dead_when_claimed(at: Ground) -> str:
    await at.client.set_pool("py", "python", 1)
    await asyncio.sleep(5)
    assert (await at.client.pool("py")).ready == 1
    dead = await at.create()
    await at.plane.service.unbound(OWNER, dead.id, Problem("sandbox_unreachable", "it does not answer"))
    return dead.id


async def lost_in_restart(at: Ground) -> str:
    sandbox = await at.create(lease=None)
    at.sidecars.dead.add(at.cluster._address(sandbox.id))
    # Nothing remembers it but the cluster.
    again = await at.stack.enter_async_context(world(at.cluster, at.sidecars))
    at.client = await at.stack.enter_async_context(user(await at.stack.enter_async_context(front(again))))
    return sandbox.id


async def start_timeout(at: Ground) -> str:
    at.cluster.ready_s = None
    return await at.failed(start_timeout=2)


async def isolation_missing(at: Ground) -> str:
    at.cluster.isolation = "gVisor"
    return await at.failed()


Way = Callable[[Ground], Awaitable[str]]


def dying(code: Code) -> Way:
    return lambda at: at.dies(code)


def refusing(code: Code) -> Way:
    return lambda at: at.refuses(code)


WAYS: dict[str, Way] = {
    "deleted": deleted,
    "create_abandoned": create_abandoned,
    "lease_expired": lease_expired,
    "ttl_expired": ttl_expired,
    "idle_expired": idle_expired,
    "refused_settings": refused_settings,
    "image_not_found": refusing("image_not_found"),
    "image_refused": refusing("unsupported"),
    "oom_killed": dying("oom_killed"),
    "disk_full": dying("disk_full"),
    "start_queue_timeout": start_queue_timeout,
    "no_room": refusing("capacity_unavailable"),
    "stopped_by_operator": stopped_by_operator,
    "died": dying("sandbox_lost"),
    "drained": drained,
    "silent": silent,
    "dead_when_claimed": dead_when_claimed,
    "lost_in_restart": lost_in_restart,
    "evicted": dying("sandbox_evicted"),
    "node_lost": dying("node_lost"),
    "image_pull_failed": refusing("image_pull_failed"),
    "image_store_full": refusing("image_store_full"),
    "dataset_unavailable": refusing("dataset_unavailable"),
    "start_timeout": start_timeout,
    "isolation_missing": isolation_missing,
    "cluster_away": refusing("upstream_timeout"),
    "failed_start": refusing("internal"),
}
OPTIONS = {
    "start_queue_timeout": Options(starts_in_flight=1),
    "silent": Options(starts_in_flight=9, probe_every_ms=20_000),
}


@pytest.mark.parametrize("row", sorted(ROWS.keys() - {"forgotten"}))
async def test_the_end_is_told_as_the_table_says(row: str) -> None:
    async with ground(OPTIONS.get(row)) as at:
        sandbox_id = await WAYS[row](at)
        await asyncio.sleep(1)
        record, timeline = await at.client.get(sandbox_id), await at.client.timeline(sandbox_id)
        code = ROWS[row]["code"]
        assert record.end is not None
        assert record.end.cause == code, record.end
        assert (record.end.mask_sample, record.end.fault) == _verdict(code)
        assert record.mask_sample is timeline.mask_sample is record.end.mask_sample
        assert _told_as(ROWS[row]["by"], record.end.by), record.end.by
        # Whoever asks for it from now on hears the same.
        with pytest.raises(BY_CODE[code]) as ended:
            await at.client.connect(sandbox_id)
        assert (ended.value.mask_sample, ended.value.fault) == _verdict(code)
        context = await at.client.error_context(ended.value)
        assert (context.mask_sample, context.timeline) == (record.mask_sample, timeline)


async def test_what_this_client_was_given_and_nobody_knows_is_the_platforms_fault() -> None:
    async with ground() as at:
        sandbox = await at.create(ttl=1, lease=None)
        # Until the replica has forgotten the end too: then only the store has it.
        await asyncio.sleep(300)
        assert (await at.client.get(sandbox.id)).state == "ended"
        at.core.empty()
        for ask in (at.client.get(sandbox.id), at.client.connect(sandbox.id), at.client.timeline(sandbox.id)):
            with pytest.raises(SandboxForgotten) as forgotten:
                await ask
            assert (forgotten.value.mask_sample, forgotten.value.fault) == _verdict(ROWS["forgotten"]["code"])
        await sandbox.delete()
        with pytest.raises(SandboxNotFound) as unknown:
            await at.client.get("sb-nobody-made")
        assert (unknown.value.mask_sample, unknown.value.fault) == (True, "caller")
        async with user(at.url) as stranger:
            with pytest.raises(SandboxNotFound):
                await stranger.get(sandbox.id)


async def test_another_owners_sandbox_is_no_loss() -> None:
    async with ground() as at, user(at.url, "rbx_bob_0123456789ab") as bob:
        sandbox = await at.create()
        with pytest.raises(SandboxNotFound):
            await bob.get(sandbox.id)


def _verdict(code: str) -> tuple[bool, str]:
    entry = TABLE[code]  # type: ignore[index]
    return entry.mask_sample, entry.fault


def _told_as(by: str, told: str) -> bool:
    """Whether an end's `by` is what its row says."""
    words = {"the owner's name": [OWNER]}.get(by) or re.findall(r"`([a-z ]+)", by)
    backend = ["engine", "kubernetes"] if "backend" in by else []
    return any(told == word or (word.endswith(" ") and told.startswith(word)) for word in (*words, *backend))
