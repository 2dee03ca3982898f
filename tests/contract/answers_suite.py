"""What a gateway reads of the control plane's answers: the real one and the fake of the gateway's tests pass these.

The fake answers from a script, so the calls have to come in this order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import aiohttp


@dataclass(frozen=True)
class Asked:
    """A control plane behind a session, as an owner asks it."""

    session: aiohttp.ClientSession
    api_key: str

    async def call(self, method: str, path: str, body: object = None) -> tuple[int, str, Any]:
        """Status, kind and JSON of an answer."""
        headers = {"Authorization": f"Bearer {self.api_key}", "Idempotency-Key": "k"}
        async with self.session.request(method, f"http://api/v1/{path}", json=body, headers=headers) as answer:
            return answer.status, answer.content_type, await answer.json(content_type=None)


def usable(body: Any) -> None:
    """Asserts that a sandbox in an answer has what a gateway binds it by."""
    assert body["id"].startswith("sb-")
    assert len(body["token"].split(".")) == 3, "a token is a JWS"
    assert body["state"] == "running"


class AnswersSuite:
    """Subclasses have the fixture `asked`."""

    async def test_the_answers_have_what_a_gateway_reads(self, asked: Asked) -> None:
        status, kind, made = await asked.call("POST", "sandboxes", {"image": "a"})
        assert (status, kind) == (201, "application/json")
        usable(made)
        status, kind, group = await asked.call("PUT", "groups/g", {"count": 1, "sandbox": {"image": "a"}})
        assert (status, kind) == (200, "application/json")
        (member,) = group["members"]
        assert (group["name"], member["problem"]) == ("g", None)
        usable(member["sandbox"])
        status, kind, ended = await asked.call("DELETE", "groups/g")
        assert (status, kind) == (200, "application/json")
        assert (ended["deleted"], ended["failed"]) == ([member["sandbox"]["id"]], [])
        status, kind, problem = await asked.call("GET", "sandboxes/sb-9")
        assert (status, kind) == (404, "application/problem+json")
        assert (problem["code"], bool(problem["detail"])) == ("sandbox_not_found", True)
        assert problem["details"]["sandbox_id"] == "sb-9"
