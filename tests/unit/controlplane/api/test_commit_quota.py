"""What an owner may commit, and how that is removed again."""

import asyncio
from typing import Any

import pytest

from controlplane.lifecycle import Options
from controlplane.model import GROUP
from tests.support.asgi import Answer
from tests.support.world import OTHER_KEY, OWNER, World, world

COMMITS = "localhost/rollbox/commits"
LIMIT = 10_000


async def commit(plane: World, sandbox_id: str, name: str, **more: Any) -> Answer:
    return await plane.api("POST", f"/v1/sandboxes/{sandbox_id}/commit", body={"name": name, **more})


async def sandbox(plane: World, changed_bytes: int = 1024, image: str = "python:3.12") -> str:
    answer = await plane.api("POST", "/v1/sandboxes", body={"image": image})
    sandbox_id: str = answer.json["id"]
    plane.cluster.commits.changed_bytes[sandbox_id] = changed_bytes
    return sandbox_id


async def delete(plane: World, sandbox_id: str) -> None:
    await plane.service.delete(OWNER, sandbox_id, wait_s=5)


async def remove(plane: World, name: str, key: str | None = None) -> Answer:
    return await plane.api("DELETE", f"/v1/images/commits/{name}", key=key)


async def listed(plane: World) -> Any:
    return (await plane.api("GET", "/v1/images/commits")).json


async def test_a_commit_beyond_the_quota_is_refused_with_what_is_used() -> None:
    async with world(options=Options(commit_bytes=LIMIT)) as plane:
        one = await sandbox(plane, 9_000)
        assert (await commit(plane, one, "a")).status == 200
        refused = await commit(plane, await sandbox(plane, 1_001), "b")
        assert (refused.status, refused.code) == (429, "quota_exceeded")
        details = refused.json["details"]
        assert (details["resource"], details["used"], details["limit"]) == ("commit_bytes", "9000", "10000")
        assert "rollbox image remove" in refused.json["detail"]
        assert (await commit(plane, await sandbox(plane, 1_000), "b")).status == 200
        # Nothing is left at all: it is refused before anything is read.
        plane.cluster.commits.commit_s = 1e6
        refused = await commit(plane, one, "c")
        assert refused.code == "quota_exceeded"
        told = await listed(plane)
        assert (told["used_bytes"], told["limit_bytes"], [one["size_bytes"] for one in told["images"]]) == (
            LIMIT,
            LIMIT,
            [9_000, 1_000],
        )


async def test_what_the_caller_allowed_is_said_as_before() -> None:
    async with world(options=Options(commit_bytes=LIMIT)) as plane:
        refused = await commit(plane, await sandbox(plane, 6_000), "a", max_bytes=5_000)
        assert refused.code == "payload_too_large"


async def test_commits_at_once_stay_within_the_quota_together() -> None:
    async with world(options=Options(commit_bytes=LIMIT)) as plane:
        ids = [await sandbox(plane, 3_000) for _ in range(6)]
        answers = await asyncio.gather(*(commit(plane, one, f"i{n}") for n, one in enumerate(ids)))
        assert sorted(one.status for one in answers) == [200, 200, 200, 429, 429, 429]
        assert (await listed(plane))["used_bytes"] == 9_000
        # Those that have room for all that they may write do not wait for one another.
        for image in (await listed(plane))["images"]:
            await remove(plane, image["image"])
    async with world(options=Options(commit_bytes=LIMIT)) as plane:
        ids = [await sandbox(plane, 3_000) for _ in range(3)]
        plane.cluster.commits.commit_s = 5
        began_ms = plane.deps.clock.now_ms()
        answers = await asyncio.gather(*(commit(plane, one, f"i{n}", max_bytes=3_300) for n, one in enumerate(ids)))
        assert [one.status for one in answers] == [200, 200, 200]
        assert plane.deps.clock.now_ms() - began_ms < 10_000


async def test_one_that_is_cancelled_gives_its_share_back() -> None:
    async with world(options=Options(commit_bytes=LIMIT)) as plane:
        plane.cluster.commits.commit_s = 1e6
        late = await commit(plane, await sandbox(plane), "a", timeout_ms=2_000)
        assert late.code == "upstream_timeout"
        plane.cluster.commits.commit_s = 0.1
        assert (await commit(plane, await sandbox(plane, LIMIT), "a")).status == 200


async def test_an_owners_quota_holds_in_place_of_the_installations() -> None:
    async with world(options=Options(commit_bytes=LIMIT)) as plane:
        for limit, status in ((500, 429), (20_000, 200), (None, 429)):
            told = await plane.api("PATCH", f"/v1/quotas/{OWNER}", body={"commit_bytes": limit})
            assert told.json["limits"]["commit_bytes"] == limit
            assert (await commit(plane, await sandbox(plane, 11_000), "a")).status == status


async def test_without_a_limit_nothing_is_counted() -> None:
    async with world() as plane:
        assert (await commit(plane, await sandbox(plane, 1 << 30), "a")).status == 200
        assert (await listed(plane))["limit_bytes"] is None


@pytest.mark.parametrize("form", ["repo:v1", "{place}/repo:v1", "{image}", "repo@{digest}"])
async def test_an_image_goes_by_each_of_its_names(plane: World, form: str) -> None:
    sandbox_id = await sandbox(plane)
    made = (await commit(plane, sandbox_id, "repo:v1")).json
    name = form.format(place=f"{COMMITS}/alice", image=made["image"], digest=made["digest"])
    gone = await remove(plane, name)
    assert gone.json == {"name": name, "removed": True, "digest": made["digest"], "freed_bytes": 1024}
    assert (plane.cluster.commits.kept.committed, plane.cluster.commits.kept.images) == ({}, {})
    again = await remove(plane, name)
    assert (again.status, again.json["removed"]) == (200, False)


async def test_one_that_has_lost_its_name_counts_and_goes_by_its_digest(plane: World) -> None:
    sandbox_id = await sandbox(plane)
    first, second = [(await commit(plane, sandbox_id, "repo")).json for _ in range(2)]
    told = await listed(plane)
    assert [one["tags"] for one in told["images"]] == [[], ["latest"]]
    assert told["used_bytes"] == 2048
    lost = told["images"][0]["image"]
    assert lost == f"{COMMITS}/alice/repo@{first['digest']}"
    assert (await remove(plane, lost)).json["removed"]
    assert list(plane.cluster.commits.kept.images) == [second["digest"]]


async def test_nobody_removes_another_ones(plane: World) -> None:
    made = (await commit(plane, await sandbox(plane), "repo")).json
    refused = await remove(plane, made["image"], OTHER_KEY)
    assert (refused.status, refused.code) == (403, "permission_denied")
    assert not (await remove(plane, "repo", OTHER_KEY)).json["removed"]
    theirs = (await plane.api("GET", "/v1/images/commits", key=OTHER_KEY)).json
    assert (theirs["images"], len(plane.cluster.commits.kept.images)) == ([], 1)


@pytest.mark.parametrize("name", ["UPPER", "repo@sha256:0", "a//b"])
async def test_a_bad_name_is_refused(plane: World, name: str) -> None:
    refused = await remove(plane, name)
    assert (refused.status, refused.code, refused.json["details"]["field"]) == (400, "invalid_argument", "name")


@pytest.mark.parametrize("form", ["repo:v1", "repo:v1@{digest}"])
async def test_a_sandbox_a_group_and_a_pool_keep_their_image(plane: World, form: str) -> None:
    made = (await commit(plane, await sandbox(plane), "repo:v1")).json
    name = f"{COMMITS}/alice/{form.format(digest=made['digest'])}"
    user = await sandbox(plane, image=name)
    refused = await remove(plane, "repo:v1")
    assert (refused.status, refused.code) == (409, "conflict")
    assert f"sandbox {user}" in refused.json["detail"]
    await delete(plane, user)
    await plane.api("PUT", "/v1/groups/g", body={"sandbox": {"image": name}, "count": 5})
    refused = await remove(plane, "repo:v1")
    assert "2 more sandboxes, group g" in refused.json["detail"]
    await plane.service.delete_all(OWNER, {GROUP: "g"}, wait_s=5)
    pool = {"template": {"image": name}, "min_warm": 0, "max_warm": 1}
    assert (await plane.api("PUT", "/v1/pools/swe", body=pool)).status in (200, 201)
    refused = await remove(plane, "repo:v1")
    assert "pool swe" in refused.json["detail"]
    await plane.api("DELETE", "/v1/pools/swe")
    await asyncio.sleep(10)
    answer = await remove(plane, "repo:v1")
    assert answer.status == 200, answer.json["detail"]


async def test_one_that_others_are_built_on_goes_after_them(plane: World) -> None:
    base = (await commit(plane, await sandbox(plane), "base")).json
    above = await sandbox(plane, image=base["image"])
    await commit(plane, above, "above")
    await delete(plane, above)
    refused = await remove(plane, "base")
    assert (refused.status, refused.code) == (409, "conflict")
    assert f"{COMMITS}/alice/above:latest" in refused.json["detail"]
    for name in ("above", "base"):
        assert (await remove(plane, name)).json["removed"]


async def test_what_the_cluster_sees_in_use_stays(plane: World) -> None:
    made = (await commit(plane, await sandbox(plane), "repo")).json
    plane.cluster.commits.kept.unremovable.add(made["digest"])
    assert (await remove(plane, "repo")).code == "conflict"
    assert len(plane.cluster.commits.kept.images) == 1
