"""Checkpoints of sandboxes: what starts from them, for how long, whose they are, and that a key makes one."""

import asyncio
import json
from typing import Any

import pytest

from controlplane.errors import Problem
from controlplane.lifecycle import Options
from tests.support.asgi import Answer
from tests.support.fake_cluster import FakeCluster, FakeSidecars
from tests.support.shared_store import SharedMemory
from tests.support.virtual_time import VirtualClock
from tests.support.world import OTHER_KEY, OWNER, World, world

HOUR_S = 3600
TTL_S = 60


async def create(plane: World, image: str = "python:3.12", key: str | None = None) -> Answer:
    return await plane.api("POST", "/v1/sandboxes", body={"image": image, "ttl_ms": 48 * HOUR_S * 1000}, key=key)


async def checkpoint(plane: World, sandbox_id: str, *, again: str | None = None, **body: Any) -> Answer:
    headers = {} if again is None else {"Idempotency-Key": again}
    return await plane.api("POST", f"/v1/sandboxes/{sandbox_id}/checkpoint", body=body, headers=headers)


async def listed(plane: World) -> list[dict[str, Any]]:
    images: list[dict[str, Any]] = (await plane.api("GET", "/v1/images/commits")).json["images"]
    return images


async def test_sandboxes_start_from_checkpoints_of_checkpoints() -> None:
    async with world() as plane:
        first = (await create(plane)).json
        assert first["parent"] is None
        told, below = [], first["id"]
        for depth in range(1, 4):
            made = (await checkpoint(plane, below)).json
            assert made["depth"] == depth
            started = await create(plane, made["checkpoint"])
            assert started.status == 201
            assert started.json["image"] == made["image"]
            assert started.json["parent"] == {"sandbox": below, "checkpoint": made["checkpoint"], "depth": depth}
            timeline = await plane.api("GET", f"/v1/sandboxes/{started.json['id']}/timeline")
            assert timeline.json["parent"] == started.json["parent"]
            told.append(made)
            below = started.json["id"]
        # None is built on another one: each can go for itself.
        images = await listed(plane)
        assert [(one["image"], one["built_on"], one["expires_at_ms"]) for one in images] == [
            (one["image"], [], one["expires_at_ms"]) for one in told
        ]
        assert (await create(plane, told[0]["image"])).json["parent"]["checkpoint"] == told[0]["checkpoint"]


async def test_many_can_be_made_of_one_sandbox_and_all_count() -> None:
    async with world(options=Options(commit_bytes=3_000)) as plane:
        sandbox_id = (await create(plane)).json["id"]
        made = [await checkpoint(plane, sandbox_id) for _ in range(2)]
        assert len({one.json["checkpoint"] for one in made}) == 2
        assert (await checkpoint(plane, sandbox_id)).code == "quota_exceeded"
        removed = await plane.api("DELETE", f"/v1/images/commits/{made[0].json['checkpoint']}")
        assert removed.json["removed"]
        assert (await checkpoint(plane, sandbox_id)).status == 200


async def test_one_of_another_owner_is_not_there() -> None:
    async with world() as plane:
        made = (await checkpoint(plane, (await create(plane)).json["id"])).json
        for image, code in ((made["checkpoint"], "checkpoint_not_found"), (made["image"], "permission_denied")):
            assert (await create(plane, image, OTHER_KEY)).code == code
        unknown = made["checkpoint"][:-1] + ("a" if made["checkpoint"][-1] != "a" else "b")
        assert (await create(plane, unknown)).code == "checkpoint_not_found"


async def test_it_goes_after_its_time_and_its_last_sandbox() -> None:
    async with world() as plane:
        sandbox_id = (await create(plane)).json["id"]
        made = (await checkpoint(plane, sandbox_id, ttl_ms=TTL_S * 1000)).json
        user = (await create(plane, made["checkpoint"])).json["id"]
        await asyncio.sleep(TTL_S + 1)
        refused = await create(plane, made["checkpoint"])
        assert (refused.status, refused.code) == (410, "checkpoint_expired")
        assert (await create(plane, made["image"])).code == "checkpoint_expired"
        await asyncio.sleep(300)
        assert [one["image"] for one in await listed(plane)] == [made["image"]]
        await plane.service.delete(OWNER, user, wait_s=5)
        await asyncio.sleep(120)
        assert await listed(plane) == []
        # What has a name stays for ever.
        await plane.api("POST", f"/v1/sandboxes/{sandbox_id}/commit", body={"name": "kept"})
        await asyncio.sleep(HOUR_S)
        assert [one["tags"] for one in await listed(plane)] == [["latest"]]


async def test_a_cluster_that_does_not_remove_one_is_asked_again() -> None:
    async with world() as plane:
        made = (await checkpoint(plane, (await create(plane)).json["id"], ttl_ms=1_000)).json
        plane.cluster.commits.kept.unremovable.add(made["digest"])
        await asyncio.sleep(600)
        assert len(await listed(plane)) == 1
        plane.cluster.commits.kept.unremovable.clear()
        await asyncio.sleep(120)
        assert await listed(plane) == []


async def test_a_named_image_of_a_checkpoint_does_not_need_it() -> None:
    async with world() as plane:
        made = (await checkpoint(plane, (await create(plane)).json["id"])).json
        sandbox_id = (await create(plane, made["checkpoint"])).json["id"]
        await plane.api("POST", f"/v1/sandboxes/{sandbox_id}/commit", body={"name": "kept"})
        assert [one["built_on"] for one in await listed(plane)] == [[], []]


@pytest.mark.parametrize("body", [{"ttl_ms": 0}, {"ttl_ms": 8 * 24 * HOUR_S * 1000}, {"name": "a"}, {"max_bytes": 0}])
async def test_what_it_is_asked_for_is_checked(body: dict[str, Any]) -> None:
    async with world() as plane:
        assert (await checkpoint(plane, (await create(plane)).json["id"], **body)).code == "invalid_argument"


async def test_where_nothing_is_committed_there_are_none() -> None:
    cluster = FakeCluster()
    vars(cluster)["commits"] = None
    async with world(cluster) as plane:
        assert (await create(plane, "cp-0123456789abcdef-1-9999999999-abcdefgh")).code == "checkpoint_not_found"


async def test_a_key_makes_one_at_whatever_replica() -> None:
    core, cluster, sidecars = SharedMemory(VirtualClock()), FakeCluster(), FakeSidecars()
    async with (
        world(cluster, sidecars, store=core.view("a")) as a,
        world(cluster, sidecars, store=core.view("b")) as b,
    ):
        sandbox_id = (await create(b)).json["id"]
        cluster.commits.commit_s = 100.0
        both = await asyncio.gather(checkpoint(a, sandbox_id, again="k"), checkpoint(b, sandbox_id, again="k"))
        assert both[0].status == 200
        assert both[0].json == both[1].json == (await checkpoint(b, sandbox_id, again="k")).json
        assert len(await listed(a)) == 1
        other = await checkpoint(b, sandbox_id, again="k", ttl_ms=5_000)
        assert (other.status, other.code) == (409, "conflict")
        await asyncio.sleep(601)
        assert (await checkpoint(a, sandbox_id, again="k")).json["checkpoint"] != both[0].json["checkpoint"]


async def test_a_key_whose_commit_has_failed_is_free_at_the_other_replica() -> None:
    core, cluster, sidecars = SharedMemory(VirtualClock()), FakeCluster(), FakeSidecars()
    async with (
        world(cluster, sidecars, store=core.view("a")) as a,
        world(cluster, sidecars, store=core.view("b")) as b,
    ):
        sandbox_id = (await create(b)).json["id"]
        cluster.commits.next_error = Problem("capacity_unavailable", "no room")
        assert (await checkpoint(a, sandbox_id, again="k")).code == "capacity_unavailable"
        assert (await checkpoint(b, sandbox_id, again="k")).status == 200


async def test_a_replica_that_dies_at_work_holds_a_key_for_half_a_minute() -> None:
    core, cluster, sidecars = SharedMemory(VirtualClock()), FakeCluster(), FakeSidecars()
    async with world(cluster, sidecars, store=core.view("b")) as b:
        sandbox_id = (await create(b)).json["id"]
        dead = json.dumps({"asked": [sandbox_id, "", 4 << 30, 24 * HOUR_S * 1000], "at_work": "x"})
        assert await core.view("a").write_note(f"commit:{OWNER}\nk", dead, 30_000)
        began_ms = b.deps.clock.now_ms()
        assert (await checkpoint(b, sandbox_id, again="k")).status == 200
        assert 29_000 < b.deps.clock.now_ms() - began_ms < 35_000


async def test_the_bytes_of_an_owner_hold_across_replicas() -> None:
    core, cluster, sidecars = SharedMemory(VirtualClock()), FakeCluster(), FakeSidecars()
    options = Options(commit_bytes=10_000)
    async with (
        world(cluster, sidecars, options, store=core.view("a")) as a,
        world(cluster, sidecars, options, store=core.view("b")) as b,
    ):
        ids = [(await create(b)).json["id"] for _ in range(6)]
        for one in ids:
            cluster.commits.changed_bytes[one] = 3_000
        answers = await asyncio.gather(
            *((a, b)[n % 2].api("POST", f"/v1/sandboxes/{one}/checkpoint", body={}) for n, one in enumerate(ids))
        )
        assert sorted(one.status for one in answers) == [200, 200, 200, 429, 429, 429]
        assert sum(one["size_bytes"] for one in await listed(a)) == 9_000
