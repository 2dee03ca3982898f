"""Maintenance: what nobody asks for any more goes, also while the control plane is away."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from rollbox import BreakerPolicy, Client, RetryPolicy, Sandbox, SandboxError
from rollbox.breaker import is_open
from tests.support.images import IMAGE
from tests.support.installed import Installed, apply, kubectl, objects
from tests.support.waiting import until

# The operator gives the control plane a minute to take its own finalizer away, and looks twice a minute.
RELEASED_WITHIN_S = 150.0
ORPHAN_WITHIN_S = 90.0


async def _exists(stack: Installed, pod: str) -> bool:
    await asyncio.sleep(0.5)
    return pod in {one["metadata"]["name"] for one in await objects("pods", "-n", stack.sandboxes)}


async def _gone(stack: Installed, pod: str) -> bool:
    return not await _exists(stack, pod)


@contextlib.asynccontextmanager
async def _no_control_plane(stack: Installed) -> AsyncIterator[None]:
    """All replicas are away within the block, and back after it."""
    deployment = (f"deployment/{stack.release}-controlplane", "-n", stack.namespace)
    await kubectl("scale", *deployment, "--replicas=0")
    try:
        where = ("-n", stack.namespace, "-l", "app.kubernetes.io/component=controlplane")
        await kubectl("wait", "pods", *where, "--for=delete", "--timeout=120s")
        yield
    finally:
        await kubectl("scale", *deployment, "--replicas=2")
        await kubectl("rollout", "status", *deployment, "--timeout=120s")


@contextlib.asynccontextmanager
async def _with_an_orphan(stack: Installed, client: Client) -> AsyncIterator[Sandbox]:
    """A sandbox; after the block it has gone, and so has what ``_orphan`` made like it."""
    sandbox = await client.create(IMAGE, memory="128Mi")
    try:
        yield sandbox
    finally:
        await client.delete(sandbox.id)
        orphan = _orphan_of(sandbox.id)
        pod = ("pod", orphan, "-n", stack.sandboxes)
        await kubectl("delete", *pod, "--ignore-not-found", "--wait=false")
        if await _exists(stack, orphan):
            await kubectl("patch", *pod, "--type=merge", "--patch", '{"metadata": {"finalizers": null}}')


@pytest.mark.disrupts
@pytest.mark.timeout(660)
async def test_without_a_control_plane_execs_go_on_creates_are_stopped_and_pods_do_not_stay(
    stack: Installed, client: Client, shared: Sandbox
) -> None:
    """One outage for all of it: most of it is the minute that the operator waits."""
    now_s = 0.0
    breaker = BreakerPolicy(failures=2, first_s=60, now=lambda: now_s)
    async with (
        _with_an_orphan(stack, client) as sandbox,
        Client(stack.url, stack.api_key, retries=RetryPolicy(tries=1), breaker=breaker) as trainer,
    ):
        async with _no_control_plane(stack):
            orphan = await _orphan(stack, sandbox.id)
            await kubectl("delete", "pod", sandbox.id, "-n", stack.sandboxes, "--wait=false")
            assert await _exists(stack, sandbox.id), "the finalizer must keep the pod until its cause is on record"
            await _tells_of_the_outage(trainer)
            assert (await shared.exec("echo on")).stdout == "on\n"
            await until(lambda: _gone(stack, sandbox.id), RELEASED_WITHIN_S)
            assert await _exists(stack, orphan), "it may be on a record that is being made"
        await until(lambda: _well(client))
        now_s = 60.0
        assert (await trainer.health()).creates == "half_open"

        async def probed() -> Sandbox | None:
            """What a create makes that is tried once; one that fails puts the next off, for no longer than this."""
            nonlocal now_s
            with contextlib.suppress(SandboxError):
                return await trainer.create(IMAGE, memory="128Mi")
            now_s += 120.0
            return None

        made = await until(probed, 120.0)
        assert made is not None
        async with made:
            health = await trainer.health()
            assert (health.ok, health.why, health.creates) == (True, "", "closed")
        # It is nobody's any more, and says so.
        await until(lambda: _ended(client, sandbox.id))
        # The control plane compares once a minute, and has not for longer.
        await until(lambda: _gone(stack, orphan), ORPHAN_WITHIN_S)


def _orphan_of(sandbox_id: str) -> str:
    return f"{sandbox_id[:-4]}left"


async def _orphan(stack: Installed, like: str) -> str:
    """The name of a new pod like this sandbox's that is on no record."""
    ours = next(pod for pod in await objects("pods", "-n", stack.sandboxes) if pod["metadata"]["name"] == like)
    name = _orphan_of(like)
    container = {key: ours["spec"]["containers"][1][key] for key in ("name", "image", "resources")}
    labels = ours["metadata"]["labels"]
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels, "finalizers": ["rollbox.dev/tombstone"]},
        "spec": {
            "containers": [{**container, "command": ["sleep", "3600"]}],
            "runtimeClassName": ours["spec"]["runtimeClassName"],
            "automountServiceAccountToken": False,
            "restartPolicy": "Never",
        },
    }
    await apply(manifest, namespace=stack.sandboxes)
    return name


async def _tells_of_the_outage(trainer: Client) -> None:
    """The first creates fail by themselves; after that one clear error says so of all of them, and nothing is sent."""
    for _ in range(2):
        with pytest.raises(SandboxError) as failed:
            await trainer.create(IMAGE, memory="128Mi")
        assert (failed.value.is_infra, is_open(failed.value)) == (True, False)
    with pytest.raises(type(failed.value)) as refused:
        await trainer.create(IMAGE, memory="128Mi")
    assert is_open(refused.value)
    assert refused.value.detail == (
        f"creates are stopped: the platform failed 2 in a row, the last with {failed.value.code} "
        f"({failed.value.detail.rstrip('.')}); the next one is tried in 60 s"
    )
    health = await trainer.health()
    assert (health.ok, health.creates, health.retry_after_s) == (False, "open", 60.0)
    assert "control plane" in health.why


async def _well(client: Client) -> bool:
    return (await client.health()).ok


async def _ended(client: Client, sandbox_id: str) -> bool:
    await asyncio.sleep(0.5)
    return (await client.get(sandbox_id)).end is not None
