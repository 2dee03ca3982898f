"""What nobody uses, and what nobody answers for any more, ends by itself; what is in use lives on."""

from __future__ import annotations

import asyncio
from functools import partial

from rollbox import Client, Sandbox
from tests.support.images import IMAGE
from tests.support.stack import Product
from tests.support.waiting import until, waiting


async def test_idle_and_orphaned_sandboxes_end_and_a_busy_one_lives(stack: Product, client: Client) -> None:
    async def ended(sandbox: Sandbox) -> bool:
        await asyncio.sleep(0.5)
        return (await client.get(sandbox.id)).end is not None

    async with await client.create(IMAGE, idle_timeout=10) as busy, waiting(busy):
        async with await client.create(IMAGE, idle_timeout=10) as idle, Client(stack.url, stack.api_key) as trainer:
            orphan = await trainer.create(IMAGE, lease=2)
            # Its program dies: nobody deletes the sandbox, and nobody renews the lease.
            await trainer.aclose()
            await asyncio.gather(*(until(partial(ended, one), 150) for one in (idle, orphan)))
        assert (await client.get(busy.id)).state == "running"
    unused, orphaned = await client.get(idle.id), await client.get(orphan.id)
    assert unused.end is not None
    assert unused.end.cause == "idle_expired"
    assert orphaned.end is not None
    assert orphaned.end.cause == "deleted"
    assert "lease" in orphaned.end.by
    story = await client.timeline(idle.id)
    assert [moment.state for moment in story.moments][-1] == "ended"
