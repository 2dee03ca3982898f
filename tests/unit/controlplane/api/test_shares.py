"""A sandbox that is shared: a key that opens it alone, for a time."""

import asyncio
import re

import jwt

from controlplane.access import OPENED, SHARE_PREFIX
from controlplane.lifecycle.tokens import SLACK_MS
from tests.support.api_routes import routes
from tests.support.asgi import Answer
from tests.support.world import OTHER_KEY, World

CREATE = {"image": "python:3.12"}


async def made(plane: World) -> str:
    return str((await plane.api("POST", "/v1/sandboxes", body=CREATE)).json["id"])


async def shared(plane: World, sandbox_id: str, ttl_ms: int = 60_000, key: str | None = None) -> Answer:
    return await plane.api("POST", f"/v1/sandboxes/{sandbox_id}/share", body={"ttl_ms": ttl_ms}, key=key)


async def test_a_shared_key_gives_a_token_that_is_over_with_it(plane: World) -> None:
    sandbox_id, now_ms = await made(plane), plane.deps.clock.now_ms()
    told = (await shared(plane, sandbox_id)).json
    assert (told["sandbox_id"], told["key"][:5]) == (sandbox_id, SHARE_PREFIX)
    assert 60_000 <= told["expires_at_ms"] - now_ms < 62_000
    answer = await plane.api("POST", f"/v1/sandboxes/{sandbox_id}/token", body={}, key=told["key"])
    claims = jwt.decode(answer.json["token"], options={"verify_signature": False})
    assert (claims["sub"], claims["scp"], claims["exp"] * 1000) == (sandbox_id, ["exec"], told["expires_at_ms"])
    own = (await plane.api("POST", f"/v1/sandboxes/{sandbox_id}/token", body={})).json
    assert own["token_expires_at_ms"] >= own["expires_at_ms"] + SLACK_MS


async def test_a_shared_key_opens_its_sandbox_alone_and_ends_or_changes_nothing(plane: World) -> None:
    sandbox_id, other = await made(plane), await made(plane)
    key = (await shared(plane, sandbox_id)).json["key"]
    gone = asyncio.Event()
    asyncio.get_running_loop().call_later(5, gone.set)
    wrong = []
    for mine in (True, False):
        for method, template in sorted(routes()):
            path = re.sub(r"\{\w+\}", "8000", template.replace("{sandbox_id}", sandbox_id if mine else other))
            body: dict[str, str] | None = {} if method in {"POST", "PUT", "PATCH"} else None
            answer = await plane.api(method, path, body=body, key=key, hang_up=gone)
            opened = (method, template) in OPENED and (mine or "sandbox_id" not in template)
            if (answer.status < 300) != opened or (answer.status != 403) != opened:
                wrong.append((method, path, answer.status))
    assert wrong == []
    assert (await plane.api("GET", f"/v1/sandboxes/{sandbox_id}")).json["state"] == "running"
    refused = (await plane.api("DELETE", f"/v1/sandboxes/{sandbox_id}", key=key)).json
    assert "use a key of the sandbox's owner" in refused["hint"]


async def test_a_shared_key_is_over_with_its_time_and_with_the_key_that_made_it(plane: World) -> None:
    sandbox_id = await made(plane)
    path = f"/v1/sandboxes/{sandbox_id}"
    maker = (await plane.api("POST", "/v1/keys", body={"name": "ci", "scopes": ["run"], "expires_in_ms": 5_000})).json
    short = (await shared(plane, sandbox_id, 60_000, maker["key"])).json
    assert short["expires_at_ms"] <= maker["expires_at_ms"] + 1000
    assert (await plane.api("GET", path, key=short["key"])).status == 200
    await plane.api("DELETE", f"/v1/keys/{maker['id']}")
    answer = await plane.api("GET", path, key=short["key"])
    assert (answer.status, answer.json["details"]["reason"]) == (401, "api_key_revoked")
    brief = (await shared(plane, sandbox_id, 1000)).json["key"]
    await asyncio.sleep(3)
    answer = await plane.api("GET", path, key=brief)
    assert (answer.status, answer.json["details"]["reason"]) == (401, "api_key_expired")


async def test_what_a_text_has_shared_ends_with_it_when_its_key_is_rotated(plane: World) -> None:
    sandbox_id = await made(plane)
    path = f"/v1/sandboxes/{sandbox_id}"
    maker = (await plane.api("POST", "/v1/keys", body={"name": "ci", "scopes": ["run"]})).json
    before = (await shared(plane, sandbox_id, 600_000, maker["key"])).json["key"]
    await asyncio.sleep(2)
    fresh = (await plane.api("POST", f"/v1/keys/{maker['id']}/rotate", body={"grace_ms": 10_000})).json["key"]
    assert (await plane.api("GET", path, key=before)).status == 200
    await asyncio.sleep(2)
    after = (await shared(plane, sandbox_id, 600_000, fresh)).json["key"]
    await asyncio.sleep(10)
    answer = await plane.api("GET", path, key=before)
    assert (answer.status, answer.json["details"]["reason"]) == (401, "api_key_expired")
    assert (await plane.api("GET", path, key=after)).status == 200


async def test_what_is_no_shared_key_opens_nothing(plane: World) -> None:
    sandbox_id = await made(plane)
    token = (await plane.api("POST", f"/v1/sandboxes/{sandbox_id}/token", body={})).json["token"]
    good = (await shared(plane, sandbox_id)).json["key"]
    claims = {"iss": "rollbox", "sub": sandbox_id, "own": "alice", "scp": ["share"], "by": "settings", "exp": 2**33}
    foreign = jwt.encode(claims, "k" * 32)
    for text in (token, SHARE_PREFIX + token, SHARE_PREFIX, good[:-4], SHARE_PREFIX + foreign, good + "a"):
        assert (await plane.api("GET", f"/v1/sandboxes/{sandbox_id}", key=text)).status == 401, text


async def test_a_neighbour_and_a_key_without_the_scope_share_nothing(plane: World) -> None:
    sandbox_id = await made(plane)
    assert (await shared(plane, sandbox_id, key=OTHER_KEY)).status == 404
    reading = (await plane.api("POST", "/v1/keys", body={"name": "reads", "scopes": ["read"]})).json["key"]
    assert (await shared(plane, sandbox_id, key=reading)).status == 403
    for ttl_ms in (999, 7 * 24 * 3_600_000 + 1):
        assert (await shared(plane, sandbox_id, ttl_ms)).status == 400
    await plane.api("DELETE", f"/v1/sandboxes/{sandbox_id}")
    assert (await shared(plane, sandbox_id)).status == 410
