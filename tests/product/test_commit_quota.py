"""The bytes that an owner may have in images made of sandboxes, and how these go again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from rollbox import Client, Sandbox
from rollbox.errors import Conflict, ImageNotFound, QuotaExceeded
from tests.support.command_line import answer, rollbox
from tests.support.commits import commit, repository
from tests.support.stack import Product
from tests.support.waiting import until


@pytest.fixture
async def owner(client: Client) -> AsyncIterator[str]:
    """The tests' owner, who has no quota before and none afterwards."""
    before = await client.quota()
    yield before.owner
    await client.remove_quota(before.owner)


@pytest.mark.long
async def test_a_commit_beyond_the_quota_is_refused_and_makes_nothing(
    client: Client, owner: str, source: Sandbox
) -> None:
    async with repository() as name:
        first = await commit(source, f"{name}:v1")
        before = await client.commits()
        assert before.limit_bytes
        assert before.used_bytes >= first.size_bytes
        await client.set_quota(owner, commits=1)
        # Each replica hears of it in the moments after.
        await until(lambda: refused(client, source, f"{name}:v2"))
        with pytest.raises(QuotaExceeded, match="rollbox image remove") as caught:
            await source.commit(f"{name}:v2")
        assert (caught.value.details["resource"], caught.value.details["limit"]) == ("commit_bytes", "1")
        assert int(caught.value.details["used"]) >= first.size_bytes
        mine = [one.tags for one in (await client.commits()).images if f"/{name}" in one.image]
        assert mine == [("v1",)]
        await client.set_quota(owner, commits=None)
        await until(lambda: admitted(source, f"{name}:v2"))


@pytest.mark.long
async def test_an_image_in_use_stays_until_its_last_sandbox_has_ended(
    client: Client, stack: Product, source: Sandbox
) -> None:
    async with repository() as name:
        image = await commit(source, name)
        async with await client.create(image) as user:
            with pytest.raises(Conflict, match=user.id):
                await client.remove_image(name)
            status, _, err = await rollbox(stack, "image", "remove", name)
            assert (status != 0, user.id in err) == (True, True), err
            await user.delete(wait=True)
        told = await answer(stack, "image", "commits")
        assert image in [one["image"] for one in told["images"]]
        status, out, err = await rollbox(stack, "image", "remove", image)
        assert (status, out.decode().strip()) == (0, image), err
        assert image not in [one.image for one in (await client.commits()).images]
        with pytest.raises(ImageNotFound):
            await client.create(image)
        assert not await client.remove_image(f"{uuid4().hex[:12]}:none")


async def refused(client: Client, sandbox: Sandbox, name: str) -> bool:
    """Whether a commit is refused; what is made is removed."""
    try:
        made = await sandbox.commit(name)
    except QuotaExceeded:
        return True
    await client.remove_image(made)
    return False


async def admitted(sandbox: Sandbox, name: str) -> bool:
    """Whether a commit is made."""
    try:
        await sandbox.commit(name)
    except QuotaExceeded:
        return False
    return True
