"""A pool that is declared as an object of the cluster, past our API: filled, rolled without a gap, drained, gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from controlplane.cluster.kubernetes.api_server.quantity import amount
from rollbox import Client
from tests.support.images import IMAGE, REGISTRY
from tests.support.installed import Installed, apply, kubectl, objects
from tests.support.replicas import of_each
from tests.support.waiting import until

NAME = "by-hand"
MIB = 1 << 20
# Others than the other tests ask for: nobody else claims from it.
FIRST_MIB, SECOND_MIB = 140, 148
ABSENT = f"{REGISTRY}/no-such-image:1"


def pool(limit_mib: int, image: str = IMAGE, **spec: Any) -> dict[str, Any]:
    """As somebody writes it by hand."""
    amounts = {"cpu_millicores": {"request": 20, "limit": 1000}}
    memory = {"memory_bytes": {"request": 32 * MIB, "limit": limit_mib * MIB}}
    body = {"template": {"image": image, **amounts, **memory}, "min_warm": 1, "max_warm": 1, **spec}
    return {"apiVersion": "rollbox.dev/v1alpha1", "kind": "SandboxPool", "metadata": {"name": NAME}, "spec": body}


@pytest.mark.timeout(300)
async def test_a_pool_that_is_applied_is_filled_rolled_drained_and_taken_back(stack: Installed, client: Client) -> None:
    await apply(pool(FIRST_MIB), namespace=stack.sandboxes)
    try:
        await until(lambda: _told(stack, {"ready": 1, "starting": 0, "outdated": 0, "wanted": 1}))
        before = await _kept(stack)
        # None of a template that cannot start gets ready: however fast the machine is, the old one is seen to serve.
        await apply(pool(SECOND_MIB, ABSENT), namespace=stack.sandboxes)
        words = "1 of an older template or age serve until others are ready"
        rolled = await _statuses_until(stack, lambda status: words in status["why"])
        await apply(pool(SECOND_MIB), namespace=stack.sandboxes)
        rolled += await _statuses_until(stack, lambda status: (status["ready"], status["outdated"]) == (1, 0))
        assert all(status["ready"] + status["outdated"] >= 1 for status in rolled), rolled
        await until(lambda: _has_gone(stack, before))
        async with await _create(client, SECOND_MIB) as claimed:
            assert claimed.record.source == "warm"
            assert (await claimed.exec("echo ok")).stdout == "ok\n"
            await apply(pool(SECOND_MIB, drain=True), namespace=stack.sandboxes)
            await until(lambda: _told(stack, {"ready": 0, "starting": 0, "outdated": 0, "wanted": 0}))
            await until(lambda: _keeps_none(stack, besides=claimed.id))
            # What was claimed is its owner's.
            assert (await claimed.exec("echo ok")).stdout == "ok\n"
    finally:
        await kubectl("delete", "sandboxpool", NAME, "-n", stack.sandboxes)
    await until(lambda: _unknown(stack))


async def test_a_pool_that_makes_no_sense_is_refused_by_the_cluster(stack: Installed) -> None:
    with pytest.raises(RuntimeError, match="min_warm must not be greater than max_warm"):
        await apply(pool(FIRST_MIB, min_warm=2), namespace=stack.sandboxes)
    with pytest.raises(RuntimeError, match="auto is off, so nothing decides between min_warm and max_warm"):
        await apply(pool(FIRST_MIB, min_warm=0, auto=False), namespace=stack.sandboxes)


async def _create(client: Client, limit_mib: int) -> Any:
    return await client.create(IMAGE, cpu=(0.02, 1), memory=(32 * MIB, limit_mib * MIB))


async def _status(stack: Installed) -> dict[str, Any]:
    await asyncio.sleep(0.1)
    found = await objects("sandboxpools", "-n", stack.sandboxes)
    (one,) = [pool for pool in found if pool["metadata"]["name"] == NAME]
    status: dict[str, Any] = one.get("status", {})
    return status


async def _told(stack: Installed, wanted: dict[str, int]) -> bool:
    """Whether the object itself says so."""
    return wanted.items() <= (await _status(stack)).items()


async def _kept(stack: Installed) -> set[str]:
    """The sandboxes of the pool's templates that do not end."""
    pods = await objects("pods", "-n", stack.sandboxes)
    ours = [pod for pod in pods if _limit_mib(pod) in {FIRST_MIB, SECOND_MIB}]
    return {pod["metadata"]["name"] for pod in ours if "deletionTimestamp" not in pod["metadata"]}


def _limit_mib(pod: dict[str, Any]) -> int:
    return amount(pod["spec"]["containers"][1]["resources"]["limits"]["memory"]) // MIB


async def _statuses_until(stack: Installed, true: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
    """What the object says until this is true of it."""
    seen: list[dict[str, Any]] = []

    async def told() -> bool:
        seen.append(await _status(stack))
        return true(seen[-1])

    await until(told)
    return seen


async def _has_gone(stack: Installed, before: set[str]) -> bool:
    return not before & await _kept(stack)


async def _keeps_none(stack: Installed, besides: str) -> bool:
    return await _kept(stack) <= {besides}


async def _unknown(stack: Installed) -> bool:
    """Whether no replica knows the pool."""
    return all(NAME not in {pool.name for pool in pools} for pools in await of_each(stack, Client.pools))
