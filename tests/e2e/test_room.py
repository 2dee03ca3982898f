"""A node that pods of somebody else fill: it is known what is left, and what has no room waits without a pod."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rollbox import Client
from rollbox.errors import CapacityUnavailable, Unsupported
from tests.support.images import IMAGE
from tests.support.installed import BESIDE_ANOTHER, Installed, apply, installed, kubectl, objects
from tests.support.waiting import until

RELEASE = "rollbox-room"
VALUES = (
    *BESIDE_ANOTHER,
    # Of its own: no other release has to be there.
    "runtimeClass.create=true",
    f"runtimeClass.name={RELEASE}",
    "controlplane.replicas=2",
    "gateway.autoscaling.enabled=false",
    "gateway.replicas=1",
    "dns.replicas=1",
)
FILLER = "room-filler"
# With its sidecar and its runtime a sandbox of 100 millicores requests 110.
SMALL: Any = {"cpu": (0.1, 1), "memory": ("32Mi", "128Mi"), "lease": None}
EACH_MILLICORES = 110
LEFT_MILLICORES = 200
START_S = 120.0


@pytest.mark.alone
@pytest.mark.timeout(500)
async def test_a_create_waits_with_a_reason_on_a_node_that_others_fill_and_starts_when_room_comes() -> None:
    async with installed(RELEASE, *VALUES) as stack, Client(stack.url, stack.api_key) as client:
        before = await until(lambda: open_node(client))
        async with filled(before.free.cpu_millicores - LEFT_MILLICORES):
            left = await until(lambda: _has_left(client, EACH_MILLICORES, 2 * EACH_MILLICORES))
            told = await client.preflight(IMAGE, 3, **SMALL)
            assert (told.fits, told.may_have) == (False, 1)
            words = f"has {left.free.cpu_millicores / 1000:g} cpu left; each needs 0.11 cpu"
            assert words in told.blockers[0].detail
            first = await client.create(IMAGE, **SMALL)
            assert (await client.preflight(IMAGE, 1, **SMALL)).may_have == 0
            waiting = asyncio.create_task(client.create(IMAGE, **SMALL, start_timeout=START_S))
            one = await until(lambda: _waiting(client))
            assert (one.owner, one.pending, "each needs 0.11 cpu" in one.why) == (stack.owner, False, True)
            assert one.sandbox_id in str(await client.list())
            timeline = await client.timeline(one.sandbox_id)
            assert "It waits for room: capacity_unavailable: no node has room for it now" in timeline.summary
            (place,) = (await client.quota()).queue
            assert (place.position, place.why) == (1, one.why)
            # No pod was made of it.
            assert [pod["metadata"]["name"] for pod in await objects("pods", "-n", stack.sandboxes)] == [first.id]
            with pytest.raises(CapacityUnavailable) as refused:
                await client.create(IMAGE, **SMALL, start_timeout=3)
            assert "no node has room for it within its start timeout of 3 s: node " in refused.value.detail
            assert refused.value.detail.endswith(f"it was number 2 of 2 of {stack.owner} that waited for such room")
            assert f"Wait {round((refused.value.retry_after_ms or 0) / 1000)} s before that." in str(refused.value)
            shown = await client.quota(stack.owner)
            assert (shown.waiting, [place.why for place in shown.queue]) == (1, [one.why])
            with pytest.raises(Unsupported, match="largest node"):
                await client.create(IMAGE, cpu=(1000, 1000))
            assert not waiting.done()
        second = await waiting
        assert (await second.exec("echo room")).stdout == "room\n"
        assert second.id == one.sandbox_id
        await client.delete(first.id, second.id, wait=True)
        # Once more nothing of them counts.
        await until(lambda: _has_left(client, before.free.cpu_millicores, before.free.cpu_millicores))


@pytest.mark.alone
@pytest.mark.timeout(600)
async def test_a_pool_that_is_larger_than_the_node_keeps_no_create_out_and_has_no_pending_pods() -> None:
    async with installed(RELEASE, *VALUES) as stack, Client(stack.url, stack.api_key) as client:
        before = await until(lambda: open_node(client))
        async with filled(before.free.cpu_millicores - 4 * LEFT_MILLICORES):
            await until(lambda: _has_left(client, LEFT_MILLICORES, 4 * LEFT_MILLICORES))
            await client.set_pool("large", IMAGE, warm=(40, 40), cpu=(0.05, 1), memory=("32Mi", "128Mi"))
            await until(lambda: _has_left(client, 0, 60), 240)
            for cpu in (0.02, 0.05, 0.3):
                wish: Any = {"cpu": (cpu, 2), "memory": "96Mi", "lease": None}
                async with await client.create(IMAGE, **wish, start_timeout=60) as made:
                    assert (await made.exec("echo in")).stdout == "in\n"
                    assert made.record.source == "cold"
                assert await until(lambda: _none_pending(stack))
            await client.remove_pool("large")


async def _none_pending(stack: Installed) -> bool:
    """Whether all pods of sandboxes have a node; one may lack it for the moment of the scheduler."""
    return all(one["spec"].get("nodeName") for one in await objects("pods", "-n", stack.sandboxes))


@contextlib.asynccontextmanager
async def filled(millicores: int) -> AsyncIterator[None]:
    """The node with a Deployment of somebody else that requests so much."""
    labels = {"app": FILLER}
    resources = {"requests": {"cpu": f"{millicores}m"}}
    container = {"name": "idle", "image": IMAGE, "command": ["sleep", "infinity"], "resources": resources}
    spec = {
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
        },
    }
    await apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": FILLER}, "spec": spec})
    try:
        yield
    finally:
        await kubectl("delete", "deployment", FILLER, "--cascade=foreground", "--timeout=60s")


async def open_node(client: Client) -> Any:
    seen = await client.capacity()
    return next((one for one in seen.nodes if seen.known and not one.closed), None)


async def _has_left(client: Client, least: int, most: int) -> Any:
    node = await open_node(client)
    return node if node is not None and least <= node.free.cpu_millicores <= most else None


async def _waiting(client: Client) -> Any:
    return next(iter((await client.capacity()).waiting), None)
