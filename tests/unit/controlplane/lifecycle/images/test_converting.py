"""Conversions that an owner asks for: what is told, what is refused, and what a caller who leaves does not end."""

import asyncio
import json
from typing import Any

import pytest

from controlplane.errors import Problem
from controlplane.images import Converted, ImageOptions, PrivateRegistry
from controlplane.lifecycle import Options
from tests.support.asgi import Answer
from tests.support.fake_cluster import FakeCluster, FakeSidecars
from tests.support.fake_mirror import FakeMirror
from tests.support.fake_node_images import FakeLazyNodes
from tests.support.fake_registry import FakeRegistry, digest
from tests.support.world import World, world
from tests.unit.controlplane.lifecycle.images.test_lazily import CONVERTED, KEY, LAZY, created, plane


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


async def test_a_commit_is_not_converted() -> None:
    private = PrivateRegistry("registry.internal:5000")
    mirror = FakeMirror()
    mirror.there["commits/alice/app", digest("app")] = Converted(digest("app"))  # type: ignore[assignment]
    async with plane(mirror) as running:
        last = (await converted(running, f"{private.commits}/alice/app@{digest('app')}"))[-1]
        assert last["problem"]["code"] == "unsupported"


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
