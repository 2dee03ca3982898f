"""The API of keys: who makes which, what they open, and when they stop to."""

import asyncio
from typing import Any

import pytest

from controlplane.access import new_key
from controlplane.cluster.engine.documents import FileDocuments
from controlplane.errors import Problem
from controlplane.lifecycle.keys.calls import KEPT_MS, MOST_KEYS
from controlplane.lifecycle.keys.stored import FRESH_S, LISTED_S, NOTE
from controlplane.store import MemoryStore
from tests.support.asgi import Answer
from tests.support.virtual_time import VirtualClock
from tests.support.world import OTHER_KEY, World, world

CREATE = {"image": "python:3.12"}


async def made(plane: World, name: str = "ci", *scopes: str, by: str | None = None, **wish: Any) -> dict[str, Any]:
    body = {"name": name, "scopes": list(scopes or ("run",)), **wish}
    answer = await plane.api("POST", "/v1/keys", body=body, key=by)
    assert answer.status == 201, answer
    told: dict[str, Any] = answer.json
    return told


async def read(plane: World, key: str) -> Answer:
    return await plane.api("GET", "/v1/info", key=key)


def refused(plane: World) -> dict[str, float]:
    found = plane.deps.metrics.registry.collect()
    samples = [sample for family in found if family.name == "rollbox_calls_refused" for sample in family.samples]
    return {one.labels["reason"]: one.value for one in samples if one.name.endswith("_total") and one.value}


async def test_a_key_is_made_shown_once_used_and_revoked(plane: World) -> None:
    told = await made(plane, "ci", "run", "images", expires_in_ms=60_000)
    key = told.pop("key")
    assert told["owner"] == "alice"
    assert (told["scopes"], told["made_by"], told["state"]) == (["run", "images"], "settings", "valid")
    assert told["expires_at_ms"] == told["made_at_ms"] + 60_000
    assert (await plane.api("GET", "/v1/keys")).json == {"keys": [told]}
    sandbox = await plane.api("POST", "/v1/sandboxes", body=CREATE, key=key)
    assert sandbox.status == 201
    assert (await plane.api("GET", f"/v1/sandboxes/{sandbox.json['id']}", key=key)).status == 200
    gone = await plane.api("DELETE", f"/v1/keys/{told['id']}")
    assert (gone.status, gone.json["state"]) == (200, "revoked")
    after = await read(plane, key)
    assert (after.status, after.code, after.json["details"]["reason"]) == (401, "unauthenticated", "api_key_revoked")
    assert (await plane.api("POST", "/v1/sandboxes", body=CREATE, key=key)).status == 401
    assert (await plane.api("DELETE", f"/v1/keys/{told['id']}")).json == gone.json
    assert refused(plane) == {"revoked": 2}


async def test_nothing_on_record_is_the_key_itself(plane: World) -> None:
    key = (await made(plane))["key"]
    (document,) = await plane.deps.documents.list("keys")
    assert key not in str(document)
    assert key.split("_")[2] not in str(document)
    assert key not in str((await plane.api("GET", "/v1/keys")).json)


async def test_a_key_expires(plane: World) -> None:
    key = (await made(plane, expires_in_ms=1_000))["key"]
    assert (await read(plane, key)).status == 200
    await asyncio.sleep(1)
    late = await read(plane, key)
    assert (late.status, late.json["details"]["reason"]) == (401, "api_key_expired")
    assert refused(plane) == {"expired": 1}


async def test_a_rotation_has_a_time_in_which_both_texts_open(plane: World) -> None:
    told = await made(plane, expires_in_ms=3_600_000)
    await asyncio.sleep(600)
    fresh = (await plane.api("POST", f"/v1/keys/{told['id']}/rotate", body={"grace_ms": 60_000})).json
    assert (fresh["id"], fresh["name"], fresh["scopes"]) == (told["id"], told["name"], told["scopes"])
    # It lives as long again.
    assert fresh["expires_at_ms"] == told["expires_at_ms"] + 600_000
    assert [(await read(plane, one["key"])).status for one in (told, fresh)] == [200, 200]
    await asyncio.sleep(60)
    assert [(await read(plane, one["key"])).status for one in (told, fresh)] == [401, 200]
    at_once = (await plane.api("POST", f"/v1/keys/{told['id']}/rotate", body={"grace_ms": 0})).json
    assert [(await read(plane, one["key"])).status for one in (told, fresh, at_once)] == [401, 401, 200]


async def test_calls_go_on_while_their_key_is_rotated(plane: World) -> None:
    told = await made(plane)
    key, seen, over = told["key"], list[int](), asyncio.Event()

    async def call() -> None:
        while not over.is_set():
            seen.append((await read(plane, key)).status)
            await asyncio.sleep(0.01)

    calling = [asyncio.create_task(call()) for _ in range(4)]
    for _ in range(5):
        key = (await plane.api("POST", f"/v1/keys/{told['id']}/rotate", body={})).json["key"]
        await asyncio.sleep(2)
    over.set()
    await asyncio.gather(*calling)
    assert (set(seen), len(seen) > 1000) == ({200}, True)


async def test_another_replica_refuses_a_revoked_key_within_a_second() -> None:
    clock, documents = VirtualClock(), FileDocuments()
    store = MemoryStore(clock)
    async with (
        world(clock=clock, store=store, documents=documents) as one,
        world(clock=clock, store=store, documents=documents) as other,
    ):
        told = await made(one)
        assert (await read(other, told["key"])).status == 200
        await one.api("DELETE", f"/v1/keys/{told['id']}")
        assert (await read(one, told["key"])).status == 401
        await asyncio.sleep(FRESH_S)
        assert (await read(other, told["key"])).status == 401
        again = await made(one)
        await asyncio.sleep(FRESH_S)
        assert (await read(other, again["key"])).status == 200


async def test_a_store_that_has_lost_what_it_knew_of_keys_opens_nothing_for_one_that_was_revoked() -> None:
    clock, documents = VirtualClock(), FileDocuments()
    store = MemoryStore(clock)

    async def forgotten() -> None:
        assert await store.write_note(NOTE, "", 1000, before=await store.note(NOTE))

    async with (
        world(clock=clock, store=store, documents=documents) as one,
        world(clock=clock, store=store, documents=documents) as other,
    ):
        told = await made(one)
        for _ in range(2):
            await forgotten()
            await asyncio.sleep(FRESH_S)
            assert (await read(other, told["key"])).status == 200
        await one.api("DELETE", f"/v1/keys/{told['id']}")
        await forgotten()
        await asyncio.sleep(FRESH_S)
        assert (await read(other, told["key"])).status == 401


async def test_a_key_that_was_removed_past_the_api_is_refused_within_half_a_minute(
    plane: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = await made(plane)
    assert (await read(plane, told["key"])).status == 200

    async def away(kind: str) -> Any:
        raise Problem("upstream_timeout", f"no answer about {kind}")

    with monkeypatch.context() as patch:
        patch.setattr(plane.deps.documents, "list", away)
        await asyncio.sleep(LISTED_S + 1)
        assert (await read(plane, told["key"])).status == 200, "the note says that nothing has changed"
    await plane.deps.documents.remove("keys", told["id"])
    await asyncio.sleep(LISTED_S + 1)
    assert (await read(plane, told["key"])).json["details"]["reason"] == "api_key"


async def test_a_store_that_does_not_answer_opens_nothing_for_keys_on_record(
    plane: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = await made(plane)

    async def silent(name: str) -> str:
        raise Problem("upstream_timeout", f"no answer about {name}")

    monkeypatch.setattr(plane.deps.store, "note", silent)
    await asyncio.sleep(FRESH_S)
    assert (await read(plane, told["key"])).code == "upstream_timeout"
    # Those of the settings are known without it.
    assert (await plane.api("GET", "/v1/info")).status == 200
    assert refused(plane) == {}


async def test_a_key_that_reads_opens_no_sandbox(plane: World) -> None:
    key = (await made(plane, "look", "read"))["key"]
    sandbox = (await plane.api("POST", "/v1/sandboxes", body=CREATE)).json["id"]
    assert (await plane.api("GET", f"/v1/sandboxes/{sandbox}", key=key)).status == 200
    for method, path, body in (
        ("POST", f"/v1/sandboxes/{sandbox}/token", None),
        ("POST", "/v1/sandboxes", CREATE),
        ("GET", "/v1/groups/some", None),
        ("DELETE", f"/v1/sandboxes/{sandbox}", None),
    ):
        answer = await plane.api(method, path, body=body, key=key)
        assert (answer.status, answer.code) == (403, "permission_denied")
        assert answer.json["details"]["scope"] == "run"
        assert "has the scopes read, and this needs run" in answer.json["detail"]
        assert "rollbox key create" in answer.json["hint"]
    assert refused(plane) == {"scope": 4}


async def test_a_key_of_an_operators_owner_is_no_operators_without_the_scope(plane: World) -> None:
    running, operating = (await made(plane, "a", "run"))["key"], (await made(plane, "b", "operator"))["key"]
    assert (await plane.api("GET", "/v1/quotas", key=running)).json["details"]["scope"] == "operator"
    assert (await plane.api("GET", "/v1/quotas", key=operating)).status == 200
    assert (await plane.api("GET", "/v1/quotas/bob", key=running)).status == 403
    assert (await plane.api("GET", "/v1/quotas/bob", key=operating)).status == 200
    assert (await plane.api("POST", "/v1/sandboxes", body=CREATE, key=operating)).json["details"]["scope"] == "run"


async def test_operators_make_keys_of_others_and_others_do_not(plane: World) -> None:
    told = await made(plane, "theirs", "read", owner="carol")
    assert (told["owner"], (await read(plane, told["key"])).status) == ("carol", 200)
    assert [one["id"] for one in (await plane.api("GET", "/v1/keys", query={"owner": "carol"})).json["keys"]] == [
        told["id"]
    ]
    wish = {"name": "x", "scopes": ["read"], "owner": "alice"}
    assert (await plane.api("POST", "/v1/keys", body=wish, key=OTHER_KEY)).code == "permission_denied"
    assert (await plane.api("GET", "/v1/keys", query={"owner": "carol"}, key=OTHER_KEY)).code == "permission_denied"
    for method, path, body in (("DELETE", "", None), ("POST", "/rotate", {})):
        answer = await plane.api(method, f"/v1/keys/{told['id']}{path}", body=body, key=OTHER_KEY)
        assert (answer.status, answer.code) == (404, "not_found")
    assert refused(plane)["other_owner"] == 2


async def test_a_key_makes_none_that_allows_more_or_lives_longer(plane: World) -> None:
    by = (await made(plane, "lead", "keys", "run", expires_in_ms=60_000))["key"]
    told = await made(plane, "ci", "run", by=by, expires_in_ms=1_000)
    assert told["made_by"].startswith("key-")
    for wish in (
        {"scopes": ["images"], "expires_in_ms": 1_000},
        {"scopes": ["run"]},
        {"scopes": ["run"], "expires_in_ms": 61_000},
        {"scopes": ["operator"], "expires_in_ms": 1_000},
    ):
        answer = await plane.api("POST", "/v1/keys", body={"name": "more", **wish}, key=by)
        assert (answer.status, answer.code) == (403, "permission_denied"), wish
    operators = await made(plane, "root", "operator")
    answer = await plane.api("POST", f"/v1/keys/{operators['id']}/rotate", body={}, key=by)
    assert answer.code == "permission_denied"


async def test_names_are_an_owners_own_while_they_are_in_force(plane: World) -> None:
    told = await made(plane, "ci")
    taken = await plane.api("POST", "/v1/keys", body={"name": "ci", "scopes": ["run"]})
    assert (taken.code, taken.json["details"]["key_id"]) == ("conflict", told["id"])
    await made(plane, "ci", by=OTHER_KEY)
    await plane.api("DELETE", f"/v1/keys/{told['id']}")
    assert (await plane.api("POST", f"/v1/keys/{told['id']}/rotate", body={})).code == "conflict"
    await made(plane, "ci")


async def test_keys_on_record_are_bounded_and_old_ones_go(plane: World) -> None:
    first = await plane.deps.documents.get("keys", (await made(plane, "first"))["id"])
    assert first is not None
    now_ms = plane.deps.clock.now_ms()
    for number in range(1, MOST_KEYS):
        body = {**first.body, "name": f"k{number}", "revoked_at_ms": now_ms - KEPT_MS + 1_000}
        await plane.deps.documents.put("keys", f"key-{number:012}", body)
    full = await plane.api("POST", "/v1/keys", body={"name": "more", "scopes": ["run"]})
    assert (full.code, full.json["details"]["used"]) == ("quota_exceeded", str(MOST_KEYS))
    await asyncio.sleep(1)
    await made(plane, "more")
    assert [one["name"] for one in (await plane.api("GET", "/v1/keys")).json["keys"]] == ["first", "more"]


async def test_the_last_use_is_told_to_the_hour(plane: World) -> None:
    told = await made(plane)

    async def used() -> int | None:
        await asyncio.sleep(1)
        at_ms: int | None = (await plane.api("GET", "/v1/keys")).json["keys"][0]["used_at_ms"]
        return at_ms

    assert await used() is None
    await read(plane, told["key"])
    first = await used()
    assert first is not None
    await read(plane, told["key"])
    assert await used() == first
    await asyncio.sleep(3600)
    await read(plane, told["key"])
    assert (await used() or 0) >= first + 3_600_000


@pytest.mark.parametrize(
    "wish",
    [
        {"name": "", "scopes": ["run"]},
        {"name": "a b", "scopes": ["run"]},
        {"name": "a", "scopes": []},
        {"name": "a", "scopes": ["root"]},
        {"name": "a", "scopes": ["run"], "expires_in_ms": 0},
        {"name": "a", "scopes": ["run"], "owner": "a:b"},
        {"name": "a", "scopes": ["run"], "more": 1},
    ],
)
async def test_what_is_no_key_is_refused_before_one_is_made(plane: World, wish: dict[str, Any]) -> None:
    assert (await plane.api("POST", "/v1/keys", body=wish)).code == "invalid_argument"
    assert await plane.deps.documents.list("keys") == []


async def test_typos_and_strangers_are_unknown_and_learn_nothing(plane: World) -> None:
    told = await made(plane)
    typo = told["key"][:-1] + ("0" if told["key"][-1] != "0" else "1")
    answer = await read(plane, typo)
    assert (answer.status, answer.json["details"]["reason"]) == (401, "api_key")
    assert "cut off or mistyped" in answer.json["detail"]
    await plane.api("DELETE", f"/v1/keys/{told['id']}")
    # Whether there is a key of an id, and how it is, is for its holder alone.
    stranger = new_key(told["id"]).text
    unknown = await read(plane, stranger)
    assert (unknown.json["detail"], unknown.json["details"]["reason"]) == ("the API key is not known here", "api_key")
    assert (await read(plane, "no-key")).json["detail"] == "the API key is not known here"
