"""Groups over the API: all or a typed part, replayed by name, found again, deleted together; nothing is left."""

import asyncio
from typing import Any

import pytest

from controlplane.errors import Problem
from tests.support.asgi import Answer
from tests.support.fake_cluster import FakeCluster
from tests.support.world import OTHER_KEY, World, world

SPEC = {"image": "python:3.12"}


async def put(plane: World, name: str = "g", count: int = 4, **more: Any) -> Answer:
    sandbox = {**SPEC, **more.pop("sandbox", {})}
    return await plane.api("PUT", f"/v1/groups/{name}", body={"count": count, "sandbox": sandbox, **more})


def ids(answer: Answer) -> list[str]:
    assert answer.status == 200, answer
    return [member["sandbox"]["id"] for member in answer.json["members"]]


async def live(plane: World) -> list[str]:
    answer = await plane.api("GET", "/v1/sandboxes")
    return [one["id"] for one in answer.json["sandboxes"] if one["state"] == "running"]


async def test_every_sample_has_its_sandbox_labels_and_token(plane: World) -> None:
    answer = await put(plane, sandbox={"labels": {"run": "r"}})
    assert answer.json["name"] == "g"
    members = answer.json["members"]
    assert [member["sample"] for member in members] == [0, 1, 2, 3]
    assert [member["sandbox"]["labels"] for member in members] == [
        {"run": "r", "rollbox.group": "g", "rollbox.sample": str(n)} for n in range(4)
    ]
    assert all(member["problem"] is None and member["sandbox"]["token"] for member in members)
    assert len(set(ids(answer))) == 4


async def test_the_same_name_answers_the_same_and_another_owner_has_his_own(plane: World) -> None:
    first = ids(await put(plane))
    assert ids(await put(plane)) == first
    other = await plane.api("PUT", "/v1/groups/g", body={"count": 4, "sandbox": SPEC}, key=OTHER_KEY)
    assert not set(ids(other)) & set(first)
    assert len(plane.cluster.held) == 8


async def test_two_calls_at_once_make_each_sandbox_once(plane: World) -> None:
    one, two = await asyncio.gather(put(plane), put(plane))
    assert ids(one) == ids(two)
    assert len(plane.cluster.held) == 4


async def test_one_failure_of_all_leaves_nothing() -> None:
    cluster = FakeCluster()
    async with world(cluster) as plane:
        cluster.next_error = Problem("image_not_found", "there is no such image")
        answer = await put(plane)
        assert (answer.status, answer.code) == (422, "image_not_found")
        await asyncio.sleep(1)
        assert await live(plane) == []
        assert cluster.held == {}
        # The name is used up, and still tells why: what may be on its way must not begin.
        assert (await put(plane)).code == "image_not_found"
        assert cluster.held == {}


async def test_a_part_has_the_problem_in_its_place() -> None:
    cluster = FakeCluster()
    async with world(cluster) as plane:
        cluster.next_error = Problem("image_pull_failed", "the registry is away")
        answer = await put(plane, partial=True)
        failed = [member for member in answer.json["members"] if member["problem"]]
        assert [member["problem"]["code"] for member in failed] == ["image_pull_failed"]
        assert failed[0]["problem"].keys() >= {"detail", "fault", "retry", "hint", "request_id"}
        assert len(await live(plane)) == 3


async def test_other_parameters_are_a_conflict_and_take_nothing_from_the_first(plane: World) -> None:
    first = ids(await put(plane, count=2))
    answer = await put(plane, count=4, sandbox={"pids_limit": 64})
    assert answer.code == "conflict"
    assert sorted(await live(plane)) == sorted(first)


async def test_a_group_is_found_again_with_what_became_of_it(plane: World) -> None:
    first = ids(await put(plane, count=3))
    await plane.api("DELETE", f"/v1/sandboxes/{first[1]}")
    answer = await plane.api("GET", "/v1/groups/g")
    members = answer.json["members"]
    assert [member["sandbox"] and member["sandbox"]["id"] for member in members] == [first[0], None, first[2]]
    assert members[1]["problem"]["code"] == "deleted"
    assert (await plane.api("GET", "/v1/groups/g", key=OTHER_KEY)).code == "not_found"
    assert (await plane.api("GET", "/v1/groups/other")).code == "not_found"


@pytest.mark.parametrize("label", ["", "one", "-1", "1.0", "²", "٣", "12345", "9" * 63])
async def test_a_label_that_is_no_number_is_no_sample(plane: World, label: str) -> None:
    labels = {"rollbox.group": "g", "rollbox.sample": label}
    made = await plane.api("POST", "/v1/sandboxes", body={**SPEC, "labels": labels})
    assert made.status == 201, made
    assert (await plane.api("GET", "/v1/groups/g")).code == "not_found"
    first = ids(await put(plane, count=2))
    assert ids(await plane.api("GET", "/v1/groups/g")) == first
    assert made.json["id"] not in first


async def test_a_group_under_way_is_waited_for() -> None:
    async with world(FakeCluster(ready_s=5)) as plane:
        creating = asyncio.ensure_future(put(plane))
        await asyncio.sleep(1)
        found = await plane.api("GET", "/v1/groups/g")
        assert ids(found) == ids(await creating)


async def test_delete_takes_all_and_repeating_it_is_success(plane: World) -> None:
    first = ids(await put(plane))
    answer = await plane.api("DELETE", "/v1/groups/g", query={"wait_ms": "60000"})
    assert (sorted(answer.json["deleted"]), answer.json["failed"]) == (sorted(first), [])
    assert (await plane.api("DELETE", "/v1/groups/g")).json == {"deleted": [], "failed": []}
    assert plane.cluster.held == {}


async def test_a_delete_in_the_middle_of_the_create_wins() -> None:
    async with world(FakeCluster(ready_s=5)) as plane:
        creating = asyncio.ensure_future(put(plane))
        await asyncio.sleep(1)
        await plane.api("DELETE", "/v1/groups/g", query={"count": "4", "wait_ms": "60000"})
        assert (await creating).code == "deleted"
        assert (await put(plane)).code == "deleted"
        assert plane.cluster.held == {}


@pytest.mark.parametrize(
    ("name", "body", "complaint"),
    [
        ("g", {"count": 0, "sandbox": SPEC}, "count"),
        ("g", {"count": 1025, "sandbox": SPEC}, "count"),
        ("g", {"count": 1}, "sandbox is missing"),
        ("g", {"count": 1, "sandbox": SPEC, "size": 1}, "size is not a known field"),
        ("g", {"count": 1, "sandbox": {"image": "a b"}}, "sandbox.image"),
        ("-g", {"count": 1, "sandbox": SPEC}, "name"),
        ("g" * 101, {"count": 1, "sandbox": SPEC}, "name"),
    ],
)
async def test_bad_input_is_refused_before_anything_happens(
    plane: World, name: str, body: dict[str, Any], complaint: str
) -> None:
    answer = await plane.api("PUT", f"/v1/groups/{name}", body=body)
    assert answer.code == "invalid_argument"
    assert complaint in answer.json["detail"]
    assert plane.cluster.started == []
