"""The routes of leases and timelines."""

import pytest

from tests.support.world import OTHER_KEY, World

LEASE = {"name": "run-1", "ttl_ms": 60_000}


async def create(plane: World, **spec: object) -> str:
    answer = await plane.api("POST", "/v1/sandboxes", body={"image": "a", **spec})
    assert answer.status == 201, answer
    return str(answer.json["id"])


async def test_a_sandbox_is_given_to_a_lease_and_taken_off_it(plane: World) -> None:
    sandbox_id = await create(plane, lease=LEASE, idle_timeout_ms=5000)
    record = (await plane.api("GET", f"/v1/sandboxes/{sandbox_id}")).json
    assert (record["lease"], record["idle_timeout_ms"]) == (LEASE, 5000)
    renew = {"ttl_ms": 60_000}
    assert (await plane.api("POST", "/v1/leases/run-1", body=renew)).json == {**LEASE, "sandboxes": 1}
    assert (await plane.api("POST", "/v1/leases/run-1", body=renew, key=OTHER_KEY)).json["sandboxes"] == 0
    url = f"/v1/sandboxes/{sandbox_id}/lease"
    for _ in range(2):
        assert (await plane.api("DELETE", url)).json["lease"] is None
    assert (await plane.api("POST", "/v1/leases/run-1", body=renew)).json["sandboxes"] == 0
    assert (await plane.api("PUT", url, body=LEASE)).json["lease"] == LEASE
    assert (await plane.api("PUT", url, body=LEASE, key=OTHER_KEY)).code == "sandbox_not_found"
    await plane.api("DELETE", f"/v1/sandboxes/{sandbox_id}")
    assert (await plane.api("PUT", url, body=LEASE)).code == "deleted"


@pytest.mark.parametrize(
    "lease",
    [
        {"name": "a b", "ttl_ms": 60_000},
        {"name": "-a", "ttl_ms": 60_000},
        {"name": "", "ttl_ms": 60_000},
        {"name": "a" * 129, "ttl_ms": 60_000},
        {"name": "a\n", "ttl_ms": 60_000},
        {"name": "a", "ttl_ms": 999},
        {"name": "a", "ttl_ms": 8 * 24 * 3_600_000},
        {"name": "a", "ttl_ms": "1000"},
        {"name": "a"},
        {"name": "a", "ttl_ms": 60_000, "holder": "me"},
    ],
)
async def test_a_lease_that_makes_no_sense_is_refused_before_anything_happens(
    plane: World, lease: dict[str, object]
) -> None:
    answer = await plane.api("POST", "/v1/sandboxes", body={"image": "a", "lease": lease})
    assert answer.code == "invalid_argument"
    assert "lease" in answer.json["detail"]
    assert not plane.cluster.started


@pytest.mark.parametrize("name", ["-a", "a" * 129, "a b"])
async def test_so_is_a_name(plane: World, name: str) -> None:
    assert (await plane.api("POST", f"/v1/leases/{name}", body={"ttl_ms": 60_000})).code == "invalid_argument"


async def test_a_story_is_told_also_after_the_end(plane: World) -> None:
    sandbox_id = await create(plane, labels={"run": "r"})
    url = f"/v1/sandboxes/{sandbox_id}"
    told = (await plane.api("GET", f"{url}/timeline")).json
    assert (told["summary"], told["end"], told["advice"], told["retry"]) == ("It runs.", None, "", None)
    assert told["labels"] == {"run": "r"}
    await plane.api("DELETE", url, query={"wait_ms": "60000"})
    told = (await plane.api("GET", f"{url}/timeline")).json
    assert (told["end"]["cause"], told["retry"]) == ("deleted", "never")
    assert told["advice"].startswith("Create a new sandbox")
    assert [one["word"] for one in told["moments"]] == ["request", "queue", "start", "ready", "deleted", "confirm"]
    assert all(one["text"] for one in told["moments"])
    assert (await plane.api("GET", "/v1/sandboxes/sb-none/timeline")).code == "sandbox_not_found"
    assert (await plane.api("GET", f"{url}/timeline", key=OTHER_KEY)).code == "sandbox_not_found"
