"""Builds of owners: what is there is not built, others wait, one that says nothing or too much ends in its time."""

from __future__ import annotations

import asyncio
import io
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, BinaryIO, cast

import pytest

from controlplane.cluster import BuildNetwork, BuildPlan, BuildWish, Built, Commits, PinnedBuild
from controlplane.errors import Problem
from controlplane.lifecycle.housekeeping.committed import CommittedImages
from controlplane.lifecycle.images import Ownership, Pin
from controlplane.lifecycle.service import builds as module
from controlplane.lifecycle.service.builds import BuildLimits, BuildProgress, ImageBuilds
from tests.support.fake_commits import FakeCommits

WISH = BuildWish("FROM a", {}, "", "sha256:0")
LIMITS = BuildLimits(60_000, 100)


class Cluster:
    """Builds as it is told; what was built is there."""

    def __init__(self, script: Callable[[], AsyncGenerator[str | Built, None]]) -> None:
        self.place = "reg.example/commits"
        self.kept = self
        self.script = script
        self.there: dict[str, str] = {}
        self.networks: list[BuildNetwork | None] = []
        self.reads_copies = False
        self.ran = Counter[str]()

    def plan(self, owner: str, wish: BuildWish) -> BuildPlan:
        return BuildPlan([wish.dockerfile.removeprefix("FROM ")] if wish.dockerfile != "FROM scratch" else [])

    async def pin(self, plan: BuildPlan, names: Mapping[str, str]) -> PinnedBuild:
        return PinnedBuild("-".join(names.values()) or "none")

    async def digest(self, name: str) -> str:
        return self.there.get(name, "")

    async def run(
        self, build: PinnedBuild, target: str, context: BinaryIO, secrets: Mapping[str, bytes], **more: Any
    ) -> AsyncGenerator[str | Built, None]:
        self.networks.append(more["network"])
        self.ran["begun"] += 1
        try:
            async with aclosing(self.script()) as told:
                async for one in told:
                    yield one
                    if isinstance(one, Built):
                        self.there[target] = one.digest
        finally:
            self.ran["ended"] += 1


class Committed:
    @asynccontextmanager
    async def room(self, owner: str, max_bytes: int) -> AsyncIterator[int]:
        yield max_bytes


class Networks:
    @asynccontextmanager
    async def of(self, owner: str, image: str, egress: object, within_ms: int) -> AsyncIterator[BuildNetwork]:
        yield BuildNetwork(f"sandbox of {image} with {egress}", "", "", "")


class Names:
    def pulled(self, name: str) -> str:
        return name

    async def named(self, owner: str, name: str) -> Pin:
        if name.startswith("forbidden"):
            raise Problem("image_not_found", name)
        return Pin(f"copy-of-{name}-for-{owner}", "sha256:0")


def service(cluster: Cluster) -> ImageBuilds:
    committed = cast("CommittedImages", Committed())
    ownership = Ownership(cluster.place, Names())
    kept = cast("Commits", cluster)
    return ImageBuilds(
        cast("Any", cluster),
        kept,
        committed,
        ownership,
        Names(),
        networks=cast("Any", Networks()),
        made=lambda *_: None,
    )


async def quick() -> AsyncGenerator[str | Built, None]:
    yield "STEP 1\n"
    yield Built("sha256:1", 7)


async def silent() -> AsyncGenerator[str | Built, None]:
    yield "STEP 1\n"
    await asyncio.Event().wait()


async def loud() -> AsyncGenerator[str | Built, None]:
    while True:
        await asyncio.sleep(0.001)
        yield "again\n"


async def built(made: ImageBuilds, owner: str = "me", wish: BuildWish = WISH, **more: Any) -> list[BuildProgress]:
    context = more.pop("context", io.BytesIO(b"x"))
    limits = more.pop("limits", LIMITS)
    return [one async for one in made.build(owner, wish, context, {}, limits)]


async def test_what_is_there_is_not_built_and_its_context_is_not_wanted() -> None:
    cluster = Cluster(quick)
    made = service(cluster)
    assert [one.state for one in await built(made, context=None)][-1] == "context_wanted"
    first = (await built(made))[-1]
    assert (first.image, first.size_bytes, first.cached) == ("reg.example/commits/me/builds:a@sha256:1", 7, False)
    again = (await built(made, context=None))[-1]
    assert (again.image, again.cached) == (first.image, True)
    # Another owner has one of its own.
    assert (await built(made, "you"))[-1].image == "reg.example/commits/you/builds:a@sha256:1"
    assert cluster.ran == {"begun": 2, "ended": 2}


async def test_the_same_at_once_is_built_once() -> None:
    cluster = Cluster(quick)
    made = service(cluster)
    ends = await asyncio.gather(*(built(made) for _ in range(8)))
    assert sorted(one[-1].cached for one in ends) == [False, *[True] * 7]
    assert cluster.ran["begun"] == 1


@pytest.mark.parametrize("script", [silent, loud])
async def test_a_build_ends_in_its_time(
    script: Callable[[], AsyncGenerator[str | Built, None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "QUIET_S", 0.01)
    cluster = Cluster(script)
    with pytest.raises(Problem) as late:
        await built(service(cluster), limits=BuildLimits(50, 100))
    assert (late.value.code, late.value.details["reason"]) == ("build_failed", "build_too_slow")
    assert cluster.ran == {"begun": 1, "ended": 1}


async def test_one_that_is_left_ends_and_gives_its_turn_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUIET_S", 0.01)
    cluster = Cluster(silent)
    made = service(cluster)
    for _ in range(2 * module.MOST_AT_ONCE):
        async with aclosing(made.build("me", WISH, io.BytesIO(b"x"), {}, LIMITS)) as told:
            async for one in told:
                if one.text:
                    break
    assert cluster.ran["begun"] == cluster.ran["ended"] == 2 * module.MOST_AT_ONCE


async def test_images_of_others_and_a_network_without_an_image_are_refused() -> None:
    cluster = Cluster(quick)
    made = service(cluster)
    for wish, code in (
        (BuildWish("FROM reg.example/commits/you/x:1", {}, "", ""), "permission_denied"),
        (BuildWish("FROM a@b", {}, "", ""), "invalid_argument"),
    ):
        with pytest.raises(Problem) as refused:
            await built(made, wish=wish)
        assert refused.value.code == code
    reaching = BuildLimits(60_000, 100, "packages")
    with pytest.raises(Problem) as refused:
        await built(made, wish=BuildWish("FROM scratch", {}, "", ""), limits=reaching)
    assert refused.value.code == "unsupported"
    await built(made, limits=reaching)
    assert cluster.networks == [BuildNetwork("sandbox of a with packages", "", "", "")]


async def test_where_builds_read_copies_an_owner_gets_those_of_its_own_images_alone() -> None:
    cluster = Cluster(quick)
    cluster.reads_copies = True
    made = service(cluster)
    assert "copy-of-a-for-me" in (await built(made))[-1].image
    with pytest.raises(Problem) as refused:
        await built(made, wish=BuildWish("FROM forbidden", {}, "", ""))
    assert refused.value.code == "image_not_found"
    assert cluster.ran["begun"] == 1


async def test_a_cluster_that_builds_nothing_says_so() -> None:
    made = ImageBuilds(
        None,
        FakeCommits(),
        cast("Any", Committed()),
        Ownership("", Names()),
        Names(),
        networks=cast("Any", Networks()),
        made=lambda *_: None,
    )
    with pytest.raises(Problem, match="builds.enabled") as refused:
        await built(made)
    assert refused.value.code == "unsupported"
