"""What is declared as objects of the cluster, past our API: quotas, and pools of kubernetes-sigs/agent-sandbox."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from controlplane.cluster.kubernetes.agent_sandbox import GROUP, TEMPLATES, VERSION, WARM_POOLS
from rollbox import Client, Pool
from rollbox.errors import Conflict, QuotaExceeded
from tests.support.images import IMAGE
from tests.support.installed import Installed, apply, kubectl, objects, own_cluster
from tests.support.replicas import of_each
from tests.support.waiting import until

SMALL: Any = {"cpu": (0.02, 1), "memory": ("32Mi", "128Mi")}
# Another amount than the other tests ask for: nobody else claims from it.
THEIRS: Any = {"cpu": (0.02, 1), "memory": ("32Mi", "136Mi")}
THEIR_KINDS = {TEMPLATES: "SandboxTemplate", WARM_POOLS: "SandboxWarmPool"}


def quota(owner: str, **limits: int) -> dict[str, Any]:
    """An owner's, as somebody writes it by hand."""
    meta = {"name": "by-hand"}
    spec = {"owner": owner, **limits}
    return {"apiVersion": "rollbox.dev/v1alpha1", "kind": "SandboxQuota", "metadata": meta, "spec": spec}


@pytest.mark.timeout(300)
async def test_a_quota_that_is_applied_holds_is_lowered_below_its_use_and_taken_back(
    stack: Installed, client: Client
) -> None:
    await apply(quota(stack.owner, sandboxes=2, cpu_millicores=1_000), namespace=stack.sandboxes)
    try:
        await until(lambda: _limited(stack, 2))
        one, two = await asyncio.gather(*(client.create(IMAGE, **SMALL) for _ in range(2)))
        refused = await _refused(client)
        assert {name: refused.details[name] for name in ("resource", "limit", "used", "owner", "knob")} == {
            "resource": "sandboxes",
            "limit": "2",
            "used": "2",
            "owner": stack.owner,
            "knob": f"rollbox quota set {stack.owner} --sandboxes N",
        }
        with pytest.raises(QuotaExceeded, match="waiting does not help") as never:
            await client.create(IMAGE, cpu=(1.5, 2))
        assert (never.value.details["resource"], never.value.details["limit"]) == ("cpu_millicores", "1000")
        await apply(quota(stack.owner, sandboxes=1), namespace=stack.sandboxes)
        await until(lambda: _limited(stack, 1))
        assert [(await sandbox.exec("true")).exit_code for sandbox in (one, two)] == [0, 0]
        lowered = await until(lambda: _refused_at(client, "1"))
        assert lowered is not None
        assert lowered.details["used"] == "2"
        await until(lambda: _shown(stack, 2))
        await client.delete(one.id, two.id)
        await until(lambda: _shown(stack, 0))
    finally:
        await kubectl("delete", "sandboxquota", "by-hand", "-n", stack.sandboxes)
    await until(lambda: _limited(stack, None))
    made = await asyncio.gather(*(client.create(IMAGE, **SMALL) for _ in range(2)))
    await client.delete(*(sandbox.id for sandbox in made))


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


@pytest.mark.disrupts
@pytest.mark.timeout(500)
async def test_a_warm_pool_of_agent_sandbox_is_kept_filled_and_claimed_from(stack: Installed, client: Client) -> None:
    if not own_cluster():
        pytest.skip("a given cluster may have these resources of its own")
    async with _their_resources(), _adopting(stack):
        await apply(_template(), _warm_pool(1), namespace=stack.sandboxes)
        try:
            await until(lambda: _understood(stack), 60.0)
            await until(lambda: _warm(client), 120.0)
            with pytest.raises(Conflict, match="declared by the SandboxWarmPool of that name"):
                await client.change_pool("theirs", warm=2)
        finally:
            await kubectl("delete", "sandboxwarmpools", "theirs", "-n", stack.sandboxes)
        await until(lambda: _no_pool(stack), 60.0)


@contextlib.asynccontextmanager
async def _their_resources() -> AsyncIterator[None]:
    """The two resources as the API server needs them to keep any object; their schema is upstream's."""
    for plural, kind in THEIR_KINDS.items():
        names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
        anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {"name": VERSION, "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}
        spec = {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]}
        meta = {"name": f"{plural}.{GROUP}"}
        kinds = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
        await apply({**kinds, "metadata": meta, "spec": spec})
    definitions = [f"crd/{plural}.{GROUP}" for plural in THEIR_KINDS]
    try:
        await kubectl("wait", *definitions, "--for=condition=Established", "--timeout=30s")
        yield
    finally:
        await kubectl("delete", *definitions, "--timeout=60s")


@contextlib.asynccontextmanager
async def _adopting(stack: Installed) -> AsyncIterator[None]:
    await stack.upgrade("pools.agentSandbox=true")
    try:
        yield
    finally:
        await stack.rollback()


def _template() -> dict[str, Any]:
    resources = {"requests": {"cpu": "20m", "memory": "32Mi"}, "limits": {"cpu": "1", "memory": "136Mi"}}
    container = {"name": "agent", "image": IMAGE, "resources": resources, "ports": [{"containerPort": 8888}]}
    spec = {"podTemplate": {"spec": {"containers": [container]}}}
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": "SandboxTemplate", "metadata": {"name": "small"}, "spec": spec}


def _warm_pool(replicas: int) -> dict[str, Any]:
    spec = {"replicas": replicas, "sandboxTemplateRef": {"name": "small"}}
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": "SandboxWarmPool", "metadata": {"name": "theirs"}, "spec": spec}


async def _theirs(stack: Installed) -> list[Pool | None]:
    """The pool, as each replica knows it."""
    known = await of_each(stack, Client.pools)
    return [next((pool for pool in pools if pool.name == "theirs"), None) for pools in known]


async def _understood(stack: Installed) -> bool:
    """Whether it is known with its template, of which a replica hears by itself: before the pool or behind it."""
    pools = await _theirs(stack)
    return all(pool and (pool.min_warm, pool.max_warm, pool.image) == (1, 1, IMAGE) for pool in pools)


async def _warm(client: Client) -> bool:
    """Whether a create is served from it: its status is told by the replica that plans only."""
    async with await client.create(IMAGE, **THEIRS) as sandbox:
        assert (await sandbox.exec("echo ok")).stdout == "ok\n"
        return sandbox.record.source == "warm"


async def _no_pool(stack: Installed) -> bool:
    return not any(await _theirs(stack))
