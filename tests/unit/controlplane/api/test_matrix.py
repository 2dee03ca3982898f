"""Every route with every kind of key: a scope opens its routes alone, and an owner's key nothing of another's."""

import asyncio
import re
from dataclasses import dataclass

import pytest

from controlplane.access import ROUTES, SCOPES, Caller, Scope
from tests.support.api_routes import routes
from tests.support.asgi import Answer
from tests.support.world import OTHER_KEY, World

CREATE = {"image": "python:3.12", "labels": {"secret": "of-alice"}}
# What stands in the places of paths where an owner has nothing of the kind.
NAMES = {"port": "8000", "name": "of-alice"}


@dataclass(frozen=True)
class Things:
    """What one owner has."""

    sandbox_id: str
    key_id: str

    def path(self, template: str) -> str:
        """A route about these."""
        own = {**NAMES, "sandbox_id": self.sandbox_id, "key_id": self.key_id}
        return re.sub(r"\{(\w+)\}", lambda found: own[found[1]], template)


@pytest.fixture
async def things(plane: World) -> Things:
    """A sandbox, a group and a key of alice, an operator."""
    sandbox = await plane.api("POST", "/v1/sandboxes", body=CREATE)
    assert (await plane.api("PUT", "/v1/groups/of-alice", body={"count": 1, "sandbox": CREATE})).status == 200
    key = await plane.api("POST", "/v1/keys", body={"name": "of-alice", "scopes": ["run"]})
    return Things(sandbox.json["id"], key.json["id"])


async def call(plane: World, method: str, path: str, key: str) -> Answer:
    """A call without what it needs, that ends soon."""
    gone = asyncio.Event()
    asyncio.get_running_loop().call_later(5, gone.set)
    body: dict[str, str] | None = {} if method in {"POST", "PUT", "PATCH"} else None
    return await plane.api(method, path, body=body, key=key, hang_up=gone)


async def key_with(plane: World, scope: Scope) -> str:
    made = await plane.api("POST", "/v1/keys", body={"name": scope, "scopes": [scope], "owner": "carol"})
    return str(made.json["key"])


@pytest.mark.parametrize("scope", SCOPES)
async def test_a_scope_opens_its_routes_and_no_others(plane: World, things: Things, scope: Scope) -> None:
    key = await key_with(plane, scope)
    held = Caller("carol", "", frozenset({scope}))
    wrong = []
    for method, template in sorted(routes()):
        answer = await call(plane, method, things.path(template), key)
        reason = answer.json["details"].get("reason") if answer.status == 403 else None
        if (reason == "scope") == held.may(ROUTES[method, template]):
            wrong.append((method, template, answer.status))
    assert not wrong


async def test_a_neighbours_key_opens_changes_and_shows_nothing(plane: World, things: Things) -> None:
    before = (await plane.api("GET", f"/v1/sandboxes/{things.sandbox_id}")).json
    told, done = [], []
    for method, template in sorted(routes()):
        answer = await call(plane, method, things.path(template), OTHER_KEY)
        # What it sent itself, in a path or as a name, is no secret.
        said = answer.body.replace(things.path(template).encode(), b"")
        shown = [one for one in (b"secret", b"rbx_alice", b"rbxk_") if one in said]
        if answer.status < 300 and (things.sandbox_id.encode() in said or things.key_id.encode() in said):
            done.append((method, template, answer.status))
        if shown:
            told.append((method, template, shown))
    assert (told, done) == ([], [])
    after = await plane.api("GET", f"/v1/sandboxes/{things.sandbox_id}")
    assert after.json == before
    assert [key["state"] for key in (await plane.api("GET", "/v1/keys")).json["keys"]] == ["valid"]
    assert len((await plane.api("GET", "/v1/groups/of-alice")).json["members"]) == 1


async def test_no_key_and_a_wrong_one_open_no_route(plane: World, things: Things) -> None:
    for method, template in sorted(routes()):
        for key in ("rbx_wrong", "rbxk_0123456789ab_" + "a" * 49):
            answer = await call(plane, method, things.path(template), key)
            assert answer.status == 401, (method, template, answer)
