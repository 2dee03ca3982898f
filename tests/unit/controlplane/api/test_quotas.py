"""The API of quotas and preflight: who may, what it says, and what it refuses."""

import asyncio
from typing import Any

import pytest

from controlplane.egress import EgressOptions
from controlplane.lifecycle import Options
from controlplane.lifecycle.admission.quotas import EGRESS_LIMITS
from tests.support.fake_cluster import FakeCluster, room_for
from tests.support.world import OTHER_KEY, World, world

IMAGE = {"image": "python:3.12"}
NOTHING = {"sandboxes": 0, "cpu_millicores": 0, "memory_bytes": 0, "gpu": 0, "starting": 0}


async def put(plane: World, owner: str, **limits: Any) -> dict[str, Any]:
    answer = await plane.api("PUT", f"/v1/quotas/{owner}", body=limits)
    assert answer.status == 200, answer
    body: dict[str, Any] = answer.json
    return body


async def preflight(plane: World, count: int, **spec: Any) -> dict[str, Any]:
    answer = await plane.api("POST", "/v1/preflight", body={"sandbox": {**IMAGE, **spec}, "count": count})
    assert answer.status == 200, answer
    body: dict[str, Any] = answer.json
    return body


async def test_a_quota_is_declared_listed_and_taken_back(plane: World) -> None:
    told = await put(plane, "bob", sandboxes=4, memory_bytes=1 << 33)
    limits = {"sandboxes": 4, "cpu_millicores": None, "memory_bytes": 1 << 33, "gpu": None, "starting": None}
    limits |= dict.fromkeys(("commit_bytes", *EGRESS_LIMITS))
    assert told == {"owner": "bob", "declared_for": "bob", "limits": limits, "used": NOTHING, "waiting": 0}
    assert (await plane.api("GET", "/v1/quotas")).json == {"quotas": [told]}
    places: dict[str, object] = {"max_sandboxes": None, "sandboxes_in_all": 0, "queue": []}
    assert (await plane.api("GET", "/v1/quotas/bob")).json == {**told, **places}
    gone = (await plane.api("DELETE", "/v1/quotas/bob")).json
    assert gone["declared_for"] is None
    assert (await plane.api("DELETE", "/v1/quotas/bob")).status == 200
    assert (await plane.api("GET", "/v1/quotas")).json == {"quotas": []}


async def test_everybodys_quota_holds_for_who_has_none(plane: World) -> None:
    await put(plane, "*", sandboxes=2)
    told = (await plane.api("GET", "/v1/quota", key=OTHER_KEY)).json
    assert (told["owner"], told["declared_for"], told["limits"]["sandboxes"]) == ("bob", "*", 2)


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/v1/quotas"), ("PUT", "/v1/quotas/bob"), ("DELETE", "/v1/quotas/bob")]
)
async def test_only_operators_change_and_see_what_holds_for_others(plane: World, method: str, path: str) -> None:
    answer = await plane.api(method, path, body={} if method == "PUT" else None, key=OTHER_KEY)
    assert (answer.status, answer.code) == (403, "permission_denied")
    assert "bob is no operator here (ROLLBOX_CONTROLPLANE_OPERATORS names alice)" in answer.json["detail"]
    assert ("operator's key" in answer.json["detail"], answer.json["hint"]) == (True, "")
    assert (await plane.api("GET", "/v1/quota", key=OTHER_KEY)).status == 200


async def test_an_owner_reads_its_own_quota_by_its_name_and_no_others(plane: World) -> None:
    told = await put(plane, "bob", sandboxes=4)
    own = await plane.api("GET", "/v1/quotas/bob", key=OTHER_KEY)
    assert (own.status, own.json["limits"], own.json["owner"]) == (200, told["limits"], "bob")
    for name in ("alice", "*", "bob2"):
        answer = await plane.api("GET", f"/v1/quotas/{name}", key=OTHER_KEY)
        assert (answer.status, answer.code) == (403, "permission_denied")
    assert (await plane.api("GET", "/v1/quotas/bob", key="no-such-key")).status == 401


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ({"sandboxes": 0}, "sandboxes"),
        ({"sandboxes": "4"}, "sandboxes"),
        ({"cores": 4}, "cores is not a known field"),
        ({"owner": "alice"}, "owner is not a known field"),
        ([], "the body"),
    ],
)
async def test_a_bad_quota_is_refused_before_anything_changes(plane: World, body: Any, complaint: str) -> None:
    answer = await plane.api("PUT", "/v1/quotas/bob", body=body)
    assert (answer.status, answer.code) == (400, "invalid_argument")
    assert complaint in answer.json["detail"]
    assert (await plane.api("GET", "/v1/quotas")).json == {"quotas": []}


async def test_limits_of_the_network_are_refused_where_nothing_enforces_them(plane: World) -> None:
    for method in ("PUT", "PATCH"):
        answer = await plane.api(method, "/v1/quotas/bob", body={"egress_daily_bytes": 5})
        assert (answer.code, answer.json["details"]["field"]) == ("unsupported", "egress_daily_bytes")
        assert (await plane.api(method, "/v1/quotas/bob", body={"egress_daily_bytes": None})).status == 200
    async with world(options=Options(egress=EgressOptions(3128))) as installed:
        told = await put(installed, "bob", egress_connections_per_second=7, egress_bytes_per_second=1024)
        assert [told["limits"][name] for name in EGRESS_LIMITS] == [None, 7, 1024, None]
        answer = await installed.api("PATCH", "/v1/quotas/bob", body={"egress_bytes_per_second": 1023})
        assert answer.code == "invalid_argument"


@pytest.mark.parametrize("owner", ["a:b", "a,b", "x" * 129])
async def test_a_name_that_no_owner_can_have_is_refused(plane: World, owner: str) -> None:
    answer = await plane.api("PUT", f"/v1/quotas/{owner}", body={})
    assert answer.code == "invalid_argument"


async def test_an_owner_sees_where_his_creates_stand(plane: World) -> None:
    await put(plane, "alice", sandboxes=1)
    first = (await plane.api("POST", "/v1/sandboxes", body=IMAGE)).json
    keyed = {"headers": {"Idempotency-Key": "k"}}
    labelled = {**IMAGE, "labels": {"sample": "7"}}
    waiting = [
        asyncio.create_task(plane.api("POST", "/v1/sandboxes", body=labelled, **keyed)),  # type: ignore[arg-type]
        asyncio.create_task(plane.api("POST", "/v1/sandboxes", body=IMAGE)),
    ]
    await asyncio.sleep(1)
    told = (await plane.api("GET", "/v1/quota")).json
    assert told["used"] == {**NOTHING, "sandboxes": 1, "cpu_millicores": 100, "memory_bytes": 256 << 20}
    assert (told["waiting"], told["sandboxes_in_all"], told["max_sandboxes"]) == (2, 1, None)
    one, two = told["queue"]
    assert (one["position"], one["idempotency_key"], one["labels"]) == (1, "k", {"sample": "7"})
    assert (one["waits_for"], one["estimate_ms"]) == ("sandboxes", None)
    assert one["until_ms"] - one["since_ms"] == 118_000
    assert (two["position"], two["idempotency_key"]) == (2, None)
    await plane.api("DELETE", f"/v1/sandboxes/{first['id']}")
    await asyncio.sleep(1)
    (left,) = (await plane.api("GET", "/v1/quota")).json["queue"]
    assert left["position"] == 1
    assert left["estimate_ms"] is not None
    await put(plane, "alice")
    assert [(await one).status for one in waiting] == [201, 201]


async def test_who_hangs_up_in_the_line_gets_nothing_and_leaves_nothing(plane: World) -> None:
    await put(plane, "alice", sandboxes=1)
    first = (await plane.api("POST", "/v1/sandboxes", body=IMAGE)).json
    for headers in ({}, {"Idempotency-Key": "k"}):
        hang_up = asyncio.Event()
        call = asyncio.create_task(plane.api("POST", "/v1/sandboxes", body=IMAGE, headers=headers, hang_up=hang_up))
        await asyncio.sleep(1)
        hang_up.set()
        await call
    await plane.api("DELETE", f"/v1/sandboxes/{first['id']}")
    await asyncio.sleep(5)
    told = (await plane.api("GET", "/v1/quota")).json
    assert (told["used"], told["waiting"]) == (NOTHING, 0)


async def test_a_refusal_names_limit_use_owner_and_knob(plane: World) -> None:
    await put(plane, "alice", sandboxes=1, cpu_millicores=500)
    await plane.api("POST", "/v1/sandboxes", body=IMAGE)
    answer = await plane.api("POST", "/v1/sandboxes", body={**IMAGE, "start_timeout_ms": 1000})
    assert (answer.status, answer.code) == (429, "quota_exceeded")
    facts = {"limit": "1", "used": "1", "owner": "alice", "knob": "rollbox quota set alice --sandboxes N"}
    assert facts.items() <= answer.json["details"].items()
    greedy = await plane.api("POST", "/v1/sandboxes", body={**IMAGE, "cpu_millicores": {"request": 600, "limit": 600}})
    assert (greedy.code, greedy.json["details"]["for_good"]) == ("quota_exceeded", "true")


async def test_a_preflight_tells_what_a_run_may_have() -> None:
    async with world(FakeCluster(room=room_for(700)), options=Options(starts_in_flight=16)) as plane:
        assert (await preflight(plane, 16))["estimate_ms"] is None
        await plane.api("POST", "/v1/sandboxes", body=IMAGE)
        await put(plane, "alice", sandboxes=513)
        told = await preflight(plane, 960)
        assert (told["fits"], told["may_have"], told["may_have_alone"], told["image"]) == (False, 512, 513, "here")
        assert [one["code"] for one in told["blockers"]] == ["quota_exceeded", "capacity_unavailable"]
        assert told["estimate_ms"] == 512 // 16 * 120
        quota = next(one for one in told["needs"] if one["resource"] == "sandboxes")
        assert quota == {
            "resource": "sandboxes",
            "needed": 960,
            "used": 1,
            "limit": 513,
            "may_run": 512,
            "may_run_alone": 513,
        }
        assert (await preflight(plane, 512))["fits"]


async def test_what_its_node_has_not_stopped_keeps_its_room_and_uses_no_quota() -> None:
    async with world(FakeCluster(room=room_for(1), stop_s=300)) as plane:
        made = (await plane.api("POST", "/v1/sandboxes", body=IMAGE)).json
        await plane.api("DELETE", f"/v1/sandboxes/{made['id']}")
        assert (await plane.api("GET", "/v1/quota")).json["used"] == NOTHING
        told = await preflight(plane, 1)
        assert (told["may_have"], told["may_have_alone"]) == (0, 1)
        await asyncio.sleep(301)
        assert (await preflight(plane, 1))["fits"]


async def test_a_preflight_says_what_can_never_start() -> None:
    async with world(FakeCluster(missing_images={"python:3.12"})) as plane:
        cpu = {"request": 100, "limit": 65_000}
        told = await preflight(plane, 4, cpu_millicores=cpu)
        assert (told["fits"], told["may_have"], told["image"]) == (False, 0, "unknown")
        assert [(one["code"], one["for_good"]) for one in told["blockers"]] == [
            ("unsupported", True),
            ("image_not_found", True),
        ]
        assert all(one["hint"] for one in told["blockers"] if one["code"] != "unsupported")


@pytest.mark.parametrize(
    "body", [{}, {"count": 1}, {"sandbox": IMAGE}, {"sandbox": IMAGE, "count": 0}, {"sandbox": {}, "count": 1}]
)
async def test_a_bad_preflight_is_refused(plane: World, body: Any) -> None:
    assert (await plane.api("POST", "/v1/preflight", body=body)).code == "invalid_argument"


async def test_a_change_leaves_the_other_limits_as_they_are(plane: World) -> None:
    await put(plane, "bob", sandboxes=4, gpu=2)
    told = (await plane.api("PATCH", "/v1/quotas/bob", body={"sandboxes": 8})).json
    assert (told["limits"]["sandboxes"], told["limits"]["gpu"]) == (8, 2)
    told = (await plane.api("PATCH", "/v1/quotas/bob", body={"gpu": None})).json
    assert (told["limits"]["sandboxes"], told["limits"]["gpu"]) == (8, None)
    assert (await plane.api("PATCH", "/v1/quotas/bob", body={})).code == "invalid_argument"
    assert (await plane.api("PATCH", "/v1/quotas/bob", body={"gpu": 1}, key=OTHER_KEY)).code == "permission_denied"
