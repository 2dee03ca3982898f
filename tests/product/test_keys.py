"""API keys that are made while the platform runs: what they open, at every control plane, and when they stop to."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Any
from uuid import uuid4

import pytest

from rollbox import Client, NewApiKey, SandboxError
from rollbox.errors import NotFound, PermissionDenied, SandboxNotFound, Unauthenticated
from tests.support.images import IMAGE
from tests.support.stack import Product
from tests.support.waiting import until

SMALL: Any = {"cpu": (0.02, 1), "memory": ("32Mi", "128Mi")}


@contextlib.asynccontextmanager
async def key(client: Client, *scopes: str, **wish: Any) -> AsyncIterator[NewApiKey]:
    """A key that is revoked at the end."""
    made = await client.create_key(f"test-{uuid4().hex[:8]}", scopes, **wish)
    try:
        yield made
    finally:
        await client.revoke_key(made.record.id)


async def reason_of(url: str, text: str) -> str:
    """Why a control plane, or a gateway, refuses a key; empty: it does not."""
    async with Client(url, text) as caller:
        try:
            await caller.list()
        except SandboxError as refused:
            return str(refused.details.get("reason", refused.code))
    return ""


async def _is(url: str, text: str, reason: str) -> bool:
    return await reason_of(url, text) == reason


async def test_a_key_does_what_its_scopes_say(client: Client, stack: Product) -> None:
    async with (
        key(client, "run") as runs,
        key(client, "read") as reads,
        Client(stack.url, runs.text) as runner,
        Client(stack.url, reads.text) as reader,
        await runner.create(IMAGE, **SMALL) as sandbox,
    ):
        assert (await sandbox.exec("echo yes")).stdout == "yes\n"
        assert sandbox.id in {record.id for record in await reader.list()}
        for refused in (reader.create(IMAGE, **SMALL), reader.connect(sandbox.id), reader.create_key("more", ["read"])):
            with pytest.raises(PermissionDenied, match="this needs"):
                await refused
        with pytest.raises(PermissionDenied, match="this needs operator"):
            await runner.set_quota("somebody", sandboxes=1)
        told = {one.id: one for one in await client.keys()}
        assert (told[runs.record.id].state, told[runs.record.id].scopes) == ("valid", ("run",))


async def test_a_revoked_key_is_refused_by_every_replica(client: Client, stack: Product) -> None:
    urls = [stack.url, *await stack.controlplanes()]
    async with key(client, "run") as made:
        assert {await reason_of(url, made.text) for url in urls} == {""}
        await client.revoke_key(made.record.id)
        for url in urls:
            await until(partial(_is, url, made.text, "api_key_revoked"))
        assert (await client.revoke_key(made.record.id)).state == "revoked"


async def test_both_texts_open_while_a_key_is_rotated_and_then_one(client: Client, stack: Product) -> None:
    async with key(client, "run", expires="1h") as made:
        fresh = await client.rotate_key(made.record.id, grace="10m")
        assert [await reason_of(stack.url, text) for text in (made.text, fresh.text)] == ["", ""]
        last = await client.rotate_key(made.record.id, grace=0)
        assert await reason_of(stack.url, last.text) == ""
        await until(partial(_is, stack.url, fresh.text, "api_key_expired"))
        assert last.record.expires_at_ms is not None


async def test_a_key_ends_with_its_time_and_one_that_was_cut_off_is_told_so(client: Client, stack: Product) -> None:
    async with key(client, "read", expires=1) as made:
        await until(partial(_is, stack.url, made.text, "api_key_expired"))
        async with Client(stack.url, made.text[:-3]) as caller:
            with pytest.raises(Unauthenticated, match="cut off or mistyped"):
                await caller.list()


async def test_a_neighbours_key_opens_nothing(client: Client, stack: Product) -> None:
    async with (
        key(client, "run", "images", "egress", "keys", owner="neighbour") as theirs,
        Client(stack.url, theirs.text) as neighbour,
        await client.create(IMAGE, labels={"of": "me"}, **SMALL) as sandbox,
        key(client, "read") as mine,
    ):
        assert sandbox.id not in {record.id for record in await neighbour.list()}
        for refused in (neighbour.get(sandbox.id), neighbour.connect(sandbox.id), neighbour.timeline(sandbox.id)):
            with pytest.raises(SandboxNotFound):
                await refused
        with pytest.raises(NotFound):
            await neighbour.revoke_key(mine.record.id)
        assert (await neighbour.delete(labels={"of": "me"})).deleted == []
        assert [event async for event in neighbour.events("0", follow=False) if event.sandbox_id == sandbox.id] == []
        with pytest.raises(PermissionDenied):
            _ = [event async for event in neighbour.events("0", every_owner=True, follow=False)]
        assert (await sandbox.exec("echo here")).stdout == "here\n"


async def test_a_shared_key_opens_one_sandbox_and_ends_nothing(client: Client, stack: Product) -> None:
    async with (
        key(client, "run") as runs,
        Client(stack.url, runs.text) as runner,
        await client.create(IMAGE, **SMALL) as sandbox,
        await client.create(IMAGE, **SMALL) as other,
    ):
        shared = await (await runner.connect(sandbox.id)).share(ttl="10m")
        async with Client(stack.url, shared.key) as holder:
            held = await holder.connect(shared.sandbox_id)
            assert (await held.exec("echo yes")).stdout == "yes\n"
            await held.files.write("/tmp/by-holder", "kept")
            for refused in (held.delete(), held.extend(9000), held.share(), holder.connect(other.id), holder.list()):
                with pytest.raises(PermissionDenied, match=f"the use of sandbox {sandbox.id} alone"):
                    await refused
            assert (await sandbox.exec("cat /tmp/by-holder")).stdout == "kept"
            await client.revoke_key(runs.record.id)
            await until(partial(_is, stack.url, shared.key, "api_key_revoked"))


async def test_what_a_shared_key_has_opened_is_over_with_its_time(client: Client, stack: Product) -> None:
    async with await client.create(IMAGE, **SMALL) as sandbox:
        shared = await sandbox.share(ttl=2)
        async with Client(stack.url, shared.key) as holder:
            held = await holder.connect(shared.sandbox_id)

            async def refused() -> bool:
                try:
                    await held.exec("true")
                except Unauthenticated as error:
                    return error.details["reason"] == "api_key_expired"
                return False

            await until(refused)
        assert (await sandbox.exec("echo on")).stdout == "on\n"
