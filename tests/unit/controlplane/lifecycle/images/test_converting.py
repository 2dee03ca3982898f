"""Conversions that an owner asks for: what is told, what is refused, and what a caller who leaves does not end."""

import asyncio
import json
from typing import Any

import pytest

from controlplane.errors import Problem
from controlplane.images import Found, ImageOptions
from controlplane.lifecycle import Options
from tests.support.asgi import Answer
from tests.support.fake_cluster import FakeCluster, FakeSidecars
from tests.support.fake_mirror import FakeMirror
from tests.support.fake_node_images import FakeLazyNodes
from tests.support.fake_registry import FakeRegistry, digest
from tests.support.world import OWNER, World, world
from tests.unit.controlplane.lifecycle.images.test_lazily import CONVERTED, KEY, LAZY, PRIVATE, created, plane

COMMITS = f"{PRIVATE.commits}/{OWNER}"


def with_commit(*names: str) -> FakeMirror:
    """A mirror whose registry has images that the owner has made."""
    mirror = FakeMirror()
    for name in names:
        mirror.there[f"commits/{OWNER}/{name}", digest(name)] = Found(digest(name), "")
    return mirror


async def converted(plane: World, image: str = "python:3") -> list[dict[str, Any]]:
    """The lines of the answer."""
    answer = await asked(plane, image)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/x-ndjson"), answer
    return [json.loads(one) for one in answer.body.splitlines()]


async def asked(plane: World, image: str) -> Answer:
    """The answer to a call that has an image converted."""
    return await plane.api("POST", "/v1/images/convert", body={"image": image})


async def test_a_conversion_is_told_and_its_result_started_from() -> None:
    mirror = FakeMirror(takes_s=10, converts_s=20)
    async with plane(mirror) as running:
        lines = await converted(running)
        assert lines[0] == {"state": "copying"}
        assert {"state": "converting", "text": "converting, 1 of 4 layers, 0 MB worked through"} in lines
        assert lines[-1] == {"state": "offered", "digest": digest("a"), "ran": CONVERTED}
        assert (await created(running))[1] == LAZY
        # What is offered is told at once.
        assert [one["state"] for one in await converted(running)] == ["copying", "offered"]
        assert len(mirror.conversions) == 1


async def test_why_it_is_not_offered_is_the_last_line() -> None:
    refusal = Problem("unsupported", "the image is not converted: it has 128 layers", option="pull")
    async with plane(FakeMirror(refusal=refusal)) as running:
        last = (await converted(running))[-1]
        assert (last["state"], last["problem"]["code"]) == ("failed", "unsupported")
        assert "128 layers" in last["problem"]["detail"]
    async with plane(FakeMirror(), sidecars=FakeSidecars(fails="it ended with 1")) as running:
        assert "it ended with 1" in (await converted(running))[-1]["problem"]["detail"]


async def test_what_nobody_would_use_is_refused_and_says_what_is_missing() -> None:
    async with plane(FakeMirror(), lazy=False) as running:
        refused = await asked(running, "python:3")
        assert (refused.status, refused.code) == (422, "unsupported")
        assert "lazyPulling.enabled" in str(refused.json)
    options = Options(images=ImageOptions("auto"))
    async with world(FakeCluster(lazy=FakeLazyNodes("x/")), options=options, registry=FakeRegistry()) as running:
        refused = await asked(running, "python:3")
        assert refused.code == "unsupported"
        assert "registry.enabled" in str(refused.json)


async def test_a_commit_is_converted_as_it_is_and_a_checkpoint_is_not() -> None:
    mirror = with_commit("app", "checkpoints")
    async with plane(mirror) as running:
        last = (await converted(running, f"{COMMITS}/app@{digest('app')}"))[-1]
        assert (last["state"], last["digest"]) == ("offered", digest("app"))
        assert mirror.asked == []  # no copy of it was made
        sandbox, image = await created(running, image=f"{COMMITS}/app@{digest('app')}")
        assert (sandbox.image_digest, sandbox.image_pulled) == (digest("app"), "lazy")
        assert image == f"{PRIVATE.converted}registry.internal__5000/commits/{OWNER}/app@{last['ran']}"
        # A replica that takes a start over knows it by its record.
        images = running.service._core.images
        assert images.copied(await images.pin(sandbox)).name == image
        last = (await converted(running, f"{COMMITS}/checkpoints@{digest('checkpoints')}"))[-1]
        assert last["problem"]["code"] == "unsupported"
        assert "is a checkpoint" in last["problem"]["detail"]


async def test_a_commit_of_another_owner_is_converted_for_nobody_else() -> None:
    cluster_place = f"{PRIVATE.commits}"
    mirror = FakeMirror()
    mirror.there["commits/bob/app", digest("app")] = Found(digest("app"), "")
    async with plane(mirror, commits=cluster_place) as running:
        refused = await asked(running, f"{cluster_place}/bob/app@{digest('app')}")
        assert (refused.status, refused.code) == (403, "permission_denied")
        assert mirror.conversions == []


async def test_what_was_built_is_converted_behind_its_build() -> None:
    mirror = with_commit("builds")
    async with plane(mirror) as running:
        image = f"{COMMITS}/builds:a@{digest('builds')}"
        running.service._core.lazily.made(OWNER, image)
        await asyncio.sleep(60)
        assert (await created(running, image=image))[0].image_pulled == "lazy"
    async with plane(mirror, lazy=False) as running:
        running.service._core.lazily.made(OWNER, image)
        running.service._core.lazily.made(OWNER, "localhost/rollbox/commits/me/builds:a@" + digest("builds"))
        await asyncio.sleep(60)
    assert len(mirror.conversions) == 1


async def test_a_commit_that_does_not_get_ready_lazily_goes_on_as_it_is() -> None:
    mirror = with_commit("app")
    name = f"{COMMITS}/app@{digest('app')}"
    async with plane(mirror) as running:
        await converted(running, name)
        running.cluster.hangs = PRIVATE.converted
        creating = asyncio.create_task(created(running, image=name))
        await asyncio.sleep(2)
        running.cluster.place(next(iter(running.cluster.held)), "n1")
        sandbox, image = await creating
        assert (image, sandbox.image_pulled, sandbox.image_ran) == (name, "full", "")
        assert "from its converted copy it was not ready" in sandbox.image_pulled_why


async def test_a_conversion_outlives_a_caller_that_leaves() -> None:
    mirror = FakeMirror(converts_s=20)
    async with plane(mirror) as running:
        gone = asyncio.Event()
        body = {"image": "python:3"}
        calling = asyncio.create_task(running.api("POST", "/v1/images/convert", body=body, hang_up=gone))
        await asyncio.sleep(5)
        gone.set()
        await asyncio.wait([calling], timeout=5)
        await asyncio.sleep(60)
        assert mirror.lazy[KEY].booted


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"image": ""},
        {"image": 1},
        {"image": "a", "recorded": "pytest"},
        *({"image": "a", "record": one} for one in ("", "\0", 1)),
        {"image": "a", "record": "true", "first": ["/a"]},
        {"image": "a", "record": "true", "record_timeout_ms": 10},
    ],
)
async def test_a_bad_wish_is_refused(body: Any) -> None:
    async with plane(FakeMirror()) as running:
        refused = await running.api("POST", "/v1/images/convert", body=body)
        assert (refused.status, refused.code) == (400, "invalid_argument")
