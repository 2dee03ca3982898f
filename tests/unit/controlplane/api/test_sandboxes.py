"""The HTTP API: what it answers, and that every bad input is a problem that names it."""

import asyncio
import functools
import json
from collections.abc import Mapping
from typing import Any

import pytest

from controlplane.errors import Problem
from controlplane.lifecycle import Options
from controlplane.lifecycle.record.callers import ABANDONED_MS
from controlplane.model import State
from tests.support.fake_cluster import FakeCluster
from tests.support.world import OTHER_KEY, World, world

IMAGE = {"image": "python:3.12"}
ABANDONED_S = ABANDONED_MS / 1000


async def create(plane: World, **spec: Any) -> dict[str, Any]:
    answer = await plane.api("POST", "/v1/sandboxes", body={**IMAGE, **spec})
    assert answer.status == 201, answer
    body: dict[str, Any] = answer.json
    return body


async def test_a_created_sandbox_carries_everything_that_the_contract_names(plane: World) -> None:
    body = await create(plane, labels={"run": "r1"})
    assert body.keys() == {
        "id",
        "owner",
        "image",
        "state",
        "labels",
        "cpu_millicores",
        "memory_bytes",
        "pids_limit",
        "created_at_ms",
        "idle_timeout_ms",
        "lease",
        "disk_bytes",
        "gpu",
        "node_selector",
        "mounts",
        "ready_at_ms",
        "claimed_at_ms",
        "expires_at_ms",
        "isolation",
        "kernel",
        "end",
        "timings_ms",
        "generation",
        "public_ports",
        "egress",
        "source",
        "cold_reason",
        "parent",
        "image_digest",
        "image_ran",
        "image_stale",
        "image_pulled",
        "image_pulled_why",
        "draining_at_ms",
        "silent_since_ms",
        "token",
        "token_expires_at_ms",
    }
    assert (body["state"], body["owner"], body["isolation"], body["end"]) == ("running", "alice", "runc", None)
    assert body["cpu_millicores"] == {"request": 100, "limit": 2000}
    assert body["memory_bytes"] == {"request": 256 << 20, "limit": 2 << 30}
    assert (body["pids_limit"], body["generation"], body["labels"]) == (512, 1, {"run": "r1"})
    assert body["expires_at_ms"] - body["created_at_ms"] == 3_600_000


async def test_a_repeated_key_answers_200_and_says_so(plane: World) -> None:
    one, two = [
        await plane.api("POST", "/v1/sandboxes", body=IMAGE, headers={"Idempotency-Key": "k"}) for _ in range(2)
    ]
    assert (one.status, two.status) == (201, 200)
    assert "idempotency-replayed" not in one.headers
    assert two.headers["idempotency-replayed"] == "true"
    assert one.json["id"] == two.json["id"]


BAD_BODIES = [
    ("the body is not JSON", b"{", "position 1"),
    ("the body is empty", b"", "the body is missing"),
    ("a list", b"[]", "the body"),
    ("an unknown field", b'{"image": "a", "cpus": 2}', "cpus is not a known field"),
    ("no image", b"{}", "image is missing"),
    ("a number for a name", b'{"image": 3}', "image"),
    ("a nested field", b'{"image": "a", "memory_bytes": {"request": 1, "limit": 2}}', "memory_bytes"),
    ("request over limit", b'{"image":"a","cpu_millicores":{"request":9,"limit":2}}', "request 9 must not be greater"),
    ("an unknown nested field", b'{"image":"a","cpu_millicores":{"request":1,"limit":20,"x":1}}', "cpu_millicores.x"),
    ("broken UTF-8", b'{"image": "\xff"}', "the body"),
]


@pytest.mark.parametrize(("raw", "complaint"), [case[1:] for case in BAD_BODIES], ids=[case[0] for case in BAD_BODIES])
async def test_a_bad_body_is_an_invalid_argument(plane: World, raw: bytes, complaint: str) -> None:
    answer = await plane.api("POST", "/v1/sandboxes", raw=raw)
    assert (answer.status, answer.code) == (400, "invalid_argument")
    assert complaint in answer.json["detail"]


async def test_secrets_in_a_bad_environment_are_not_repeated(plane: World) -> None:
    answer = await plane.api("POST", "/v1/sandboxes", body={**IMAGE, "env": {"TOKEN": 12345}})
    assert answer.code == "invalid_argument"
    assert "env.TOKEN" in answer.json["detail"]
    assert b"12345" not in answer.body


@pytest.mark.parametrize(
    ("method", "path", "query", "complaint"),
    [
        ("DELETE", "/v1/sandboxes", [], "give label=KEY=VALUE or idempotency_key=KEY"),
        ("DELETE", "/v1/sandboxes", [("label", "a=b"), ("idempotency_key", "k")], "not both"),
        ("DELETE", "/v1/sandboxes", [("label", "a")], "label 'a' is not KEY=VALUE"),
        ("DELETE", "/v1/sandboxes", [("label", "a=1"), ("label", "a=2")], "label a cannot be both"),
        ("DELETE", "/v1/sandboxes", [("idempotency_key", "a b")], "idempotency_key must be 1 to 128 visible ASCII"),
        ("GET", "/v1/sandboxes", [("state", "asleep")], "state"),
        ("GET", "/v1/sandboxes", [("all", "perhaps")], "all"),
        ("GET", "/v1/sandboxes", [("label", "=x")], "is not KEY=VALUE"),
        ("GET", "/v1/sandboxes", [("labels", "a=b")], "'labels' is not a known query parameter"),
        ("GET", "/v1/sandboxes", [("all", "true"), ("all", "false")], "all must not be given twice"),
        ("GET", "/v1/sandboxes", [("all", "true"), ("state", "running")], "and not both"),
        ("DELETE", "/v1/sandboxes", [("idempotency_key", "a"), ("idempotency_key", "b")], "must not be given twice"),
        ("DELETE", "/v1/sandboxes", [("label", "a=b"), ("owner", "bob")], "'owner' is not a known query parameter"),
        ("GET", "/v1/sandboxes/sb-1", [("wait", "1")], "'wait' is not a known query parameter"),
        ("DELETE", "/v1/sandboxes/sb-1", [("force", "")], "'force' is not a known query parameter"),
        ("GET", "/v1/info", [("x", "y")], "'x' is not a known query parameter"),
    ],
)
async def test_a_bad_query_is_an_invalid_argument(
    plane: World, method: str, path: str, query: list[tuple[str, str]], complaint: str
) -> None:
    answer = await plane.api(method, path, query=query)
    assert answer.code == "invalid_argument"
    assert complaint in answer.json["detail"]


@pytest.mark.parametrize(
    "raw",
    [
        b"[" * 100_000,
        b'{"image": "a", "ttl_ms": ' + b"9" * 5000 + b"}",
        b'{"image": "a", "ttl_ms": NaN}',
        b'{"image": "a", "ttl_ms": Infinity}',
        b'{"image": "a", "ttl_ms": 1e400}',
        b"\xff",
        b'{"image": "\\ud800"}',
        b'{"image": "a", "labels": {"a": "\\ud800"}}',
        b'{"image": "a", "env": ' + b'{"a":' * 9_000 + b"1" + b"}" * 9_001,
    ],
    ids=range(9),
)
async def test_json_that_is_meant_to_hurt_is_an_invalid_argument(plane: World, raw: bytes) -> None:
    answer = await plane.api("POST", "/v1/sandboxes", raw=raw)
    assert (answer.status, answer.code) == (400, "invalid_argument")
    assert plane.cluster.started == []


@pytest.mark.parametrize(
    ("labels", "named"),
    [
        ({"run": "x" * 10_240}, "'run' must have at most 256 characters"),
        ({"k" * 10_240: "x"}, "must be 1 to 128"),
        ({f"k{n}": "" for n in range(65)}, "65 labels are more than 64"),
    ],
)
async def test_labels_over_a_limit_are_refused_by_it(plane: World, labels: dict[str, str], named: str) -> None:
    answer = await plane.api("POST", "/v1/sandboxes", body={**IMAGE, "labels": labels})
    assert (answer.status, answer.code) == (400, "invalid_argument")
    assert named in answer.json["detail"]
    assert len(answer.body) < 2_000
    assert plane.cluster.started == []


@pytest.mark.parametrize("key", ["", "a b", "x" * 129, "ü"])
async def test_a_bad_idempotency_key_is_refused(plane: World, key: str) -> None:
    answer = await plane.api("POST", "/v1/sandboxes", body=IMAGE, headers={"Idempotency-Key": key})
    assert answer.code == "invalid_argument"


@pytest.mark.parametrize("ttl", [0, 999, 10**12, "1h", None, 1.5])
async def test_a_bad_extension_is_refused(plane: World, ttl: Any) -> None:
    body = await create(plane)
    answer = await plane.api("POST", f"/v1/sandboxes/{body['id']}/extend", body={"ttl_ms": ttl})
    assert answer.code == "invalid_argument"
    assert "ttl_ms" in answer.json["detail"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/v2/sandboxes", 404),
        ("GET", "/v1/sandboxes/", 404),
        ("PUT", "/v1/sandboxes", 405),
        ("POST", "/v1/info", 405),
        ("HEAD", "/v1/sandboxes", 405),
    ],
)
async def test_what_is_not_there_is_a_problem_too(plane: World, method: str, path: str, status: int) -> None:
    answer = await plane.api(method, path)
    assert (answer.status, answer.code) == (status, "invalid_argument")


async def test_a_body_that_is_too_large_is_refused_announced_or_not(plane: World) -> None:
    large = json.dumps({**IMAGE, "cwd": "/" + "x" * (3 << 20)}).encode()
    for headers in ({}, {"content-length": "10"}):
        answer = await plane.api("POST", "/v1/sandboxes", raw=large, headers=headers)
        assert (answer.status, answer.code) == (413, "payload_too_large")


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": ""},
        {"authorization": "Basic abc"},
        {"authorization": "Bearer "},
        {"authorization": "Bearer x"},
    ],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/sandboxes"),
        ("GET", "/v1/sandboxes"),
        ("DELETE", "/v1/sandboxes"),
        ("GET", "/v1/sandboxes/sb-1"),
        ("DELETE", "/v1/sandboxes/sb-1"),
        ("POST", "/v1/sandboxes/sb-1/extend"),
        ("POST", "/v1/sandboxes/sb-1/token"),
        ("GET", "/v1/info"),
    ],
)
async def test_nothing_is_done_without_a_key(plane: World, method: str, path: str, headers: dict[str, str]) -> None:
    answer = await plane.api(method, path, body=IMAGE, headers=headers)
    assert answer.status in (400, 401)
    if method == "GET":
        assert answer.code == "unauthenticated"
    assert plane.cluster.started == []


async def test_another_owners_sandbox_does_not_exist(plane: World) -> None:
    sandbox_id = (await create(plane, labels={"a": "b"}))["id"]
    for method, path in (
        ("GET", f"/v1/sandboxes/{sandbox_id}"),
        ("DELETE", f"/v1/sandboxes/{sandbox_id}"),
        ("POST", f"/v1/sandboxes/{sandbox_id}/token"),
    ):
        assert (await plane.api(method, path, key=OTHER_KEY)).code == "sandbox_not_found"
    assert (await plane.api("GET", "/v1/sandboxes", key=OTHER_KEY)).json == {"sandboxes": []}
    deleted = await plane.api("DELETE", "/v1/sandboxes", query={"label": "a=b"}, key=OTHER_KEY)
    assert deleted.json == {"deleted": [], "failed": []}


async def test_list_filters_by_label_and_state(plane: World) -> None:
    one = await create(plane, labels={"run": "1", "x": "y"})
    two = await create(plane, labels={"run": "2", "x": "y"})
    await plane.api("DELETE", f"/v1/sandboxes/{two['id']}", query={"wait_ms": "60000"})

    async def ids(*query: tuple[str, str]) -> list[str]:
        return [found["id"] for found in (await plane.api("GET", "/v1/sandboxes", query=query)).json["sandboxes"]]

    assert await ids() == [one["id"]]
    assert await ids(("all", "true")) == [one["id"], two["id"]]
    assert await ids(("state", "ended")) == [two["id"]]
    assert await ids(("label", "x=y"), ("label", "run=2"), ("all", "true")) == [two["id"]]
    assert await ids(("label", "run=3"), ("all", "true")) == []


async def test_deleting_answers_the_end_and_repeats_it(plane: World) -> None:
    sandbox_id = (await create(plane))["id"]
    wait = {"wait_ms": "60000"}
    one, two = [await plane.api("DELETE", f"/v1/sandboxes/{sandbox_id}", query=wait) for _ in range(2)]
    assert one.json == two.json
    assert one.json["state"] == "ended"
    assert (one.json["end"]["cause"], one.json["end"]["by"]) == ("deleted", "alice")
    assert "token" not in one.json
    assert (await plane.api("POST", f"/v1/sandboxes/{sandbox_id}/token")).status == 410


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/v1/sandboxes/{id}", {}),
        ("/v1/sandboxes", {"label": "rollbox.group=g"}),
        ("/v1/sandboxes", {"idempotency_key": "g/0"}),
        ("/v1/groups/g", {}),
    ],
)
async def test_a_delete_answers_when_the_end_is_on_record_and_waits_only_when_asked(
    path: str, query: dict[str, str]
) -> None:
    never = 24 * 3600.0
    async with world(FakeCluster(stop_s=never), options=Options(max_sandboxes=1)) as plane:
        group = await plane.api("PUT", "/v1/groups/g", body={"count": 1, "sandbox": IMAGE})
        (sandbox_id,) = [one["sandbox"]["id"] for one in group.json["members"]]
        where, clock = path.format(id=sandbox_id), asyncio.get_running_loop().time
        began_s = clock()
        assert (await plane.api("DELETE", where, query=query)).status == 200
        assert clock() == began_s
        assert (await plane.service.get("alice", sandbox_id)).state is State.ENDING
        # Its quota is free.
        await create(plane)
        waited = await plane.api("DELETE", where, query={**query, "wait_ms": "5000"})
        assert clock() - began_s == pytest.approx(5, abs=0.5)
        told = waited.json["failed"][0] if "failed" in waited.json else waited.json
        assert told["code"] == "upstream_timeout"
        assert "has ended and its quota is free, but it was not confirmed within 5 s" in told["detail"]


@pytest.mark.parametrize("wait_ms", ["-1", "600001", "soon", ""])
async def test_nobody_waits_for_a_confirmation_without_end(plane: World, wait_ms: str) -> None:
    sandbox_id = (await create(plane))["id"]
    refused = await plane.api("DELETE", f"/v1/sandboxes/{sandbox_id}", query={"wait_ms": wait_ms})
    assert refused.code == "invalid_argument"
    assert (await plane.service.get("alice", sandbox_id)).state is State.RUNNING


async def test_deleting_by_labels_and_by_key(plane: World) -> None:
    one = await create(plane, labels={"run": "1"})
    two = (await plane.api("POST", "/v1/sandboxes", body=IMAGE, headers={"Idempotency-Key": "k"})).json
    by_label = await plane.api("DELETE", "/v1/sandboxes", query={"label": "run=1"})
    by_key = await plane.api("DELETE", "/v1/sandboxes", query={"idempotency_key": "k"})
    assert by_label.json == {"deleted": [one["id"]], "failed": []}
    assert by_key.json == {"deleted": [two["id"]], "failed": []}


async def test_a_creator_without_a_key_that_hangs_up_leaves_nothing() -> None:
    async with world(FakeCluster(ready_s=None)) as plane:
        gone = asyncio.Event()
        request = asyncio.create_task(plane.api("POST", "/v1/sandboxes", body=IMAGE, hang_up=gone))
        await asyncio.sleep(1)
        assert len(plane.cluster.held) == 1
        gone.set()
        await request
        await asyncio.sleep(1)
        assert plane.cluster.held == {}


async def test_a_creator_with_a_key_may_hang_up_and_come_back() -> None:
    async with world(FakeCluster(ready_s=5)) as plane:
        gone = asyncio.Event()
        headers = {"Idempotency-Key": "k"}
        first = asyncio.create_task(plane.api("POST", "/v1/sandboxes", body=IMAGE, headers=headers, hang_up=gone))
        await asyncio.sleep(1)
        (begun,) = (await plane.api("GET", "/v1/sandboxes")).json["sandboxes"]
        gone.set()
        assert (await first).code == "create_abandoned"
        again = await plane.api("POST", "/v1/sandboxes", body=IMAGE, headers=headers)
        assert (again.status, again.json["id"]) == (200, begun["id"])
        await asyncio.sleep(ABANDONED_S + 10)
        assert (await plane.api("GET", f"/v1/sandboxes/{begun['id']}")).json["state"] == "running"


@pytest.mark.parametrize("ready_s", [5, 300])
async def test_a_create_that_nobody_comes_back_for_ends_and_gives_its_key_back(ready_s: float) -> None:
    async with world(FakeCluster(ready_s=ready_s)) as plane:
        await hung_up(plane, "k", 1)
        (begun,) = (await plane.api("GET", "/v1/sandboxes")).json["sandboxes"]
        await asyncio.sleep(ABANDONED_S - 2)
        assert (await plane.api("GET", f"/v1/sandboxes/{begun['id']}")).json["end"] is None
        await asyncio.sleep(3)
        end = (await plane.api("GET", f"/v1/sandboxes/{begun['id']}")).json["end"]
        assert (end["cause"], end["fault"], end["mask_sample"]) == ("create_abandoned", "caller", True)
        plane.cluster.ready_s = 0.1
        again = await plane.api("POST", "/v1/sandboxes", body=IMAGE, headers={"Idempotency-Key": "k"})
        assert again.status == 201
        assert again.json["id"] != begun["id"]


async def test_one_that_another_create_waits_for_or_has_is_not_abandoned() -> None:
    async with world(FakeCluster(ready_s=5)) as plane:
        stays = asyncio.create_task(plane.api("POST", "/v1/sandboxes", body=IMAGE, headers={"Idempotency-Key": "k"}))
        await hung_up(plane, "k", 1)
        made = (await stays).json
        await hung_up(plane, "k", 0)
        await asyncio.sleep(3 * ABANDONED_S)
        assert (await plane.api("GET", f"/v1/sandboxes/{made['id']}")).json["state"] == "running"


async def test_a_late_hang_up_of_an_earlier_try_ends_nothing() -> None:
    async with world(FakeCluster(ready_s=5)) as plane:
        headers, gone = {"Idempotency-Key": "k", "Call-Id": "one"}, asyncio.Event()
        first = asyncio.create_task(plane.api("POST", "/v1/sandboxes", body=IMAGE, headers=headers, hang_up=gone))
        await asyncio.sleep(1)
        second = asyncio.create_task(plane.api("POST", "/v1/sandboxes", body=IMAGE, headers=headers))
        await asyncio.sleep(1)
        gone.set()
        assert (await first).code == "create_abandoned"
        made = (await second).json
        await asyncio.sleep(3 * ABANDONED_S)
        assert (await plane.api("GET", f"/v1/sandboxes/{made['id']}")).json["state"] == "running"


async def test_a_call_takes_back_what_it_asked_for_and_nothing_that_another_one_has(plane: World) -> None:
    key = {"Idempotency-Key": "k"}
    made = [
        (await plane.api("POST", "/v1/sandboxes", body=IMAGE, headers={**key, "Call-Id": call})).json["id"]
        for call in ("one", "two")
    ]
    assert made[0] == made[1]
    take_back = functools.partial(plane.api, "DELETE", "/v1/sandboxes", query={"idempotency_key": "k"})
    assert (await take_back(headers={"Call-Id": "two"})).json == {"deleted": [], "failed": []}
    assert (await take_back(headers={"Call-Id": "three"})).json == {"deleted": [], "failed": []}
    assert (await plane.api("GET", f"/v1/sandboxes/{made[0]}")).json["state"] == "running"
    assert (await take_back(headers={"Call-Id": "one"})).json["deleted"] == [made[0]]
    end = (await plane.api("GET", f"/v1/sandboxes/{made[0]}")).json["end"]
    assert (end["cause"], end["by"]) == ("create_abandoned", "alice")
    # What arrives of it later is refused, and the key is anybody else's.
    again = await plane.api("POST", "/v1/sandboxes", body=IMAGE, headers={**key, "Call-Id": "four"})
    assert again.status == 201
    assert (await take_back(headers={"Call-Id": "no spaces"})).code == "invalid_argument"


async def test_a_create_that_arrives_after_its_call_was_taken_back_is_refused(plane: World) -> None:
    query, headers = {"idempotency_key": "k"}, {"Idempotency-Key": "k", "Call-Id": "one"}
    gone = await plane.api("DELETE", "/v1/sandboxes", query=query, headers={"Call-Id": "one"})
    assert gone.json["deleted"] == []
    assert (await plane.api("POST", "/v1/sandboxes", body=IMAGE, headers=headers)).code == "deleted"
    other = await plane.api("POST", "/v1/sandboxes", body=IMAGE, headers={**headers, "Call-Id": "two"})
    assert other.status == 201


async def test_a_client_that_only_waited_has_not_taken_the_sandbox_from_the_lease_that_has_it() -> None:
    async with world(FakeCluster(ready_s=5)) as plane:

        def leased(name: str) -> dict[str, object]:
            return {**IMAGE, "lease": {"name": name, "ttl_ms": 600_000}}

        first = asyncio.create_task(
            plane.api("POST", "/v1/sandboxes", body=leased("run-1"), headers={"Idempotency-Key": "k"})
        )
        await hung_up(plane, "k", 1, leased("run-2"))
        assert (await first).json["lease"]["name"] == "run-1"
        again = await plane.api("POST", "/v1/sandboxes", body=leased("run-2"), headers={"Idempotency-Key": "k"})
        assert again.json["lease"]["name"] == "run-2"


async def hung_up(plane: World, key: str, after_s: float, body: Mapping[str, object] = IMAGE) -> None:
    """A create whose caller goes away before it is answered."""
    gone = asyncio.Event()
    asyncio.get_running_loop().call_later(after_s, gone.set)
    await plane.api("POST", "/v1/sandboxes", body=body, headers={"Idempotency-Key": key}, hang_up=gone)


async def test_a_failed_start_is_answered_with_its_cause(plane: World) -> None:
    plane.cluster.next_error = Problem("image_not_found", "there is no image nope:1")
    answer = await plane.api("POST", "/v1/sandboxes", body=IMAGE)
    assert (answer.status, answer.code) == (422, "image_not_found")
    assert answer.json["details"]["sandbox_id"].startswith("sb-")


async def test_a_bug_is_internal_and_says_no_more(plane: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(plane.service, "find", broken)
    answer = await plane.api("GET", "/v1/sandboxes")
    assert (answer.status, answer.code) == (500, "internal")
    assert answer.json["request_id"] == answer.headers["x-request-id"]
    assert b"secret" not in answer.body


@pytest.mark.parametrize(("sent", "kept"), [("abc-1.2_3", True), ("a b", False), ("x" * 129, False), ("", False)])
async def test_every_answer_has_a_request_id(plane: World, sent: str, kept: bool) -> None:
    answer = await plane.api("GET", "/v1/nothing", headers={"x-request-id": sent})
    assert (answer.headers["x-request-id"] == sent) == kept
    assert answer.json["request_id"] == answer.headers["x-request-id"]


async def test_info_says_what_isolates(plane: World) -> None:
    body = (await plane.api("GET", "/v1/info")).json
    assert body["isolation"] == "runc"
    assert body["isolation_detail"] == "shares the kernel"
    assert body["engine"] == {"name": "fake", "version": "1"}
    assert body["network"] == "none"


async def test_operators_see_health_and_metrics_without_a_key(plane: World) -> None:
    await create(plane)
    assert (await plane.api("GET", "/healthz", headers={"authorization": ""})).status == 200
    assert (await plane.api("GET", "/readyz")).status == 200
    text = (await plane.api("GET", "/metrics")).body.decode()
    assert 'rollbox_sandboxes{state="running"} 1.0' in text
    assert 'rollbox_create_phase_seconds_count{phase="total",start="cold"} 1.0' in text
    assert 'rollbox_sandbox_ends_total{cause="oom_killed",fault="workload",masked="false"} 0.0' in text
    assert "sb-" not in text
    await plane.service.drain(delete=True)
    assert (await plane.api("GET", "/readyz")).code == "draining"


async def test_the_ready_door_takes_pushes_and_nothing_else() -> None:
    async with world(FakeCluster(ready_s=None)) as plane:
        waiting = asyncio.create_task(plane.api("POST", "/v1/sandboxes", body=IMAGE))
        await asyncio.sleep(1)
        ((sandbox_id, held),) = plane.cluster.held.items()
        bearer = {"authorization": f"Bearer {held.boot.ready_token}"}
        push = {"sandbox_id": sandbox_id, "kernel": "Linux", "boot_us": {"probed": 7_000}, "later": 1}
        assert (await plane.door("POST", "/v1/ready", body=push)).code == "unauthenticated"
        assert (await plane.door("POST", "/v1/ready", body={}, headers=bearer)).code == "invalid_argument"
        assert (await plane.door("POST", "/v1/ready", raw=b"x" * 20_000, headers=bearer)).code == "payload_too_large"
        for path in ("/", "/v1/sandboxes", "/metrics", "/healthz"):
            assert (await plane.door("GET", path, headers=bearer)).status == 404
        assert (await plane.door("POST", "/v1/ready", body=push, headers=bearer)).status == 204
        body = (await waiting).json
        assert (body["kernel"], body["timings_ms"]["boot"]) == ("Linux", 7)


async def test_the_ready_door_takes_failures() -> None:
    async with world(FakeCluster(ready_s=None)) as plane:
        waiting = asyncio.create_task(plane.api("POST", "/v1/sandboxes", body=IMAGE))
        await asyncio.sleep(1)
        ((sandbox_id, held),) = plane.cluster.held.items()
        failure = {"code": "start_timeout", "detail": "the target did not appear"}
        headers = {"authorization": f"Bearer {held.boot.ready_token}"}
        push = {"sandbox_id": sandbox_id, "failure": failure}
        assert (await plane.door("POST", "/v1/ready", body=push, headers=headers)).status == 204
        assert (await waiting).code == "start_timeout"
