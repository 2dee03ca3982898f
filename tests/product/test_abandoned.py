"""What nobody uses, and what nobody answers for any more, ends by itself; what is in use lives on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from typing import Any

import pytest

from rollbox import Client, Sandbox
from tests.support.images import IMAGE
from tests.support.stack import Product
from tests.support.waiting import until, waiting

# The platform adds three reports of a gateway, 15 s, whatever it is.
IDLE_S = 2
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
async def test_idle_and_orphaned_sandboxes_end_and_busy_ones_live(stack: Product, client: Client) -> None:
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
        await asyncio.gather(*(until(partial(_ended, client, one), 150) for one in (idle, orphan)))
        assert [(await client.get(sandbox.id)).state for sandbox in busy] == ["running"] * 3
    unused, orphaned = await client.get(idle.id), await client.get(orphan.id)
    assert unused.end is not None
    assert unused.end.cause == "idle_expired"
    assert orphaned.end is not None
    assert orphaned.end.cause == "lease_expired"
    assert "lease" in orphaned.end.by
    assert (unused.mask_sample, orphaned.mask_sample) == (True, True)
    story = await client.timeline(idle.id)
    assert [moment.state for moment in story.moments][-1] == "ended"


async def _ended(client: Client, sandbox: Sandbox) -> bool:
    await asyncio.sleep(0.5)
    return (await client.get(sandbox.id)).state == "ended"
