"""Pools that objects of kubernetes-sigs/agent-sandbox declare, as its releases define them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from controlplane.cluster.kubernetes.declared.agent_sandbox import GROUP, TEMPLATES, WARM_POOLS
from rollbox import Client, Pool
from rollbox.errors import Conflict
from tests.support.agent_sandbox import releases
from tests.support.images import IMAGE
from tests.support.installed import Installed, apply, kubectl, own_cluster, run
from tests.support.replicas import of_each
from tests.support.waiting import until

# Another amount than the other tests ask for: nobody else claims from it.
THEIRS: Any = {"cpu": (0.02, 1), "memory": ("32Mi", "136Mi")}
RESOURCES = {"requests": {"cpu": "20m", "memory": "32Mi"}, "limits": {"cpu": "1", "memory": "136Mi"}}
CONTAINER = {"name": "agent", "image": IMAGE, "resources": RESOURCES, "ports": [{"containerPort": 8888}]}
TEMPLATE = {"podTemplate": {"spec": {"containers": [CONTAINER]}}}
WARM_POOL = {"replicas": 1, "sandboxTemplateRef": {"name": "small"}}


def template(version: str, spec: dict[str, Any] = TEMPLATE) -> dict[str, Any]:
    """As a user of theirs writes it."""
    return {"apiVersion": f"{GROUP}/{version}", "kind": "SandboxTemplate", "metadata": {"name": "small"}, "spec": spec}


def warm_pool(version: str, spec: dict[str, Any] = WARM_POOL) -> dict[str, Any]:
    """As a user of theirs writes it."""
    return {"apiVersion": f"{GROUP}/{version}", "kind": "SandboxWarmPool", "metadata": {"name": "theirs"}, "spec": spec}


@pytest.mark.disrupts
@pytest.mark.timeout(900)
async def test_a_warm_pool_of_each_of_their_releases_is_kept_filled_and_claimed_from(
    stack: Installed, client: Client
) -> None:
    """One release after the other: what serves the objects of one goes on with those of the next."""
    if not own_cluster():
        pytest.skip("a given cluster may have these resources of its own")
    async with contextlib.AsyncExitStack() as stays:
        for n, release in enumerate(releases()):
            async with release.defined() as version:
                await _is_validated(stack, version)
                if n == 0:
                    await stays.enter_async_context(_adopting(stack))
                await _is_kept(stack, client, version)


@contextlib.asynccontextmanager
async def _adopting(stack: Installed) -> AsyncIterator[None]:
    await stack.upgrade("pools.agentSandbox=true")
    try:
        yield
    finally:
        await stack.rollback()


async def _is_validated(stack: Installed, version: str) -> None:
    """The API server takes what is asked for below, and nothing that is not of the schema."""
    for plural, good in ((TEMPLATES, template(version)), (WARM_POOLS, warm_pool(version))):
        await _tried(stack, plural, good)
    for plural, broken, said in (
        (TEMPLATES, template(version, {}), "podTemplate: Required value"),
        (TEMPLATES, template(version, {"podTemplate": {"spec": {}}}), "containers: Required value"),
        (WARM_POOLS, warm_pool(version, {"replicas": 1}), "sandboxTemplateRef: Required value"),
        (WARM_POOLS, warm_pool(version, {**WARM_POOL, "replicas": -1}), "greater than or equal to 0"),
        (WARM_POOLS, warm_pool(version, {**WARM_POOL, "warm": 1}), 'unknown field .*"spec.warm"'),
    ):
        with pytest.raises(RuntimeError, match=said):
            await _tried(stack, plural, broken)


async def _tried(stack: Installed, plural: str, thing: dict[str, Any]) -> None:
    """By the server, which is to be strict; `kubectl` would judge by what it knows of the schema."""
    path = f"/apis/{thing['apiVersion']}/namespaces/{stack.sandboxes}/{plural}?dryRun=All&fieldValidation=Strict"
    await run("kubectl", "create", "--raw", path, "-f", "-", stdin=json.dumps(thing).encode())


async def _is_kept(stack: Installed, client: Client, version: str) -> None:
    await apply(template(version), warm_pool(version), namespace=stack.sandboxes)
    try:
        await until(lambda: _understood(stack, 1), 120.0)
        # A create that comes before would start one of its own.
        await until(lambda: _ready(stack), 120.0)
        await until(lambda: _warm(client), 120.0)
        await apply(warm_pool(version, {**WARM_POOL, "replicas": 2}), namespace=stack.sandboxes)
        await until(lambda: _understood(stack, 2))
        with pytest.raises(Conflict, match="declared by the SandboxWarmPool of that name"):
            await client.change_pool("theirs", warm=2)
    finally:
        # With its version: `kubectl` remembers for hours which ones a cluster serves.
        await kubectl("delete", f"{WARM_POOLS}.{version}.{GROUP}", "theirs", "-n", stack.sandboxes)
    await until(lambda: _no_pool(stack))


async def _theirs(stack: Installed) -> list[Pool | None]:
    """The pool, as each replica knows it."""
    known = await of_each(stack, Client.pools)
    return [next((pool for pool in pools if pool.name == "theirs"), None) for pools in known]


async def _understood(stack: Installed, replicas: int) -> bool:
    """Whether it is known with its template, of which a replica hears by itself: before the pool or behind it."""
    wanted = (replicas, replicas, IMAGE)
    return all(pool and (pool.min_warm, pool.max_warm, pool.image) == wanted for pool in await _theirs(stack))


async def _ready(stack: Installed) -> bool:
    """Whether the replica that plans, which alone tells of it, has one to give."""
    return any(pool and pool.ready for pool in await _theirs(stack))


async def _warm(client: Client) -> bool:
    """Whether a create is served from it."""
    async with await client.create(IMAGE, **THEIRS) as sandbox:
        assert (await sandbox.exec("echo ok")).stdout == "ok\n"
        return sandbox.record.source == "warm"


async def _no_pool(stack: Installed) -> bool:
    return not any(await _theirs(stack))
