"""The caller's deadline: one for the whole call, repetitions included, and blamed on what it was spent on."""

import asyncio

import pytest

from controlplane.cluster.engine.documents import FileDocuments
from controlplane.errors import Problem
from controlplane.lifecycle import Options
from controlplane.model import SandboxSpec
from tests.support.fake_cluster import FakeCluster
from tests.support.world import OWNER, SPEC, World, world
from tests.unit.controlplane.lifecycle.test_claims import ENV_SPEC, POOL, Sick, warmed

BODY = {"image": "python:3.12", "start_timeout_ms": 20_000}


def repeated(left_ms: int) -> dict[str, str]:
    return {"Idempotency-Key": "k", "Start-Timeout-Ms": str(left_ms)}


async def test_a_repetition_has_no_more_time_than_its_caller() -> None:
    async with world(FakeCluster(ready_s=None)) as plane:
        began_ms = plane.deps.clock.now_ms()
        plane.cluster.next_error = Problem("capacity_unavailable", "the node turned the pod away")
        first = await plane.api("POST", "/v1/sandboxes", body=BODY, headers=repeated(20_000))
        assert first.code == "capacity_unavailable"
        await asyncio.sleep(4.9)
        # The same body, so the key stands for the same; what is left says how long it is held.
        again = await plane.api("POST", "/v1/sandboxes", body=BODY, headers=repeated(15_000))
        assert again.code == "start_timeout"
        assert plane.deps.clock.now_ms() - began_ms == pytest.approx(20_000, abs=100)


async def test_a_repetition_joins_the_start_that_the_first_one_began(plane: World) -> None:
    one, two = await asyncio.gather(
        plane.api("POST", "/v1/sandboxes", body=BODY, headers=repeated(20_000)),
        plane.api("POST", "/v1/sandboxes", body=BODY, headers=repeated(7_000)),
    )
    assert (one.status, two.status) == (201, 200)
    assert one.json["id"] == two.json["id"]


async def test_a_group_has_one_deadline() -> None:
    async with world(FakeCluster(ready_s=None)) as plane:
        began_ms = plane.deps.clock.now_ms()
        wish = {"count": 2, "partial": True, "sandbox": BODY}
        answer = await plane.api("PUT", "/v1/groups/g", body=wish, headers={"Start-Timeout-Ms": "3000"})
        assert [one["problem"]["code"] for one in answer.json["members"]] == ["start_timeout"] * 2
        assert plane.deps.clock.now_ms() - began_ms == pytest.approx(3_000, abs=100)


@pytest.mark.parametrize("left", ["0", "-1", "x", "3600001", "1e3", ""])
async def test_what_is_no_time_is_refused(plane: World, left: str) -> None:
    headers = {"Start-Timeout-Ms": left}
    answer = await plane.api("POST", "/v1/sandboxes", body=BODY, headers=headers)
    assert (answer.status, answer.code) == (400, "invalid_argument")


async def test_the_least_time_makes_a_record_that_can_be_read_again(plane: World) -> None:
    answer = await plane.api("POST", "/v1/sandboxes", body=BODY, headers=repeated(1))
    (one,) = await plane.service.find(OWNER, {}, None)
    assert answer.status in (201, 504)
    assert SandboxSpec.model_validate(one.spec.model_dump()).start_timeout_ms == 100


async def test_one_in_the_place_of_a_dead_one_has_what_is_left() -> None:
    documents = FileDocuments()
    await documents.put("pools", "p", POOL | {"min_warm": 4, "max_warm": 4, "starts_per_minute": 4}, None)
    async with world(Sick(failures=4, wait_s=3), documents=documents) as plane:
        await warmed(plane, 4)
        plane.cluster.ready_s = None
        began_ms = plane.deps.clock.now_ms()
        wish = ENV_SPEC.model_copy(update={"start_timeout_ms": 20_000})
        with pytest.raises(Problem, match="start_timeout"):
            await plane.create(OWNER, wish)
        assert plane.deps.clock.now_ms() - began_ms == pytest.approx(20_000, abs=100)


async def test_no_more_are_tried_when_the_time_is_over() -> None:
    documents = FileDocuments()
    await documents.put("pools", "p", POOL | {"min_warm": 4, "max_warm": 4, "starts_per_minute": 4}, None)
    async with world(Sick(failures=4, wait_s=3), documents=documents) as plane:
        await warmed(plane, 4)
        with pytest.raises(Problem, match="nothing was ready within the start timeout"):
            await plane.create(OWNER, ENV_SPEC.model_copy(update={"start_timeout_ms": 2_500}))


@pytest.mark.parametrize("left_s", [0.0, 0.5, 1.9])
async def test_a_turn_that_comes_too_late_is_the_queues_fault_and_asks_no_cluster(left_s: float) -> None:
    async with world(FakeCluster(start_s=10 - left_s), options=Options(starts_in_flight=1)) as plane:
        first = asyncio.create_task(plane.create(OWNER, SPEC))
        await asyncio.sleep(0)
        with pytest.raises(Problem, match="start_queue_timeout") as caught:
            await plane.create(OWNER, SPEC.model_copy(update={"start_timeout_ms": 10_000}))
        assert caught.value.code == "start_queue_timeout"
        assert plane.cluster.started == [(await first).sandbox.id]
