"""A pool that is declared as an object of the cluster, past our API: filled, rolled without a gap, drained, gone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rollbox import Client
from rollbox.errors import NotFound
from tests.support.images import IMAGE
from tests.support.installed import Installed, apply, kubectl, objects
from tests.support.waiting import until

NAME = "by-hand"
MIB = 1 << 20
# Others than the other tests ask for: nobody else claims from it.
FIRST_MIB, SECOND_MIB = 140, 148


def pool(limit_mib: int, **spec: Any) -> dict[str, Any]:
    """As somebody writes it by hand."""
    amounts = {"cpu_millicores": {"request": 20, "limit": 1000}}
    memory = {"memory_bytes": {"request": 32 * MIB, "limit": limit_mib * MIB}}
    body = {"template": {"image": IMAGE, **amounts, **memory}, "min_warm": 1, "max_warm": 1, **spec}
    return {"apiVersion": "rollbox.dev/v1alpha1", "kind": "SandboxPool", "metadata": {"name": NAME}, "spec": body}


@pytest.mark.timeout(300)
async def test_a_pool_that_is_applied_is_filled_rolled_drained_and_taken_back(stack: Installed, client: Client) -> None:
    await apply(pool(FIRST_MIB), namespace=stack.sandboxes)
    try:
        await until(lambda: _told(stack, {"ready": 1, "starting": 0, "outdated": 0, "wanted": 1}), 60.0)
        before = await _kept(stack)
        await apply(pool(SECOND_MIB), namespace=stack.sandboxes)
        rolled = await _statuses_until_rolled(stack, before)
        assert all(status["ready"] + status["outdated"] >= 1 for status in rolled), rolled
        assert any("1 of an older template or age serve until others are ready" in one["why"] for one in rolled)
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
    await until(lambda: _unknown(client))


async def test_a_pool_that_makes_no_sense_is_refused_by_the_cluster(stack: Installed) -> None:
    with pytest.raises(RuntimeError, match="min_warm must not be greater than max_warm"):
        await apply(pool(FIRST_MIB, min_warm=2), namespace=stack.sandboxes)
    with pytest.raises(RuntimeError, match="auto is off, so nothing decides between min_warm and max_warm"):
        await apply(pool(FIRST_MIB, min_warm=0, auto=False), namespace=stack.sandboxes)


async def _create(client: Client, limit_mib: int) -> Any:
    return await client.create(IMAGE, cpu=(0.02, 1), memory=(32 * MIB, limit_mib * MIB))


async def _status(stack: Installed) -> dict[str, Any]:
    await asyncio.sleep(0.1)
    (one,) = await objects("sandboxpools", "-n", stack.sandboxes)
    status: dict[str, Any] = one.get("status", {})
    return status


async def _told(stack: Installed, wanted: dict[str, int]) -> bool:
    """Whether the object itself says so."""
    return wanted.items() <= (await _status(stack)).items()


async def _kept(stack: Installed) -> set[str]:
    """The sandboxes in the namespace that do not end."""
    pods = await objects("pods", "-n", stack.sandboxes)
    return {pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"]}


async def _statuses_until_rolled(stack: Installed, before: set[str]) -> list[dict[str, Any]]:
    """What the object says until the sandboxes of before are gone and another one is ready."""
    seen: list[dict[str, Any]] = []

    async def rolled() -> bool:
        seen.append(await _status(stack))
        return (seen[-1]["ready"], seen[-1]["outdated"]) == (1, 0) and not before & await _kept(stack)

    await until(rolled, 60.0)
    return seen


async def _keeps_none(stack: Installed, besides: str) -> bool:
    return await _kept(stack) <= {besides}


async def _unknown(client: Client) -> bool:
    """Whether no replica knows the pool."""
    for _ in range(8):
        try:
            await client.pool(NAME)
        except NotFound:
            continue
        return False
    return True
