"""What nobody uses, and what nobody answers for any more, ends by itself; what is in use lives on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from typing import Any
from uuid import uuid4

import pytest

from rollbox import Client, Sandbox
from rollbox.options import CreateSpec, Resources
from tests.support.abandoned import abandoned_create
from tests.support.images import IMAGE
from tests.support.stack import Product
from tests.support.waiting import until, waiting

# The platform adds three reports of a gateway, 15 s, whatever it is.
IDLE_S = 2
# What a busy machine may need on top, to begin a start and to end it.
SLOW_S = 60
SMALL: Any = {"cpu": (0.02, 1), "memory": ("32Mi", "128Mi")}
PORT = 8000
# Not a command of anybody's: only who is connected to it counts.
LISTENS = f"setsid python3 -m http.server {PORT} --bind 127.0.0.1 > /tmp/log 2>&1 &"


@contextlib.asynccontextmanager
async def waited_for(sandbox: Sandbox) -> AsyncIterator[None]:
    """A command of it is waited for."""
    async with waiting(sandbox):
        yield


@contextlib.asynccontextmanager
async def attached_to(client: Client, sandbox_id: str) -> AsyncIterator[Sandbox]:
    """A command of it is attached to, and silent. That the command runs does not keep it from going with its lease."""
    async with await client.connect(sandbox_id) as sandbox, await sandbox.spawn("read line") as process:
        # Only who waits for something is attached.
        attached = asyncio.create_task(process.wait())
        try:
            yield sandbox
        finally:
            attached.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await attached


@contextlib.asynccontextmanager
async def connected_to(sandbox: Sandbox) -> AsyncIterator[None]:
    """A connection to a port of it is open, and silent."""
    await sandbox.exec(LISTENS, check=True)
    await sandbox.ports.wait(PORT, timeout=30)
    async with await sandbox.ports.connect_tcp(PORT):
        yield


Use = Callable[[Sandbox], AbstractAsyncContextManager[None]]


@contextlib.asynccontextmanager
async def in_use(client: Client, use: Use) -> AsyncIterator[Sandbox]:
    """A sandbox that is used from the moment it is ready."""
    async with await client.create(IMAGE, idle_timeout=IDLE_S, **SMALL) as sandbox, use(sandbox):
        yield sandbox


# A sidecar that does not answer is asked again a minute later.
@pytest.mark.timeout(300)
@pytest.mark.long
async def test_idle_and_orphaned_sandboxes_end_and_busy_ones_live(stack: Product, client: Client) -> None:
    unwanted = await dead_during_its_create(stack, client)
    expiring = await client.create(IMAGE, ttl=40, **SMALL)
    async with AsyncExitStack() as uses:
        ways = (waited_for, connected_to)
        busy = await asyncio.gather(*(uses.enter_async_context(in_use(client, way)) for way in ways))
        async with Client(stack.url, stack.api_key) as trainer:
            idle = await client.create(IMAGE, idle_timeout=IDLE_S, **SMALL)
            # Of the same lease as the orphan, and used before that began: what ends the one looks at both.
            kept = await trainer.create(IMAGE, lease=2, **SMALL)
            busy.append(await uses.enter_async_context(attached_to(client, kept.id)))
            orphan = await trainer.create(IMAGE, lease=2, **SMALL)
            # Its program dies: nobody deletes the sandbox, and nobody renews the lease.
            await trainer.aclose()
        ending = (idle.id, orphan.id, unwanted, expiring.id)
        await asyncio.gather(*(until(partial(_ended, client, one), 150) for one in ending))
        assert [(await client.get(sandbox.id)).state for sandbox in busy] == ["running"] * 3
    ends = {
        idle.id: "idle_expired",
        orphan.id: "lease_expired",
        unwanted: "create_abandoned",
        expiring.id: "ttl_expired",
    }
    for sandbox_id, cause in ends.items():
        record = await client.get(sandbox_id)
        assert record.end is not None
        assert (record.end.cause, record.end.fault, record.mask_sample) == (cause, "caller", True)
        if sandbox_id == unwanted:
            # About a minute.
            assert record.end.at_ms - record.created_at_ms < 60_000 + 1000 * SLOW_S
    story = await client.timeline(idle.id)
    assert [moment.state for moment in story.moments][-1] == "ended"


async def dead_during_its_create(stack: Product, client: Client) -> str:
    """The id of a sandbox whose program died while it waited for it."""
    run = {"run": f"dead-{uuid4().hex}"}
    # Without a lease: nothing else would end it before its idle timeout, an hour.
    body = CreateSpec(image=IMAGE, resources=Resources(**SMALL), labels=run).without_lease().to_json()
    async with abandoned_create(stack.url, stack.api_key, body, key=uuid4().hex):
        (begun,) = await until(lambda: client.list(run))
    return begun.id


async def test_a_cancelled_create_leaves_alone_what_another_one_has_with_its_key(client: Client) -> None:
    key = uuid4().hex
    async with await client.create(IMAGE, idempotency_key=key, **SMALL) as shared:
        for yields in range(8):
            creating = asyncio.create_task(client.create(IMAGE, idempotency_key=key, **SMALL))
            for _ in range(yields):
                await asyncio.sleep(0)
            creating.cancel()
            await asyncio.wait([creating])
        assert (await shared.exec("echo alive")).stdout == "alive\n"
        assert (await client.get(shared.id)).end is None


async def _ended(client: Client, sandbox_id: str) -> bool:
    await asyncio.sleep(0.5)
    return (await client.get(sandbox_id)).state == "ended"
