"""The control plane of E2B's bridge: what is asked of the platform, and what refusals are called."""

from __future__ import annotations

import io
import time

import pytest

from rollbox import Client
from tests.support.e2b_speaking import Speaker, bridging
from tests.support.gateway_fake import API_KEY, FakeGateway, Fault


async def test_a_create_asks_for_the_same_in_the_platforms_words(fake: FakeGateway, e2b: Speaker) -> None:
    told = await e2b.create(metadata={"run": "7"}, envVars={"A": "1"}, allow_internet_access=False)
    asked = fake.bodies[0]
    assert asked["image"] == "python:1"
    assert asked["labels"] == {"run": "7", "e2b/template": "base"}
    assert (asked["env"], asked["ttl_ms"], asked["egress"]) == ({"A": "1"}, 60_000, "offline")
    assert "lease" not in asked
    assert told["templateID"] == "base"
    assert told["domain"] == f"localhost:{e2b.url.rpartition(':')[2]}"


async def test_a_create_with_a_key_of_its_own_is_made_once(fake: FakeGateway, e2b: Speaker) -> None:
    first, second = [
        (await e2b.control("POST", "/v2/sandboxes", {"templateID": "base"}, **{"Idempotency-Key": "k"})).json
        for _ in range(2)
    ]
    assert first["sandboxID"] == second["sandboxID"]
    assert len(fake.sandboxes) == 1


async def test_a_template_is_a_pool_before_it_is_an_image(fake: FakeGateway, e2b: Speaker) -> None:
    async with Client(fake.url, API_KEY) as client:
        await client.set_pool("mine", "swe:1", 1, memory="256Mi", cpu=0.5)
    await e2b.create(templateID="mine")
    await e2b.create(templateID="debian:12")
    assert [body["image"] for body in fake.bodies] == ["swe:1", "debian:12"]
    assert fake.bodies[0]["memory_bytes"] == {"limit": 2**28}


async def test_a_key_may_be_written_in_hexadecimal_digits(e2b: Speaker) -> None:
    for key in (API_KEY, f"e2b_{API_KEY.encode().hex()}"):
        assert (await e2b.as_other(key=key).control("GET", "/v2/sandboxes")).status == 200


@pytest.mark.parametrize("key", ["", "another", "e2b_00", "e2b_616263", "e2b_6", "\u00e9"])
async def test_a_wrong_key_is_unauthenticated(e2b: Speaker, key: str) -> None:
    answer = await e2b.as_other(key=key).control("GET", "/v2/sandboxes")
    assert (answer.status, answer.json["code"]) == (401, 401)


async def test_keys_of_clients_stand_for_those_of_owners(fake: FakeGateway) -> None:
    async with bridging(fake, keys={"e2b_mine": "rbx_test"}) as speaker:
        assert (await speaker.as_other(key="e2b_mine").control("GET", "/sandboxes")).json == []
        assert (await speaker.control("GET", "/sandboxes")).status == 401


async def test_lists_are_whole_in_the_first_version_and_pages_in_the_second(e2b: Speaker) -> None:
    made = {(await e2b.create(metadata={"run": str(n % 2)}))["sandboxID"] for n in range(5)}
    whole = (await e2b.control("GET", "/sandboxes")).json
    assert {one["sandboxID"] for one in whole} == made
    first = await e2b.control("GET", "/v2/sandboxes?limit=3&state=running")
    token = first.headers["x-next-token"]
    second = await e2b.control("GET", f"/v2/sandboxes?limit=3&nextToken={token}")
    assert "x-next-token" not in second.headers
    assert [len(first.json), len(second.json)] == [3, 2]
    assert {one["sandboxID"] for one in first.json + second.json} == made
    odd = (await e2b.control("GET", "/v2/sandboxes?metadata=run%3D1")).json
    assert [one["metadata"] for one in odd] == [{"run": "1"}] * 2
    assert (await e2b.control("GET", "/v2/sandboxes?state=paused")).json == []


async def test_an_end_is_told_with_its_cause(fake: FakeGateway, e2b: Speaker) -> None:
    name = (await e2b.create())["sandboxID"]
    assert (await e2b.control("GET", f"/sandboxes/{name}")).json["state"] == "running"
    fake.end(name, "oom_killed")
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/connect"), ("POST", "/timeout")):
        answer = await e2b.control(method, f"/sandboxes/{name}{path}", {"timeout": 5} if method == "POST" else None)
        assert (answer.status, answer.json["error_code"]) == (404, "oom_killed")
        assert "does not exist any more" in answer.json["message"]
        assert "fault: workload, mask_sample: false" in answer.json["message"]


async def test_a_kill_is_told_once(fake: FakeGateway, e2b: Speaker) -> None:
    name = (await e2b.create())["sandboxID"]
    statuses = [(await e2b.control("DELETE", f"/sandboxes/{name}")).status for _ in range(2)]
    assert statuses == [204, 404]
    assert fake.sandboxes[name]["state"] == "ended"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/sandboxes/sb-1/pause"),
        ("POST", "/v2/sandboxes/sb-1/fork"),
        ("GET", "/sandboxes/sb-1/logs"),
        ("GET", "/sandboxes/metrics"),
        ("PATCH", "/v2/templates/mine"),
        ("GET", "/volumes"),
    ],
)
async def test_what_there_is_not_says_so_and_what_to_do(e2b: Speaker, method: str, path: str) -> None:
    answer = await e2b.control(method, path, {})
    assert (answer.status, answer.json["error_code"]) == (501, "unsupported")
    assert "is not supported by rollbox's bridge. " in answer.json["message"]


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"{", 400), (b"[]", 400), (b'{"templateID": "base", "later": 1}', 400), (b" " * (2**20 + 1), 413)],
)
async def test_a_body_that_is_none_is_refused(e2b: Speaker, body: bytes, status: int) -> None:
    url, headers = e2b.url + "/v2/sandboxes", {"X-API-Key": e2b.key}
    async with e2b.http.post(url, data=io.BytesIO(body), headers=headers) as answer:
        assert answer.status == status
        assert (await answer.json())["code"] == status


@pytest.mark.parametrize(("code", "status"), [("quota_exceeded", 429), ("unsupported", 501)])
async def test_a_failed_create_says_whether_to_try_again(
    fake: FakeGateway, e2b: Speaker, code: str, status: int
) -> None:
    fake.fail("create", Fault(code))
    answer = await e2b.control("POST", "/v2/sandboxes", {"templateID": "base"})
    assert (answer.status, answer.json["error_code"]) == (status, code)
    assert answer.headers["Should-Retry"] == ("true" if status == 429 else "false")


async def test_a_snapshot_of_files_is_an_image_and_a_template(fake: FakeGateway, e2b: Speaker) -> None:
    name = (await e2b.create())["sandboxID"]
    with_memory = await e2b.control("POST", f"/sandboxes/{name}/snapshots", {})
    assert (with_memory.status, "mode='filesystem'" in with_memory.json["message"]) == (501, True)
    taken = (await e2b.control("POST", f"/sandboxes/{name}/snapshots", {"memory": False})).json
    named = (await e2b.control("POST", f"/sandboxes/{name}/snapshots", {"memory": False, "name": "mine:1"})).json
    assert named["names"] == ["mine:1"]
    await e2b.create(templateID=taken["snapshotID"])
    assert fake.bodies[-1]["image"] == taken["snapshotID"]
    assert (await e2b.control("GET", "/snapshots")).status == 200
    fake.images.kept.append("team/mine:1")
    assert [(await e2b.control("DELETE", "/templates/team%2Fmine%3A1")).status for _ in range(2)] == [204, 404]
    assert fake.images.removed == ["team/mine:1"] * 2


@pytest.mark.parametrize(("state", "status", "code"), [("ending", 204, None), ("running", 409, "conflict")])
async def test_a_snapshot_is_removed_once_deleted_sandboxes_of_it_have_ended(
    fake: FakeGateway, e2b: Speaker, state: str, status: int, code: str | None
) -> None:
    name = (await e2b.create(templateID="team/mine:1"))["sandboxID"]
    if state == "ending":
        assert (await e2b.control("DELETE", f"/sandboxes/{name}")).status == 204
    fake.sandboxes[name].update(state=state, image_digest="sha256:1")
    fake.images.kept.append("team/mine:1")
    fake.fail("images", Fault("conflict", details={"digest": "sha256:1"}))
    answer = await e2b.control("DELETE", "/templates/team%2Fmine%3A1")
    assert (answer.status, answer.json["error_code"] if answer.body else None) == (status, code)
    assert fake.images.removed == (["team/mine:1"] if state == "ending" else [])
    # Nothing but the sandbox that has ended was asked to end.
    assert fake.sandboxes[name]["state"] == ("ended" if state == "ending" else "running")


async def test_ports_that_a_client_wants_for_itself_stay_so(fake: FakeGateway, e2b: Speaker) -> None:
    mine = await e2b.create(network={"allowPublicTraffic": False}, metadata={"k": "v"})
    assert fake.bodies[-1]["labels"]["e2b/ports"] == "private"
    assert (await e2b.control("GET", f"/sandboxes/{mine['sandboxID']}")).json["metadata"] == {"k": "v"}
    async with bridging(fake) as again:
        await again.control("POST", f"/v2/sandboxes/{mine['sandboxID']}/connect", {})
        url = f"{again.url}/"
        headers = {"E2b-Sandbox-Id": mine["sandboxID"], "E2b-Sandbox-Port": "8000"}
        async with again.http.get(url, headers=headers) as answer:
            assert answer.status == 401


async def test_a_missing_image_does_not_exist(e2b: Speaker) -> None:
    answer = await e2b.control("POST", "/v2/sandboxes", {"templateID": "missing:1"})
    assert answer.status == 404
    assert "does not exist" in answer.json["message"]


async def test_a_shorter_time_is_the_bridges_own(fake: FakeGateway, e2b: Speaker) -> None:
    name = (await e2b.create(timeout=3600))["sandboxID"]
    fake.sandboxes[name]["expires_at_ms"] = 1000 * round(time.time() + 3600)
    assert (await e2b.control("POST", f"/sandboxes/{name}/timeout", {"timeout": 0})).status == 204
    while (await e2b.control("GET", f"/sandboxes/{name}")).status != 404:
        pass
    assert fake.sandboxes[name]["end"]["cause"] == "deleted"


@pytest.mark.parametrize(("path", "body"), [("connect", {"timeout": 0}), ("refreshes", {"duration": 0})])
async def test_a_time_that_may_only_extend_shortens_no_life(
    fake: FakeGateway, e2b: Speaker, path: str, body: dict[str, int]
) -> None:
    name = (await e2b.create(timeout=3600))["sandboxID"]
    fake.sandboxes[name]["expires_at_ms"] = 1000 * round(time.time() + 3600)
    assert (await e2b.control("POST", f"/sandboxes/{name}/{path}", body)).status in {200, 204}
    for _ in range(2):
        assert (await e2b.control("GET", f"/sandboxes/{name}")).status == 200


async def test_a_connect_leaves_a_later_end_of_the_bridges_own(fake: FakeGateway, e2b: Speaker) -> None:
    name = (await e2b.create(timeout=3600))["sandboxID"]
    fake.sandboxes[name]["expires_at_ms"] = 1000 * round(time.time() + 3600)
    assert (await e2b.control("POST", f"/sandboxes/{name}/timeout", {"timeout": 600})).status == 204
    assert (await e2b.control("POST", f"/sandboxes/{name}/connect", {"timeout": 0})).status == 200
    assert (await e2b.control("GET", f"/sandboxes/{name}")).status == 200
