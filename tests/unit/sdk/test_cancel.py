"""A cancelled call is cancelled on the server too."""

import asyncio

import pytest

from rollbox import Client, Sandbox
from tests.support.gateway_fake import FakeGateway, Fault


async def held(sandbox: Sandbox, fake: FakeGateway) -> asyncio.Task[object]:
    """Start an exec that the server does not answer."""
    running = asyncio.ensure_future(sandbox.exec("hold", exec_id="e1"))
    await fake.holding.wait()
    return running


async def test_a_cancelled_exec_is_killed_before_the_caller_goes_on(client: Client, fake: FakeGateway) -> None:
    running = await held(await client.create("python"), fake)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert fake.cancelled["e1"].is_set()


async def test_a_timeout_of_the_caller_kills(client: Client, fake: FakeGateway) -> None:
    sandbox = await client.create("python")

    async def impatient() -> None:
        async with asyncio.timeout(None) as scope, asyncio.TaskGroup() as group:
            group.create_task(_expire(scope, fake))
            await sandbox.exec("hold", exec_id="e1")

    with pytest.raises(TimeoutError):
        await impatient()
    assert fake.cancelled["e1"].is_set()


async def _expire(scope: asyncio.Timeout, fake: FakeGateway) -> None:
    await fake.holding.wait()
    scope.reschedule(asyncio.get_running_loop().time())


async def test_a_group_that_aborts_kills(client: Client, fake: FakeGateway) -> None:
    sandbox = await client.create("python")

    async def break_it() -> None:
        await fake.holding.wait()
        raise ZeroDivisionError

    async def together() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(sandbox.exec("hold", exec_id="e1"))
            group.create_task(break_it())

    with pytest.raises(ExceptionGroup) as caught:
        await together()
    assert caught.group_contains(ZeroDivisionError)
    assert fake.cancelled["e1"].is_set()


async def test_a_server_that_cannot_be_told_does_not_hide_the_cancellation(client: Client, fake: FakeGateway) -> None:
    running = await held(await client.create("python"), fake)
    fake.fail("cancel", Fault("internal"))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    fake.cancelled["e1"].set()


async def test_a_second_cancellation_does_not_stop_the_first_ones_cleanup(fake: FakeGateway) -> None:
    async with Client() as client:
        running = await held(await client.create("python"), fake)
        fake.hold_cancels = True
        running.cancel()
        await fake.cancel_came.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not fake.cancelled["e1"].is_set()
        fake.cancel_may_go.set()
    assert fake.cancelled["e1"].is_set()


async def test_an_exec_that_the_server_does_not_know_yet_is_looked_for_twice(client: Client, fake: FakeGateway) -> None:
    running = await held(await client.create("python"), fake)
    fake.fail("cancel", Fault("exec_not_found"))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert fake.count("DELETE", "/execs/e1") == 2
    assert fake.cancelled["e1"].is_set()


async def test_a_cancelled_create_is_undone_by_its_key(client: Client, fake: FakeGateway) -> None:
    fake.hold_creates = True
    creating = asyncio.ensure_future(client.create("python", idempotency_key="k1"))
    await fake.holding.wait()
    creating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creating
    assert fake.refused_keys == {"k1"}


async def test_a_cancelled_create_leaves_alone_what_another_one_has_with_its_key(
    client: Client, fake: FakeGateway
) -> None:
    async with await client.create("python", idempotency_key="k1") as shared:
        fake.hold_creates = True
        creating = asyncio.ensure_future(client.create("python", idempotency_key="k1"))
        await fake.holding.wait()
        creating.cancel()
        with pytest.raises(asyncio.CancelledError):
            await creating
        assert fake.refused_keys == {"k1"}
        assert (await client.get(shared.id)).state == "running"


async def test_leaving_by_cancellation_deletes(client: Client, fake: FakeGateway) -> None:
    async def body() -> None:
        async with await client.create("python") as sandbox:
            await sandbox.exec("hold", exec_id="e1")

    running = asyncio.ensure_future(body())
    await fake.holding.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [box["state"] for box in fake.sandboxes.values()] == ["ended"]


async def test_a_delete_goes_on_when_its_caller_is_cancelled(fake: FakeGateway) -> None:
    async with Client() as client:
        sandbox = await client.create("python")
        deleting = asyncio.ensure_future(sandbox.delete())
        # One step: the request's task has started, and there is no answer yet.
        await asyncio.sleep(0)
        deleting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await deleting
    assert fake.sandboxes[sandbox.id]["state"] == "ended"
