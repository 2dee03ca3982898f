"""Checkpoints: images of sandboxes in flight, any number after one another, which end by themselves."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest

from rollbox import Checkpoint, Client, Sandbox
from rollbox.errors import CheckpointExpired, CheckpointNotFound, Conflict, InvalidArgument
from tests.support.command_line import answer, rollbox
from tests.support.commits import ON_CLUSTER, commit, made_where_offered, repository
from tests.support.containers import engine
from tests.support.images import IMAGE
from tests.support.stack import Product
from tests.support.waiting import until

# What each step does to what the steps before it have left.
STEPS = (
    "mkdir -p /made/folder && echo 1 > /made/one && ln /made/one /made/link && echo 1 > /made/folder/a",
    "echo 2 > /made/two && rm /made/one && rm -r /made/folder /usr/share/zoneinfo && ln -s two /made/folder",
    "rm /made/folder && mkdir /made/folder && echo 3 > /made/folder/b && mkdir /usr/share/zoneinfo && rm /etc/issue",
)
LOOK = (
    "cd /made && ls -R . && cat link two folder/b; ls /usr/share/zoneinfo | wc -l; ls /etc/issue 2>&1; echo [$S] $PWD"
)


@asynccontextmanager
async def checkpoint(sandbox: Sandbox, client: Client, **options: Any) -> AsyncIterator[Checkpoint]:
    """A checkpoint, which is removed at the end."""
    made = await sandbox.commit(checkpoint=True, **options)
    try:
        yield made
    finally:
        await until(lambda: _removed(client, made))


async def _removed(client: Client, made: Checkpoint) -> bool:
    with contextlib.suppress(Conflict):  # its sandboxes are still on their way out
        await client.remove_image(made.id)
        return True
    return False


@pytest.mark.core
@made_where_offered
@pytest.mark.long
async def test_a_chain_of_checkpoints_has_all_changes_and_no_more_layers(client: Client) -> None:
    async with contextlib.AsyncExitStack() as stack:
        sandbox = await stack.enter_async_context(await client.create(IMAGE, env={"S": "s3cret"}, cwd="/tmp"))
        chain: list[Checkpoint] = []
        for depth, step in enumerate(STEPS, start=1):
            await sandbox.exec(step, check=True)
            made = await stack.enter_async_context(checkpoint(sandbox, client))
            assert (made.depth, isinstance(made, str)) == (depth, True)
            below = sandbox
            sandbox = await stack.enter_async_context(await client.create(checkpoint=made))
            parent = sandbox.record.parent
            assert parent is not None
            assert (parent.sandbox, parent.checkpoint, parent.depth) == (below.id, made.id, depth)
            chain.append(made)
        seen = (await sandbox.exec(LOOK)).stdout
        assert seen.splitlines() == [
            ".:",
            "folder",
            "link",
            "two",
            "",
            "./folder:",
            "b",
            "1",
            "2",
            "3",
            "0",
            "ls: cannot access '/etc/issue': No such file or directory",
            "[] /made",
        ], seen
        # Earlier ones are what they were, and each can go for itself.
        async with await client.create(checkpoint=chain[0].id) as first:
            assert (
                await first.exec("cat /made/one /made/folder/a; cat /etc/issue >/dev/null && echo y")
            ).stdout == "1\n1\ny\n"
        found = {one.image: one for one in (await client.commits()).images}
        assert [found[one].built_on for one in chain] == [(), (), ()]
        if not ON_CLUSTER:
            counts = [
                len((await engine("inspect", "-f", "{{json .RootFS.Layers}}", one.digest)).split(",")) for one in chain
            ]
            own = len((await engine("inspect", "-f", "{{json .RootFS.Layers}}", IMAGE)).split(","))
            assert counts == [own + 1] * 3


async def test_branches_of_one_sandbox_do_not_see_each_other(client: Client, source: Sandbox) -> None:
    async with checkpoint(source, client) as empty:
        await source.exec("echo later > /later", check=True)
        async with checkpoint(source, client) as later:
            for made, seen in ((empty, ""), (later, "later\n")):
                async with await client.create(checkpoint=made) as branch:
                    assert (await branch.exec("cat /later 2>/dev/null")).stdout == seen
                    await branch.exec("echo mine > /later", check=True)
            assert (await source.exec("cat /later")).stdout == "later\n"


async def test_a_named_image_outlives_the_checkpoint_that_it_comes_from(client: Client, source: Sandbox) -> None:
    async with repository() as name:
        await source.exec("echo one > /one", check=True)
        async with checkpoint(source, client) as made, await client.create(checkpoint=made) as again:
            await again.exec("echo two > /two", check=True)
            image = await commit(again, name)
            with pytest.raises(Conflict, match=again.id):
                await client.remove_image(made.id)
            await again.delete(wait=True)
        async with await client.create(image) as last:
            assert (await last.exec("cat /one /two")).stdout == "one\ntwo\n"
            assert last.record.parent is None


async def test_one_whose_time_is_over_and_one_that_never_was(client: Client, source: Sandbox) -> None:
    async with checkpoint(source, client, ttl=1) as made:
        await until(lambda: _expired(client, made))
        with pytest.raises(CheckpointExpired):
            await client.create(checkpoint=made.id)
        unknown = f"{made.id.rpartition('-')[0]}-aaaaaaaa".replace(made.id.split("-")[3], "9999999999")
        with pytest.raises(CheckpointNotFound):
            await client.create(checkpoint=unknown)
        wrongs: list[dict[str, Any]] = [{"name": "a", "checkpoint": True}, {}, {"name": "a", "ttl": 5}]
        for wrong in wrongs:
            with pytest.raises(InvalidArgument):
                await source.commit(**wrong)
        with pytest.raises(InvalidArgument):
            await client.create(IMAGE, checkpoint=made)


async def _expired(client: Client, made: Checkpoint) -> bool:
    try:
        async with await client.create(made):
            return False
    except CheckpointExpired:
        return True


async def test_a_key_makes_one(client: Client, source: Sandbox) -> None:
    key = uuid4().hex
    async with checkpoint(source, client, idempotency_key=key) as made:
        assert (await source.commit(checkpoint=True, idempotency_key=key)).id == made.id
        with pytest.raises(Conflict):
            await source.commit(checkpoint=True, ttl=60, idempotency_key=key)


async def test_the_command_line_makes_shows_and_starts_them(client: Client, stack: Product, source: Sandbox) -> None:
    await source.exec("echo here > /here", check=True)
    status, out, err = await rollbox(stack, "checkpoint", source.id, "--ttl", "600")
    assert status == 0, err
    made = out.decode().strip()
    started = ""
    try:
        status, out, err = await rollbox(stack, "create", "--checkpoint", made)
        assert status == 0, err
        started = out.decode().strip()
        records = await answer(stack, "ps")
        parents = {one["id"]: one["parent"] for one in records}
        assert parents[source.id] is None
        assert parents[started] == {"sandbox": source.id, "checkpoint": made, "depth": 1}
        _, out, _ = await rollbox(stack, "why", started)
        assert f"checkpoint {made} of {source.id}" in out.decode()
        listed = (await answer(stack, "image", "commits"))["images"]
        (one,) = [one for one in listed if one["tags"] == [made]]
        assert one["expires_at_ms"] > 0
    finally:
        if started:
            await client.delete(started, wait=True)
        status, out, err = await rollbox(stack, "image", "remove", made)
    assert (status, out.decode().strip()) == (0, made), err
