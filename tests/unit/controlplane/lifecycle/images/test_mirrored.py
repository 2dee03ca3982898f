"""Starts from a private registry: copied once, before their turn, told in the record, and no longer than they may."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from controlplane.errors import Problem
from controlplane.images import Found, ImageOptions, PrivateRegistry
from controlplane.lifecycle import Options
from controlplane.lifecycle.images.copies import THERE_MS
from controlplane.lifecycle.images.resolver import TAG_MS
from controlplane.model import GROUP, Sandbox, SandboxSpec, State
from tests.support.fake_mirror import FakeKeyrings, FakeMirror
from tests.support.fake_registry import FakeRegistry, digest
from tests.support.world import OWNER, World, world

SPEC = SandboxSpec(image="python:3")
COPY = "registry.internal:5000/mirror/docker.io/library/python"


@asynccontextmanager
async def plane(
    mirror: FakeMirror, registry: FakeRegistry | None = None, starts: int = 64, keyrings: FakeKeyrings | None = None
) -> AsyncIterator[World]:
    options = Options(
        starts_in_flight=starts, images=ImageOptions("auto", private=PrivateRegistry("registry.internal:5000"))
    )
    keyrings = keyrings or FakeKeyrings()
    async with world(options=options, registry=registry or FakeRegistry(), mirror=mirror, keyrings=keyrings) as running:
        yield running


async def created(plane: World, spec: SandboxSpec = SPEC) -> tuple[Sandbox, str]:
    """A sandbox, and the image that the cluster was given."""
    sandbox = (await plane.create(OWNER, spec)).sandbox
    return sandbox, plane.cluster.held[sandbox.id].spec.image


def counted(plane: World, outcome: str) -> float:
    return plane.deps.metrics.registry.get_sample_value("rollbox_image_copies_total", {"outcome": outcome}) or 0.0


async def test_a_start_runs_the_copy_and_the_record_has_both() -> None:
    mirror = FakeMirror()
    async with plane(mirror) as running:
        sandbox, image = await created(running)
        ran = digest(f"ran {digest('a')}")
        assert image == f"{COPY}@{ran}"
        shown = await running.api("GET", f"/v1/sandboxes/{sandbox.id}")
        told = [shown.json[name] for name in ("image", "image_digest", "image_ran", "image_stale")]
        assert told == ["python:3", digest("a"), ran, False]
        assert mirror.asked == [(f"docker.io/library/python:3@{digest('a')}", None)]
        # What was there a moment ago is not asked for again.
        assert (await created(running))[1] == image
        assert (len(mirror.asked), counted(running, "copied")) == (1, 1)
        await asyncio.sleep(TAG_MS / 1000)
        assert (await created(running))[1] == image
        assert (len(mirror.asked), counted(running, "there")) == (2, 1)


async def test_one_copy_serves_all_starts_and_takes_no_slot() -> None:
    mirror = FakeMirror(takes_s=20)
    async with plane(mirror, starts=1) as running:
        waiting = [asyncio.create_task(created(running)) for _ in range(8)]
        await asyncio.sleep(5)
        # With its only slot the installation starts what needs no copy.
        mirror.there["mirror/docker.io/library/debian", digest("a")] = Found(digest("other"), digest("a"))
        other = await asyncio.wait_for(created(running, SandboxSpec(image="debian:12")), 5)
        assert other[0].state is State.RUNNING
        assert len({(await one)[1] for one in waiting}) == 1
        assert len(mirror.asked) == 2


async def test_a_wait_for_a_copy_is_told() -> None:
    async with plane(FakeMirror(takes_s=20)) as running:
        creating = asyncio.create_task(created(running))
        await asyncio.sleep(5)
        [listed] = (await running.api("GET", "/v1/sandboxes")).json["sandboxes"]
        timeline = (await running.api("GET", f"/v1/sandboxes/{listed['id']}/timeline")).json
        assert timeline["summary"] == "It is queued: its image is copied into the private registry."
        sandbox, _ = await creating
        assert sandbox.timings_ms["copy"] == pytest.approx(20_000, abs=100)
        assert sandbox.timings_ms["queue"] < 1_000
        after = (await running.api("GET", f"/v1/sandboxes/{sandbox.id}/timeline")).json
        assert [one["word"] for one in after["moments"]][:4] == ["request", "queue", "copy", "start"]


async def test_a_copy_that_takes_too_long_is_what_a_start_fails_with_and_the_others_go_on() -> None:
    mirror = FakeMirror(takes_s=50)
    async with plane(mirror) as running:
        patient = asyncio.create_task(created(running))
        with pytest.raises(Problem, match="was not copied into the registry in time: copying, 2 of 4 layers") as caught:
            await created(running, SPEC.model_copy(update={"start_timeout_ms": 30_000}))
        assert (caught.value.code, caught.value.details["phase"]) == ("start_timeout", "copy")
        await patient
        assert (len(mirror.asked), mirror.broken_off) == (1, 0)


async def test_a_copy_that_nobody_waits_for_ends() -> None:
    mirror = FakeMirror(takes_s=50)
    async with plane(mirror) as running:
        with pytest.raises(Problem):
            await created(running, SPEC.model_copy(update={"start_timeout_ms": 10_000}))
        await asyncio.sleep(1)
        assert mirror.broken_off == 1


async def test_a_mirror_that_is_away_is_waited_for() -> None:
    mirror = FakeMirror(away=True)
    async with plane(mirror) as running:
        creating = asyncio.create_task(created(running))
        await asyncio.sleep(10)
        mirror.away = False
        assert (await creating)[0].state is State.RUNNING
        assert counted(running, "away") == 1
        mirror.away = True
        with pytest.raises(Problem, match="not copied in time: the mirror does not answer: it is away") as caught:
            await created(running, SandboxSpec(image="debian:12", start_timeout_ms=10_000))
        assert caught.value.code == "image_pull_failed"


async def test_a_failure_that_nobody_foresaw_ends_one_start_alone() -> None:
    mirror = FakeMirror(failure=RuntimeError("a bug"))
    async with plane(mirror) as running:
        with pytest.raises(Problem, match="failed in the control plane") as caught:
            await created(running)
        assert caught.value.code == "internal"
        mirror.failure = None
        assert (await created(running))[0].state is State.RUNNING


async def test_what_the_mirror_refuses_ends_the_start_with_its_code() -> None:
    mirror = FakeMirror(failure=Problem("image_not_found", "registry docker.io: it does not have the image"))
    async with plane(mirror) as running:
        for code, outcome in (("image_not_found", "refused"), ("image_pull_failed", "failed")):
            mirror.failure = Problem(code, "why it failed")  # type: ignore[arg-type]
            with pytest.raises(Problem, match="why it failed") as caught:
                await created(running)
            assert caught.value.code == code
            assert counted(running, outcome) == 1


async def test_what_was_copied_starts_while_its_registry_is_away() -> None:
    mirror, registry = FakeMirror(), FakeRegistry()
    async with plane(mirror, registry) as running:
        _, image = await created(running)
    registry.outcome = "away"
    # Another control plane, which has asked nobody yet.
    async with plane(mirror, registry) as running:
        sandbox, again = await created(running)
        assert again == image
        assert (sandbox.image_digest, sandbox.image_stale) == (digest("a"), True)
        # What was never copied starts as its node understands it.
        assert (await created(running, SandboxSpec(image="debian:12")))[1] == "debian:12"


async def test_nobody_names_a_copy() -> None:
    async with plane(FakeMirror()) as running:
        _, image = await created(running)
        for name in (image, f"{COPY}:3", "registry.internal:5000/anything"):
            with pytest.raises(Problem) as caught:
                await created(running, SandboxSpec(image=name))
            assert caught.value.code == "image_not_found"
        assert len(running.cluster.held) == 1


async def test_what_was_made_of_a_sandbox_is_not_copied() -> None:
    mirror = FakeMirror()
    mirror.there["commits/alice/app", "1"] = Found(digest("app"), "")
    async with plane(mirror) as running:
        name = "registry.internal:5000/commits/alice/app:1"
        sandbox, image = await created(running, SandboxSpec(image=name))
        assert (sandbox.image_digest, image) == (digest("app"), f"{name}@{digest('app')}")
        with pytest.raises(Problem) as caught:
            await created(running, SandboxSpec(image="registry.internal:5000/commits/alice/none:1"))
        assert caught.value.code == "image_not_found"
        assert mirror.asked == []


async def test_what_a_user_says_of_a_tag_is_no_ones_image_when_the_registry_is_away() -> None:
    mirror, registry = FakeMirror(), FakeRegistry()
    async with plane(mirror, registry) as running:
        await created(running)
        named = f"python:3@{digest('evil')}"
        assert (await created(running, SandboxSpec(image=named)))[0].image_digest == digest("evil")
        registry.outcome = "away"
        await asyncio.sleep(TAG_MS / 1000)
        stale = (await created(running))[0]
        assert (stale.image_stale, stale.image_digest) == (True, digest("a"))


async def test_what_a_group_was_pinned_to_long_ago_is_not_what_the_tag_means_now() -> None:
    mirror, registry = FakeMirror(), FakeRegistry()
    grouped = SPEC.model_copy(update={"labels": {GROUP: "g"}})
    async with plane(mirror, registry) as running:
        await created(running, grouped)
        registry.content = "b"
        await asyncio.sleep(300)
        assert (await created(running))[0].image_digest == digest("b")
        await asyncio.sleep(THERE_MS / 1000)
        assert (await created(running, grouped))[0].image_digest == digest("a")
        registry.outcome = "away"
        await asyncio.sleep(300)
        stale = (await created(running))[0]
        assert (stale.image_stale, stale.image_digest) == (True, digest("b"))


async def test_a_copy_that_is_there_without_its_tag_is_told_it_by_the_next_start() -> None:
    mirror = FakeMirror()
    async with plane(mirror) as running:
        await created(running, SandboxSpec(image=f"python@{digest('a')}"))
        await created(running)
        assert mirror.there["mirror/docker.io/library/python", "3"].named == digest("a")
