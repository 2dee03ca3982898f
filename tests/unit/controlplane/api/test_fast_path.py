"""What is answered without the framework is answered as the framework does it."""

import json
import re
from typing import Any
from unittest.mock import patch

from starlette.types import Receive, Scope, Send

from controlplane.api.fast_path import FastPath
from tests.support.asgi import Answer
from tests.support.world import OTHER_KEY, World, world

IMAGE = {"image": "python:3.12", "labels": {"a": "\u00e4"}}
KEYED = {"Idempotency-Key": "k"}
# What is new in every answer.
UNLIKE = ("x-request-id", "content-length")


async def answers(plane: World) -> list[Answer]:
    """The answers to plain requests, and to some that are not."""
    api, path = plane.api, "/v1/sandboxes"
    made = await api("POST", path, body=IMAGE, headers=KEYED)
    one = f"{path}/{made.json['id']}"
    return [
        made,
        await api("POST", path, body=IMAGE, headers=KEYED),
        await api("POST", path, body={"image": "other"}, headers=KEYED),
        await api("POST", path, body=IMAGE, headers={"Idempotency-Key": "two words"}),
        await api("POST", path, body={"image": "a", "cpus": 2}),
        await api("POST", path, body=[]),
        await api("POST", path, raw=b"{", headers={"content-type": "application/json"}),
        await api("POST", path, body=IMAGE, key="unknown"),
        await api("POST", path, body=IMAGE, query={"x": "y"}),
        await api("POST", path, raw=json.dumps(IMAGE).encode(), headers={"content-type": "text/plain"}),
        await api("GET", one),
        await api("GET", one, key=OTHER_KEY),
        await api("GET", one, key="unknown"),
        await api("GET", f"{path}/sb-unknown"),
        await api("PUT", one),
        await api("DELETE", one, key=OTHER_KEY),
        await api("DELETE", one),
        await api("DELETE", one),
        await api("GET", one),
    ]


def alike(answer: Answer, made_id: str) -> tuple[int, dict[str, str], Any]:
    """An answer without what is another one in every world."""
    headers = {name: value for name, value in answer.headers.items() if name not in UNLIKE}
    body = json.loads(re.sub(rb"\b1800\d{9}\b", b"0", answer.body.replace(made_id.encode(), b"sb-made")))
    for new in ("request_id", "token"):
        body.pop(new, None)
    return answer.status, headers, body


async def _framework(self: FastPath, scope: Scope, receive: Receive, send: Send) -> None:
    await self._app(scope, receive, send)


async def test_plain_requests_are_answered_as_by_the_framework() -> None:
    async with world() as plane:
        plain = await answers(plane)
    with patch.object(FastPath, "__call__", _framework):
        async with world() as plane:
            framework = await answers(plane)
    for one, other in zip(plain, framework, strict=True):
        assert alike(one, plain[0].json["id"]) == alike(other, framework[0].json["id"])


async def test_a_plain_request_does_not_reach_the_framework() -> None:
    async with world() as plane:
        with patch("fastapi.routing.APIRoute.handle", side_effect=AssertionError):
            made = await plane.api("POST", "/v1/sandboxes", body=IMAGE)
            assert (made.status, (await plane.api("DELETE", f"/v1/sandboxes/{made.json['id']}")).status) == (201, 200)
