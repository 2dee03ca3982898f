"""A quota that is declared as an object of the cluster, past our API."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rollbox import Client, Sandbox
from rollbox.errors import QuotaExceeded
from tests.support.images import IMAGE
from tests.support.installed import Installed, apply, kubectl, objects
from tests.support.replicas import of_each
from tests.support.waiting import until

SMALL: Any = {"cpu": (0.02, 1), "memory": ("32Mi", "128Mi")}


def quota(owner: str, **limits: int) -> dict[str, Any]:
    """An owner's, as somebody writes it by hand."""
    meta = {"name": "by-hand"}
    spec = {"owner": owner, **limits}
    return {"apiVersion": "rollbox.dev/v1alpha1", "kind": "SandboxQuota", "metadata": meta, "spec": spec}


@pytest.mark.timeout(300)
async def test_a_quota_that_is_applied_holds_is_lowered_below_its_use_and_taken_back(
    stack: Installed, client: Client, shared: Sandbox
) -> None:
    await apply(quota(stack.owner, sandboxes=3, cpu_millicores=1_000), namespace=stack.sandboxes)
    try:
        await until(lambda: _limited(stack, 3))
        one, two = await asyncio.gather(*(client.create(IMAGE, **SMALL) for _ in range(2)))
        refused = await _refused(client)
        assert {name: refused.details[name] for name in ("resource", "limit", "used", "owner", "knob")} == {
            "resource": "sandboxes",
            "limit": "3",
            "used": "3",
            "owner": stack.owner,
            "knob": f"rollbox quota set {stack.owner} --sandboxes N",
        }
        with pytest.raises(QuotaExceeded, match="waiting does not help") as never:
            await client.create(IMAGE, cpu=(1.5, 2))
        assert (never.value.details["resource"], never.value.details["limit"]) == ("cpu_millicores", "1000")
        await apply(quota(stack.owner, sandboxes=1), namespace=stack.sandboxes)
        await until(lambda: _limited(stack, 1))
        assert [(await sandbox.exec("true")).exit_code for sandbox in (shared, one, two)] == [0, 0, 0]
        lowered = await until(lambda: _refused_at(client, "1"))
        assert lowered is not None
        assert lowered.details["used"] == "3"
        await until(lambda: _shown(stack, 3))
        await client.delete(one.id, two.id)
        await until(lambda: _shown(stack, 1))
    finally:
        await kubectl("delete", "sandboxquota", "by-hand", "-n", stack.sandboxes)
    await until(lambda: _limited(stack, None))
    async with await client.create(IMAGE, **SMALL) as beyond:
        assert (await beyond.exec("true")).ok


async def test_a_quota_that_makes_no_sense_is_refused_by_the_cluster(stack: Installed) -> None:
    with pytest.raises(RuntimeError, match="should be greater than or equal to 1"):
        await apply(quota(stack.owner, sandboxes=0), namespace=stack.sandboxes)


async def _limited(stack: Installed, sandboxes: int | None) -> bool:
    """Whether every replica has heard of the limit: each does by itself."""
    return {one.limits.get("sandboxes") for one in await of_each(stack, Client.quota)} == {sandboxes}


async def _refused(client: Client) -> QuotaExceeded:
    with pytest.raises(QuotaExceeded) as refused:
        await client.create(IMAGE, start_timeout=4, **SMALL)
    return refused.value


async def _refused_at(client: Client, limit: str) -> QuotaExceeded | None:
    refused = await _refused(client)
    return refused if refused.details["limit"] == limit else None


async def _shown(stack: Installed, used: int) -> bool:
    """Whether the object itself says so."""
    await asyncio.sleep(0.5)
    found = await objects("sandboxquotas", "-n", stack.sandboxes)
    (one,) = [quota for quota in found if quota["metadata"]["name"] == "by-hand"]
    return bool(one.get("status", {}).get("used", {}).get("sandboxes") == used)
