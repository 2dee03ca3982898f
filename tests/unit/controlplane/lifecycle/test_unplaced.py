"""Starts that no node takes: they block nobody, say why, and count again from the moment in which they are placed."""

import asyncio

import pytest

from controlplane.errors import Problem
from controlplane.lifecycle import Options
from controlplane.model import SandboxSpec
from controlplane.model.spec import Range
from tests.support.scheduled import Scheduled
from tests.support.world import OWNER, SPEC, world

LARGE = SandboxSpec(image="a", cpu_millicores=Range(request=9_000, limit=9_000), start_timeout_ms=30_000)

WHY = "the scheduler finds no node for it: of 2 nodes 2 have too little cpu left"
WAITS = f"no node has room for it now: {WHY}; it is number 1 of 1 of alice that wait for such room"
REFUSED = (
    f"no node has room for it within its start timeout of 30 s: {WHY}; "
    "it was number 1 of 1 of alice that waited for such room"
)


async def test_what_no_node_takes_blocks_nobody_and_ends_with_what_it_lacks() -> None:
    cluster = Scheduled({"a": 4.0, "b": 4.0})
    async with world(cluster, options=Options(starts_in_flight=64)) as plane:
        large = [asyncio.create_task(plane.create(OWNER, LARGE)) for _ in range(8)]
        await asyncio.sleep(1)
        began_s = asyncio.get_running_loop().time()
        await asyncio.gather(*(plane.create(OWNER, SPEC) for _ in range(4)))
        assert asyncio.get_running_loop().time() - began_s <= 3, "it waited behind what no node takes"
        for one in large:
            with pytest.raises(Problem, match="too little cpu left") as caught:
                await one
            assert caught.value.code == "capacity_unavailable"
        assert (await plane.service.levels()).starts_in_flight == 0


async def test_whoever_waits_for_a_node_hears_why() -> None:
    async with world(Scheduled({"a": 4.0}), options=Options(starts_in_flight=64)) as plane:
        body = LARGE.model_dump() | {"labels": {"sample": "7"}}
        creating = asyncio.create_task(plane.api("POST", "/v1/sandboxes", body=body, headers={"Idempotency-Key": "k"}))
        await asyncio.sleep(1)
        (one,) = (await plane.api("GET", "/v1/sandboxes")).json["sandboxes"]
        told = (await plane.api("GET", f"/v1/sandboxes/{one['id']}/timeline")).json
        assert told["summary"] == f"It waits for room: capacity_unavailable: {WAITS}."
        quota = (await plane.api("GET", "/v1/quota")).json
        (place,) = quota["queue"]
        assert (quota["waiting"], place["position"], place["idempotency_key"]) == (1, 1, "k")
        assert (place["waits_for"], place["why"]) == ("capacity_unavailable", WAITS)
        assert place["labels"] == {"sample": "7"}
        assert place["until_ms"] - place["since_ms"] == 30_000
        assert (await plane.service.levels()).starts_unplaced == 1
        answer = await creating
        assert (answer.code, answer.json["detail"]) == ("capacity_unavailable", REFUSED)
        assert answer.json["retry_after_ms"] == 5_000
        assert answer.json["details"]["waited_ms"] == "30000"
        assert (await plane.api("GET", "/v1/quota")).json["queue"] == []


async def test_a_node_that_comes_gets_what_has_waited_and_little_that_is_new_beside_it() -> None:
    cluster = Scheduled({"a": 4.0})
    async with world(cluster, options=Options(starts_in_flight=64)) as plane:
        large = [asyncio.create_task(plane.create(OWNER, LARGE)) for _ in range(3)]
        await asyncio.sleep(1)
        cluster.slots = 8
        cluster.add("new", 64.0)
        await asyncio.sleep(0.1)
        # The three that were placed at once count there: what is new goes elsewhere.
        small = await asyncio.gather(*(plane.create(OWNER, SPEC) for _ in range(2)))
        assert {cluster.placed[one.sandbox.id].node for one in small} == {"a"}
        await asyncio.gather(*large)
        assert {cluster.placed[(await one).sandbox.id].node for one in large} == {"new"}


async def test_every_node_gets_as_many_starts_as_it_bears_of_a_herd_over_eight_nodes() -> None:
    cluster = Scheduled({f"n{number}": 64.0 for number in range(8)}, per_node=8)
    async with world(cluster, options=Options(starts_in_flight=64)) as plane:
        began_s = asyncio.get_running_loop().time()
        await asyncio.gather(*(plane.create(OWNER, SPEC) for _ in range(256)))
        took_s = asyncio.get_running_loop().time() - began_s
        assert max(cluster.most.values()) <= 8
        # 64 at a time would take four seconds.
        assert took_s <= 8


async def test_a_herd_that_only_one_of_eight_nodes_has_room_for_does_not_meet_on_it() -> None:
    cluster = Scheduled({**{f"n{number}": 0.0 for number in range(7)}, "n7": 64.0}, per_node=8)
    async with world(cluster, options=Options(starts_in_flight=64)) as plane:
        await asyncio.gather(*(plane.create(OWNER, SPEC) for _ in range(64)))
        assert cluster.most["n7"] <= 9


async def test_a_node_that_is_slow_to_start_stops_nobody() -> None:
    cluster = Scheduled({"slow": 64.0, "b": 32.0}, per_node=2)

    async def pulling(sandbox_id: str, node: str) -> None:
        await cluster.get_ready(sandbox_id, 60.0 if node == "slow" else 0.1)

    cluster.run_on = pulling  # type: ignore[method-assign]
    async with world(cluster, options=Options(starts_in_flight=64)) as plane:
        herd = [asyncio.create_task(plane.create(OWNER, SPEC)) for _ in range(20)]
        await asyncio.sleep(10)
        assert sum(one.done() for one in herd) == 18
        await asyncio.gather(*herd)
