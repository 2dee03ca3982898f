"""Pools on the real product: filled by themselves, claimed with what is bound late, drained, and nothing left."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rollbox import Client, Pool, Sandbox
from rollbox.errors import SandboxError
from tests.support.commits import ON_CLUSTER
from tests.support.images import IMAGE
from tests.support.waiting import until

# Another amount than the other tests ask for: nobody else claims from it.
MEMORY = ("64Mi", "320Mi")
WARM = 1 if ON_CLUSTER else 2


@pytest.fixture
async def pool(client: Client) -> AsyncIterator[Pool]:
    name = f"t{uuid.uuid4().hex[:8]}"
    try:
        yield await client.set_pool(name, IMAGE, WARM, memory=MEMORY)
    finally:
        await client.change_pool(name, drain=True)
        await until(lambda: _counts(client, name, 0))
        await client.remove_pool(name)


async def _counts(client: Client, name: str, ready: int) -> Pool | None:
    """The pool, once it says that so many are ready and no others are left."""
    pool = await client.pool(name)
    return pool if (pool.ready, pool.starting, pool.outdated) == (ready, 0, 0) else None


@pytest.mark.core
async def test_a_warm_sandbox_is_its_owners_from_the_first_command_on(client: Client, pool: Pool) -> None:
    await until(lambda: _counts(client, pool.name, WARM))
    late: Any = {"env": {"WHO": "me"}, "cwd": "/tmp", "user": "nobody", "labels": {"pool": pool.name}, "ttl": 600}
    async with await Sandbox.create(IMAGE, memory=MEMORY, **late, client=client) as sandbox:
        assert sandbox.record.source == "warm"
        assert (await sandbox.exec("echo $WHO; pwd; id -un")).stdout == "me\n/tmp\nnobody\n"
        # Its life begins with its owner's, and not in the pool.
        claimed_at_ms = next(one.at_ms for one in (await client.timeline(sandbox.id)).moments if one.word == "claim")
        assert abs(sandbox.record.expires_at_ms - claimed_at_ms - 600_000) < 5_000
        assert [record.id for record in await client.list(late["labels"])] == [sandbox.id]
        told = await until(lambda: _counts(client, pool.name, WARM))
        assert told is not None
        assert told.why == f"{WARM} are wanted: minimum and maximum are the same"
    async with await Sandbox.create(IMAGE, memory=("64Mi", "400Mi"), client=client) as other:
        assert other.record.source == "cold"
        assert "with other memory_bytes" in other.record.cold_reason


async def test_an_image_that_does_not_exist_is_told_by_pool_and_claim(client: Client) -> None:
    name, image = f"t{uuid.uuid4().hex[:8]}", "localhost/rollbox/there-is-none:1"
    await client.set_pool(name, image, 3)
    try:
        told = await until(lambda: _failed(client, name))
        assert told is not None
        assert told.failures[0].count == 1
        assert told.failures[0].detail in told.why
        with pytest.raises(SandboxError) as refused:
            await Sandbox.create(image, client=client)
        assert refused.value.code == told.failures[0].code
    finally:
        await client.remove_pool(name)


async def _failed(client: Client, name: str) -> Pool | None:
    pool = await client.pool(name)
    return pool if pool.failures else None
