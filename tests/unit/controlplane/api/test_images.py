"""The API of images: what nodes have, what is pulled there, what is made of sandboxes, and whose it is."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest

from controlplane.api.images import _lines
from controlplane.cluster import Death
from controlplane.cluster.protocol import PrefetchProgress
from controlplane.errors import Problem
from controlplane.images import ImageConfig
from controlplane.lifecycle.images.inventory import MOST_UNREAD, ImageProgress
from tests.support.asgi import Answer
from tests.support.fake_cluster import FakeCluster
from tests.support.world import OTHER_KEY, OWNER, SPEC, World, world

COMMITS = "localhost/rollbox/commits"


async def commit(plane: World, sandbox_id: str, name: str = "repo", **more: Any) -> Answer:
    headers = {"idempotency-key": more.pop("idem")} if "idem" in more else {}
    body = {"name": name, **more}
    return await plane.api("POST", f"/v1/sandboxes/{sandbox_id}/commit", body=body, headers=headers)


async def create(plane: World, image: str, key: str | None = None) -> Answer:
    return await plane.api("POST", "/v1/sandboxes", body={"image": image}, key=key)


@pytest.fixture
async def sandbox_id(plane: World) -> str:
    return (await plane.create(OWNER, SPEC)).sandbox.id


async def test_a_commit_is_an_image_that_its_owner_can_start(plane: World, sandbox_id: str) -> None:
    made = await commit(plane, sandbox_id, "repo:v1")
    assert made.status == 200, made
    digest = plane.cluster.commits.kept.committed[f"{COMMITS}/alice/repo:v1"]
    assert made.json == {
        "image": f"{COMMITS}/alice/repo:v1@{digest}",
        "digest": digest,
        "size_bytes": 1024,
        "skipped": ["/run/socket: a socket"],
    }
    assert (await create(plane, made.json["image"])).status == 201


@pytest.mark.parametrize("name", [f"{COMMITS}/alice/repo:v1", f"{COMMITS}/alice/repo:v1@sha256:{64 * 'a'}"])
async def test_nobody_else_starts_it_pulls_it_or_asks_about_it(plane: World, name: str) -> None:
    refused = await create(plane, name, OTHER_KEY)
    assert (refused.status, refused.code) == (403, "permission_denied")
    refused = await plane.api("POST", "/v1/images/prefetch", body={"images": ["a", name]}, key=OTHER_KEY)
    assert (refused.status, refused.code) == (403, "permission_denied")
    told = await plane.api("POST", "/v1/preflight", body={"sandbox": {"image": name}, "count": 1}, key=OTHER_KEY)
    assert [one["code"] for one in told.json["blockers"]] == ["permission_denied"]
    group = await plane.api("PUT", "/v1/groups/g", body={"sandbox": {"image": name}, "count": 1}, key=OTHER_KEY)
    assert group.code == "permission_denied"
    assert (plane.cluster.started, plane.cluster.node_images.prefetched) == ([], [])


async def test_nobody_else_overwrites_it(plane: World, sandbox_id: str) -> None:
    await commit(plane, sandbox_id, "repo")
    mine = dict(plane.cluster.commits.kept.committed)
    theirs = (await plane.create("bob", SPEC)).sandbox.id
    for name in ("repo", f"{COMMITS}/alice/repo"):
        made = await plane.api("POST", f"/v1/sandboxes/{theirs}/commit", body={"name": name}, key=OTHER_KEY)
        assert made.json["image"].startswith(f"{COMMITS}/bob/")
    assert mine.items() <= plane.cluster.commits.kept.committed.items()
    refused = await plane.api("POST", f"/v1/sandboxes/{sandbox_id}/commit", body={"name": "a"}, key=OTHER_KEY)
    assert refused.code == "sandbox_not_found"


async def test_the_list_shows_nothing_of_what_others_have_committed(plane: World, sandbox_id: str) -> None:
    plane.cluster.digests["python:3.12"] = f"sha256:{64 * 'b'}"
    await commit(plane, sandbox_id, "repo")
    names = {key: await listed(plane, key) for key in (None, OTHER_KEY)}
    assert names == {None: ["python:3.12", f"{COMMITS}/alice/repo:latest"][::-1], OTHER_KEY: ["python:3.12"]}
    theirs = (await plane.create("bob", SPEC)).sandbox.id
    await plane.api("POST", f"/v1/sandboxes/{theirs}/commit", body={"name": "own"}, key=OTHER_KEY)
    # Alice is the operator.
    assert f"{COMMITS}/bob/own:latest" in await listed(plane, None)


async def listed(plane: World, key: str | None) -> list[str]:
    answer = await plane.api("GET", "/v1/images", key=key)
    return [name for one in answer.json["images"] for name in one["names"]]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "name"),
        ({"name": ""}, "name"),
        ({"name": "UPPER"}, "name"),
        ({"name": "../bob/repo"}, "name"),
        ({"name": "a@sha256:" + 64 * "0"}, "name"),
        ({"name": 300 * "a"}, "name"),
        ({"name": "a", "max_bytes": 0}, "max_bytes"),
        ({"name": "a", "max_bytes": 1 << 60}, "max_bytes"),
        ({"name": "a", "timeout_ms": 0}, "timeout_ms"),
        ({"name": "a", "pause": False}, "pause"),
    ],
)
async def test_a_bad_commit_is_refused_with_the_field(
    plane: World, sandbox_id: str, body: dict[str, Any], field: str
) -> None:
    refused = await plane.api("POST", f"/v1/sandboxes/{sandbox_id}/commit", body=body)
    assert (refused.status, refused.code, refused.json["details"]["field"]) == (400, "invalid_argument", field)


async def test_only_a_sandbox_that_runs_is_committed(plane: World, sandbox_id: str) -> None:
    assert (await commit(plane, "sb-never")).code == "sandbox_not_found"
    await plane.service.delete(OWNER, sandbox_id)
    ended = await commit(plane, sandbox_id)
    assert (ended.status, ended.code) == (410, "deleted")
    assert plane.cluster.commits.kept.committed == {}


async def test_one_that_starts_is_not_committed_yet(plane: World) -> None:
    sandbox = await plane.request(OWNER, SPEC)
    refused = await commit(plane, sandbox.id)
    assert (refused.status, refused.code) == (409, "conflict")


async def test_a_sandbox_that_ends_meanwhile_says_why_it_has_ended(plane: World, sandbox_id: str) -> None:
    committing = asyncio.create_task(commit(plane, sandbox_id))
    await asyncio.sleep(0.1)
    plane.cluster.kill(Death(sandbox_id, "oom_killed", "the kernel killed it"))
    await asyncio.sleep(0.1)
    plane.cluster.commits.next_error = Problem("sandbox_lost", "its files are gone")
    assert (await committing).code == "oom_killed"


async def test_too_much_is_refused(plane: World, sandbox_id: str) -> None:
    plane.cluster.commits.changed_bytes[sandbox_id] = 5000
    refused = await commit(plane, sandbox_id, max_bytes=4999)
    assert (refused.status, refused.code) == (413, "payload_too_large")
    assert (await commit(plane, sandbox_id, max_bytes=5000)).status == 200


async def test_the_callers_deadline_holds(plane: World, sandbox_id: str) -> None:
    plane.cluster.commits.commit_s = 50
    late = await commit(plane, sandbox_id, timeout_ms=2000)
    assert (late.status, late.code, plane.cluster.commits.kept.committed) == (504, "upstream_timeout", {})


async def test_one_sandbox_is_committed_once_at_a_time(plane: World, sandbox_id: str) -> None:
    both = await asyncio.gather(commit(plane, sandbox_id, "a"), commit(plane, sandbox_id, "b"))
    assert sorted(one.status for one in both) == [200, 409]


async def test_a_repetition_joins_the_commit_and_later_gets_its_answer(plane: World, sandbox_id: str) -> None:
    both = await asyncio.gather(commit(plane, sandbox_id, idem="k"), commit(plane, sandbox_id, idem="k"))
    assert both[0].json == both[1].json == (await commit(plane, sandbox_id, idem="k", timeout_ms=5000)).json
    other = await commit(plane, sandbox_id, "other", idem="k")
    assert (other.status, other.code) == (409, "conflict")
    await asyncio.sleep(601)
    assert (await commit(plane, sandbox_id, idem="k")).json["digest"] != both[0].json["digest"]


async def test_what_has_failed_is_tried_again_by_its_repetition(plane: World, sandbox_id: str) -> None:
    plane.cluster.commits.next_error = Problem("capacity_unavailable", "no room")
    assert (await commit(plane, sandbox_id, idem="k")).code == "capacity_unavailable"
    assert (await commit(plane, sandbox_id, idem="k")).status == 200


@pytest.mark.parametrize("key", [None, "k"])
async def test_a_failure_that_nobody_foresaw_fails_one_commit_alone(
    plane: World, sandbox_id: str, key: str | None
) -> None:
    plane.cluster.commits.next_error = OSError("something")
    more = {} if key is None else {"idem": key}
    failed = await commit(plane, sandbox_id, **more)
    assert (failed.status, failed.code) == (500, "internal")
    assert (await commit(plane, sandbox_id, **more)).status == 200


@pytest.mark.parametrize("key", [None, "k"])
async def test_a_caller_who_hangs_up_ends_a_commit_without_a_key(
    plane: World, sandbox_id: str, key: str | None
) -> None:
    gone = asyncio.Event()
    headers = {} if key is None else {"idempotency-key": key}
    path = f"/v1/sandboxes/{sandbox_id}/commit"
    calling = asyncio.create_task(plane.api("POST", path, body={"name": "a"}, headers=headers, hang_up=gone))
    await asyncio.sleep(0.1)
    gone.set()
    await asyncio.wait([calling])
    await asyncio.sleep(1)
    assert bool(plane.cluster.commits.kept.committed) == (key is not None)


async def prefetch(plane: World, *images: str, key: str | None = None) -> list[dict[str, Any]]:
    answer = await plane.api("POST", "/v1/images/prefetch", body={"images": images}, key=key)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/x-ndjson"), answer
    return [json.loads(one) for one in answer.body.splitlines()]


async def test_a_prefetch_tells_each_node_and_ends_with_a_sum(plane: World) -> None:
    lines = await prefetch(plane, "a:1", "b:1", "a:1")
    assert sorted(plane.cluster.node_images.prefetched) == ["a:1", "b:1"]
    assert lines[-1] == {"summary": {"here": 4, "failed": 0}}
    of_a = [one for one in lines[:-1] if one["image"] == "a:1"]
    assert of_a[0] == {"image": "a:1", "node": "n1", "state": "pulling", "done_bytes": 512, "total_bytes": 1024}
    assert [(one["node"], one["state"]) for one in of_a[1:]] == [("n1", "here"), ("n2", "here")]


async def test_an_image_that_fails_stops_no_other_one(plane: World) -> None:
    plane.cluster.missing_images.add("gone:1")
    plane.cluster.node_images.unpulled["a:1"] = Problem("image_pull_failed", "a:1: no room", image="a:1")
    lines = await prefetch(plane, "gone:1", "a:1", "b:1")
    failed = {(one["image"], one.get("node", "")): one["problem"] for one in lines if one.get("state") == "failed"}
    assert {at: problem["code"] for at, problem in failed.items()} == {
        ("gone:1", ""): "image_not_found",
        ("a:1", "n2"): "image_pull_failed",
    }
    assert lines[-1]["summary"] == {"here": 3, "failed": 2}
    value = plane.deps.metrics.registry.get_sample_value
    assert value("rollbox_image_prefetches_total", {"outcome": "failed"}) == 2


@pytest.mark.parametrize("images", [[], ["a b"], [1], "a", ["a"] * 1025, ["a", ""]])
async def test_a_bad_prefetch_is_refused(plane: World, images: Any) -> None:
    refused = await plane.api("POST", "/v1/images/prefetch", body={"images": images})
    assert (refused.status, refused.code) == (400, "invalid_argument")


async def test_a_caller_who_leaves_ends_the_wait(plane: World) -> None:
    plane.cluster.start_s = 1000
    gone = asyncio.Event()
    calling = asyncio.create_task(
        plane.api("POST", "/v1/images/prefetch", body={"images": ["a:1"]}, hang_up=gone), name="caller"
    )
    await asyncio.sleep(0.1)
    gone.set()
    await asyncio.wait([calling], timeout=5)
    await asyncio.sleep(0)
    assert calling.done()
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("prefetch")]


async def test_a_prefetch_ends_with_its_reader_however_much_is_unread(plane: World) -> None:
    told = plane.service.inventory.prefetch(OWNER, [f"a:{number}" for number in range(MOST_UNREAD)])
    await anext(told)
    await asyncio.sleep(1)  # what may be unread is there, and all others wait
    await asyncio.wait_for(told.aclose(), 5)
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("prefetch")]


async def test_a_prefetch_that_nobody_foresaw_to_fail_ends(plane: World) -> None:
    async def broken(owner: str, name: str) -> Any:
        raise RuntimeError("a bug")

    plane.service.inventory._images.named = broken  # type: ignore[method-assign]
    lines = await prefetch(plane, "a:1")
    assert [one["problem"]["code"] for one in lines[:-1]] == ["internal"]


async def test_an_image_whose_name_is_never_known_fails(plane: World) -> None:
    async def hanging(owner: str, name: str) -> Any:
        await asyncio.sleep(1_000_000)

    plane.service.inventory._images.named = hanging  # type: ignore[method-assign]
    lines = await prefetch(plane, "a:1")
    assert lines[-2]["problem"]["code"] == "image_pull_failed"


async def test_where_nothing_is_pulled_ahead_nothing_is_copied_either() -> None:
    cluster = FakeCluster()
    vars(cluster)["node_images"] = None
    async with world(cluster) as plain:
        asked: list[str] = []
        plain.service.inventory._images.named = asked.append  # type: ignore[assignment, method-assign]
        refused = await plain.api("POST", "/v1/images/prefetch", body={"images": ["a:1", "b:1"]})
        assert (refused.status, refused.code, asked) == (422, "unsupported", [])


@pytest.fixture
async def without() -> AsyncIterator[World]:
    """A control plane whose cluster commits nothing."""
    cluster = FakeCluster()
    vars(cluster)["commits"] = None
    async with world(cluster) as one:
        yield one


async def test_a_cluster_that_commits_nothing_says_what_would(without: World) -> None:
    sandbox = (await without.create(OWNER, SPEC)).sandbox
    refused = await commit(without, sandbox.id, "../any")
    assert (refused.status, refused.code) == (422, "unsupported")
    assert refused.json["details"]["value"] == "nodeAgent.enabled and registry.enabled"
    assert (await create(without, f"{COMMITS}/bob/repo")).status == 201


async def test_a_prefetch_that_fails_as_a_whole_says_why_in_its_last_line() -> None:
    async def told() -> AsyncGenerator[ImageProgress, None]:
        yield ImageProgress("a:1", PrefetchProgress("n1", "here"))
        raise Problem("upstream_timeout", "the API server does not answer")

    lines = [json.loads(one) async for one in _lines(None, told())]
    assert (lines[0]["image"], lines[0]["state"]) == ("a:1", "here")
    assert (lines[1]["problem"]["code"], "summary" in lines[1], len(lines)) == ("upstream_timeout", False, 2)


async def test_an_image_says_what_its_processes_are_to_those_who_may_have_it(plane: World) -> None:
    committed = f"{COMMITS}/alice/repo:v1"
    said = ImageConfig("sha256:1", "amd64", entrypoint=("sh",), cmd=("-c", "x"), env=("A=1",), labels={"l": "1"})
    plane.cluster.configs.update({"team/app:1": said, committed: said})
    told = await plane.api("GET", "/v1/images/config/team/app:1")
    assert told.status == 200, told
    assert (told.json["image"], told.json["entrypoint"], told.json["cmd"]) == ("team/app:1", ["sh"], ["-c", "x"])
    assert (told.json["env"], told.json["labels"], told.json["user"]) == (["A=1"], {"l": "1"}, "")
    assert (await plane.api("GET", f"/v1/images/config/{committed}")).status == 200
    assert (await plane.api("GET", f"/v1/images/config/{committed}", key=OTHER_KEY)).code == "permission_denied"
    assert (await plane.api("GET", "/v1/images/config/Not/A:Name")).code == "invalid_argument"


async def test_of_an_image_that_is_not_here_nothing_is_known(plane: World) -> None:
    refused = await plane.api("GET", "/v1/images/config/none:1")
    assert (refused.status, refused.code) == (422, "image_not_found")
