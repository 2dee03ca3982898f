"""The shared client: one for each event loop, closed by its last user."""

import asyncio

import pytest

import rollbox
from rollbox import Sandbox, SandboxError, shared
from rollbox.errors import InvalidArgument
from tests.support.gateway_fake import FakeGateway, Fault


def open_clients() -> int:
    return len(shared._by_loop)


async def test_a_detached_one_gives_its_lease_back_when_it_is_left(fake: FakeGateway) -> None:
    async with await Sandbox.create("python") as sandbox:
        await sandbox.detach()
    assert open_clients() == 0


async def test_a_create_that_fails_leaves_nothing_open(fake: FakeGateway) -> None:
    with pytest.raises(SandboxError):
        await Sandbox.create("missing")
    assert open_clients() == 0
    assert await Sandbox.list() == []
    assert open_clients() == 0


async def test_a_delete_that_fails_still_closes_when_the_block_is_left(fake: FakeGateway) -> None:
    fake.fail("delete", Fault("internal"))
    with pytest.raises(SandboxError):
        async with await Sandbox.create("python"):
            pass
    assert open_clients() == 0


async def test_aclose_closes_for_all(fake: FakeGateway) -> None:
    sandbox = await Sandbox.create("python")
    await rollbox.aclose()
    await rollbox.aclose()
    assert open_clients() == 0
    with pytest.raises(InvalidArgument, match="closed"):
        await sandbox.exec("true")


def test_a_loop_that_ends_closes_what_was_forgotten(apart: FakeGateway) -> None:
    async def forget() -> None:
        await (await Sandbox.create("python")).detach()

    # An unclosed session would be an error here: the suite turns warnings into errors.
    asyncio.run(forget())
    assert open_clients() == 0


def test_two_loops_have_two_clients(apart: FakeGateway) -> None:
    for _ in range(2):
        asyncio.run(_once())


async def _once() -> None:
    async with await Sandbox.create("python") as sandbox:
        assert (await sandbox.exec("true")).ok


def test_a_client_on_a_second_loop_is_refused(apart: FakeGateway) -> None:
    client = rollbox.Client()
    with asyncio.Runner() as first:
        first.run(client.info())
        with asyncio.Runner() as second, pytest.raises(InvalidArgument, match="second event loop"):
            second.run(client.info())
        first.run(client.aclose())
