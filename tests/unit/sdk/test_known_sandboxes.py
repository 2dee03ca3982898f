"""SandboxForgotten: the platform does not know a sandbox that this client was given and has not deleted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from rollbox import Client, Sandbox
from rollbox.errors import InvalidArgument, SandboxForgotten, SandboxNotFound
from rollbox.known_sandboxes import KnownSandboxes
from tests.support.gateway_fake import FakeGateway, Fault

ASKS: dict[str, tuple[str, Callable[[Client, Sandbox], Awaitable[object]]]] = {
    "exec": ("exec", lambda _, sandbox: sandbox.exec("true")),
    "files": ("stat", lambda _, sandbox: sandbox.files.stat("/")),
    "extend": ("extend", lambda _, sandbox: sandbox.extend(60)),
    "get": ("get", lambda client, sandbox: client.get(sandbox.id)),
    "connect": ("token", lambda client, sandbox: client.connect(sandbox.id)),
}


@pytest.mark.parametrize("ask", ASKS)
async def test_a_sandbox_that_this_client_was_given_is_forgotten(client: Client, fake: FakeGateway, ask: str) -> None:
    route, call = ASKS[ask]
    async with await client.create("python") as sandbox:
        fake.fail(route, Fault("sandbox_not_found", details={"sandbox_id": sandbox.id}))
        with pytest.raises(SandboxForgotten) as forgotten:
            await call(client, sandbox)
    assert (forgotten.value.sandbox_id, forgotten.value.fault) == (sandbox.id, "platform")
    assert forgotten.value.is_infra
    assert forgotten.value.mask_sample
    assert isinstance(forgotten.value.__cause__, SandboxNotFound)


async def test_one_that_it_has_deleted_is_just_not_there(client: Client, fake: FakeGateway) -> None:
    for delete in (lambda box: client.delete(box.id), lambda box: client.delete(labels=box.labels), Sandbox.delete):
        sandbox = await client.create("python", labels={"run": "r"})
        await delete(sandbox)
        fake.fail("get", Fault("sandbox_not_found", details={"sandbox_id": sandbox.id}))
        with pytest.raises(SandboxNotFound):
            await client.get(sandbox.id)


async def test_leaving_one_that_is_forgotten_is_no_failure(client: Client, fake: FakeGateway) -> None:
    async with await client.create("python"):
        fake.fail("delete", Fault("sandbox_not_found"))


def test_a_day_after_it_may_be_gone_for_good() -> None:
    clock = iter((0.0, 1.0, 23 * 3600.0, 25 * 3600.0))
    known = KnownSandboxes(clock.__next__)
    known.add("sb-1")
    unknown = SandboxNotFound("no", sandbox_id="sb-1")
    for _ in range(2):
        with pytest.raises(SandboxForgotten):
            known.raise_if_forgotten(unknown)
    known.raise_if_forgotten(unknown)


def test_other_failures_and_other_ids_are_left_as_they_are() -> None:
    known = KnownSandboxes()
    known.add("sb-1")
    known.raise_if_forgotten(InvalidArgument("no", sandbox_id="sb-1"))
    known.raise_if_forgotten(SandboxNotFound("no", sandbox_id="sb-2"))
    known.raise_if_forgotten(SandboxNotFound("no"))


def test_of_very_many_the_oldest_are_ids_of_anybody() -> None:
    known = KnownSandboxes()
    for number in range(20_000):
        known.add(f"sb-{number}")
    known.raise_if_forgotten(SandboxNotFound("no", sandbox_id="sb-0"))
    with pytest.raises(SandboxForgotten):
        known.raise_if_forgotten(SandboxNotFound("no", sandbox_id="sb-19999"))
