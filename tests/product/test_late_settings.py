"""Environment, directory and user of a sandbox: there before the first command, compared when a create is repeated."""

from __future__ import annotations

import base64
import html
import json
from typing import Any
from uuid import uuid4

import jwt
import pytest

from controlplane.errors.table import HINT_OF_REASON
from rollbox import Client, Sandbox, errors
from tests.support.command_line import rollbox
from tests.support.images import IMAGE
from tests.support.stack import Product
from tests.support.wire import raw, token_of


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
    ("given", "reason"),
    [({"user": "no-such-user"}, "user_not_found"), ({"cwd": "/no/such/folder"}, "cwd_not_found")],
)
async def test_what_the_image_does_not_have_is_refused_with_a_hint_that_every_later_answer_repeats(
    stack: Product, client: Client, shared: Sandbox, given: dict[str, str], reason: str
) -> None:
    wish: Any = {**given, "idempotency_key": f"k-{uuid4().hex}"}
    with pytest.raises(errors.InvalidArgument) as refused:
        await client.create(IMAGE, **wish)
    hint, sandbox_id = HINT_OF_REASON[reason], refused.value.details["sandbox_id"]
    assert (refused.value.details["reason"], refused.value.hint) == (reason, hint)
    assert (await client.timeline(sandbox_id)).advice == hint
    for call in (client.create(IMAGE, **wish), client.connect(sandbox_id)):
        with pytest.raises(errors.InvalidArgument) as again:
            await call
        assert (again.value.details["reason"], again.value.hint) == (reason, hint)
    status, _, said = await rollbox(stack, "exec", sandbox_id, "--", "true")
    assert status != 0
    assert hint in " ".join(said.split())
    page = await client.gateway.page("console", "sandboxes", sandbox_id)
    assert html.escape(hint) in page.content.decode()
    # The gateway answers this one by itself, from what the route feed tells of the end.
    _, claims, _ = (await token_of(stack, shared.id)).split(".")
    held = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    token = jwt.encode({**held, "sub": sandbox_id}, await stack.signing_key(), "EdDSA")
    status, told = await raw(stack, "POST", f"/v1/sandboxes/{sandbox_id}/exec", token, b'{"argv": ["true"]}')
    assert (status, told["code"], told["details"]["reason"]) == (400, "invalid_argument", reason)
    assert (told["hint"], told["details"]["by"]) == (hint, "control plane")


async def test_an_api_key_in_a_call_that_takes_a_token_is_told_where_tokens_come_from(
    stack: Product, shared: Sandbox
) -> None:
    status, told = await raw(stack, "POST", f"/v1/sandboxes/{shared.id}/exec", stack.api_key, b'{"argv": ["true"]}')
    assert (status, told["code"], told["hint"]) == (401, "unauthenticated", HINT_OF_REASON["wrong_token"])
