"""Leases: a client renews them for its sandboxes, and stops when it is closed or garbage-collected."""

from __future__ import annotations

import asyncio
import gc

import pytest

from rollbox import Client, RetryPolicy, Sandbox, leases
from rollbox.errors import InvalidArgument, SandboxForgotten
from tests.support.gateway_fake import FakeGateway, Fault


async def until_renewed(fake: FakeGateway, name: str, times: int) -> None:
    while fake.renewed.get(name, 0) < times:  # noqa: ASYNC110 - the fake has no event for it
        await asyncio.sleep(0.001)


async def test_a_sandbox_goes_with_its_client_and_the_client_says_that_it_is_there(
    client: Client, fake: FakeGateway
) -> None:
    async with await client.create("python", lease=0.01) as sandbox:
        lease = sandbox.record.lease
        assert lease is not None
        assert lease["ttl_ms"] == 10
        await until_renewed(fake, lease["name"], 3)
        async with await client.create("python", lease=0.01) as other:
            assert other.record.lease == lease


async def test_by_default_a_sandbox_outlives_its_client_by_ten_minutes(client: Client, fake: FakeGateway) -> None:
    async with await client.create("python"):
        assert fake.bodies[-1]["lease"]["ttl_ms"] == 600_000
        assert "idle_timeout_ms" not in fake.bodies[-1]


async def test_none_is_none(client: Client, fake: FakeGateway) -> None:
    async with await client.create("python", lease=None, idle_timeout=30) as sandbox:
        assert "lease" not in fake.bodies[-1]
        assert fake.bodies[-1]["idle_timeout_ms"] == 30_000
        await sandbox.detach()
        assert fake.count("DELETE", "lease") == 0
        assert sandbox.record.idle_timeout_ms == 30_000


async def test_a_detached_sandbox_has_no_lease(client: Client, fake: FakeGateway) -> None:
    async with await client.create("python") as sandbox:
        assert await sandbox.detach() == sandbox.id
    assert fake.sandboxes[sandbox.id]["lease"] is None
    assert fake.sandboxes[sandbox.id]["state"] == "running"


async def test_a_detach_that_failed_is_told(client: Client, fake: FakeGateway) -> None:
    sandbox = await client.create("python")
    del fake.sandboxes[sandbox.id]
    with pytest.raises(SandboxForgotten):
        await sandbox.detach()


async def test_another_client_takes_a_sandbox_over(client: Client, fake: FakeGateway) -> None:
    first = await client.create("python", lease=7)
    before = first.record.lease
    async with Client() as second:
        assert (await second.connect(first.id)).record.lease == before
        taken = await second.connect(first.id, attach=True)
        assert taken.record.lease is not None
        assert taken.record.lease["ttl_ms"] == 7000
        assert taken.record.lease != before
        loose = await client.create("python", lease=None)
        attached = await second.connect(loose.id, attach=True)
        assert (attached.record.lease or {})["ttl_ms"] == 600_000


async def test_words_that_are_lost_are_said_again(client: Client, fake: FakeGateway) -> None:
    fake.fail("renew", *[Fault("internal")] * 5)
    async with await client.create("python", lease=0.01) as sandbox:
        await until_renewed(fake, (sandbox.record.lease or {})["name"], 2)


async def test_a_closed_client_is_silent(fake: FakeGateway) -> None:
    async with Client(retries=RetryPolicy(tries=1)) as client:
        await client.create("python", lease=0.01)
        renewals = [*client.gateway.leases._renewals.values()]
    assert renewals
    assert all(renewal.cancelled() for renewal in renewals)


async def test_so_is_one_that_nobody_has_any_more() -> None:
    class Gone:
        """Stands in for a gateway that is never called."""

    gateway = Gone()
    held = leases.Leases(gateway)  # type: ignore[arg-type]
    held.of(4)
    (renewal,) = held._renewals.values()
    del gateway
    gc.collect()
    await renewal


async def test_the_shared_client_renews_too(fake: FakeGateway) -> None:
    async with await Sandbox.create("python", lease=0.01) as sandbox:
        await until_renewed(fake, (sandbox.record.lease or {})["name"], 2)


@pytest.mark.parametrize("option", ["lease", "idle_timeout"])
async def test_nonsense_is_refused(client: Client, fake: FakeGateway, option: str) -> None:
    for value in (0, -1, float("nan"), "10"):
        with pytest.raises(InvalidArgument, match=option):
            await client.create("python", **{option: value})  # type: ignore[arg-type]
    assert not fake.bodies
