"""Environment, directory and user of a sandbox: there before the first command, compared when a create is repeated."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from controlplane.errors.table import HINT_OF_REASON
from rollbox import Client, errors
from tests.support.images import IMAGE


async def test_settings_are_there_for_everybody_who_connects_and_a_repeated_create_compares_them(
    client: Client,
) -> None:
    wish: Any = {"cwd": "/tmp", "user": "nobody", "idempotency_key": f"k-{uuid4().hex}"}
    async with await client.create(IMAGE, env={"SECRET": "hush"}, **wish) as made:
        again = await client.create(IMAGE, env={"SECRET": "hush"}, **wish)
        assert again.id == made.id
        for one in (made, again, await client.connect(made.id)):
            result = await one.exec("echo $SECRET; pwd; id -un", check=True)
            assert result.stdout == "hush\n/tmp\nnobody\n"
        # It does not know them.
        for other in ({"SECRET": "other"}, None):
            with pytest.raises(errors.Conflict):
                await client.create(IMAGE, env=other, **wish)


@pytest.mark.parametrize(
    ("user", "cwd", "reason"),
    [("no-such-user", None, "user_not_found"), (None, "/no/such/folder", "cwd_not_found")],
)
async def test_what_the_image_does_not_have_is_refused_and_leaves_nothing(
    client: Client, user: str | None, cwd: str | None, reason: str
) -> None:
    with pytest.raises(errors.InvalidArgument) as refused:
        await client.create(IMAGE, user=user, cwd=cwd)
    assert refused.value.details["reason"] == reason
    assert refused.value.hint == HINT_OF_REASON[reason]
    assert (await client.timeline(refused.value.details["sandbox_id"])).advice == HINT_OF_REASON[reason]
