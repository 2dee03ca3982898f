"""Recorded copies of a registry that somebody else looks after: which go, and when they are taken to be used."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from controlplane.errors import Problem
from controlplane.images import Found, ImageOptions, PrivateRegistry, in_tags, whose
from controlplane.lifecycle import Options
from controlplane.lifecycle.housekeeping.recorded_cleanup import WAIT_S
from controlplane.lifecycle.housekeeping.registry_cleanup import LOOK_EVERY_S
from controlplane.lifecycle.images import ExternalCopies
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.model import SandboxSpec
from controlplane.store import MemoryStore
from controlplane.telemetry import Levels
from tests.support.fake_mirror import FakeKeyrings, FakeMirror
from tests.support.fake_recorded import FakeRecorded
from tests.support.fake_registry import FakeRegistry, digest
from tests.support.virtual_time import VirtualClock
from tests.support.world import OWNER, World, world

HOST = "registry.internal:5000"
MINE = in_tags(whose(OWNER))
LAZY = "estargz/docker.io/library/"
A_LOOK_S = WAIT_S + 10
NEXT_S = LOOK_EVERY_S + WAIT_S
# Young ones are old after that, and looked at.
OLD_S = 1_800 + NEXT_S


@asynccontextmanager
async def plane(recorded: FakeRecorded, *, limit: int = 0, mirror: FakeMirror | None = None) -> AsyncIterator[World]:
    images = ImageOptions("auto", private=PrivateRegistry(HOST), recorded_bytes=limit)
    async with world(
        options=Options(starts_in_flight=16, images=images),
        registry=FakeRegistry(),
        mirror=mirror or FakeMirror(),
        keyrings=FakeKeyrings(),
        recorded=recorded,
    ) as running:
        yield running


def left(recorded: FakeRecorded) -> list[str]:
    return sorted(repository.rpartition("/")[2] for repository, _ in recorded.copies)


def removals(plane: World) -> dict[str, float]:
    text = plane.deps.metrics.render(Levels({}, 0, 0, 0))[0].decode()
    lines = [line.rpartition(" ") for line in text.splitlines() if line.startswith("rollbox_image_removals_total")]
    return {name.partition('outcome="')[2].partition('"')[0]: float(value) for name, _, value in lines if float(value)}


async def test_what_later_lists_took_the_place_of_goes_once_nothing_used_it_for_half_an_hour() -> None:
    recorded = FakeRecorded()
    for name in ("superseded", "offered", "runs"):
        recorded.put(f"{LAZY}{name}", digest(name), MINE, offered=name == "offered")
    async with plane(recorded) as running:
        sandbox = (await running.create(OWNER, SandboxSpec(image="runs:1"))).sandbox
        recorded.copies.clear()
        for name in ("superseded", "offered"):
            recorded.put(f"{LAZY}{name}", digest(name), MINE, offered=name == "offered")
        recorded.put(f"{LAZY}runs", sandbox.image_ran, MINE, offered=False)
        await asyncio.sleep(A_LOOK_S)
        # Nobody knows since when they are there.
        assert left(recorded) == ["offered", "runs", "superseded"]
        await asyncio.sleep(OLD_S)
        assert left(recorded) == ["offered", "runs"]
        assert removals(running) == {"removed": 1}
        await running.service.delete(OWNER, sandbox.id, wait_s=5)
        await asyncio.sleep(OLD_S)
        assert left(recorded) == ["offered"]


async def test_of_an_owner_that_has_too_much_the_least_used_go_and_no_more_are_made_until_then() -> None:
    recorded = FakeRecorded()
    for name in "abcdef":
        recorded.put(f"{LAZY}{name}", digest(name), MINE, offered=True, **{name: 20})
    recorded.put(f"{LAZY}other", digest("other"), "b" * 16, offered=True, other=100)
    async with plane(recorded, limit=100) as running:
        await asyncio.sleep(A_LOOK_S)
        external = running.service._core._registry_store
        for name in "bd":
            assert await external.use(f"{LAZY}{name}", digest(name))
        share = running.service._core._conversions
        assert share is not None
        with pytest.raises(Problem, match="120 B of at most 100 B in 6 copies"):
            await share.check_recorded(OWNER)
        await asyncio.sleep(OLD_S)
        assert left(recorded) == ["b", "d", "e", "f", "other"]
        await share.check_recorded(OWNER)


async def test_a_registry_that_removes_nothing_is_told_and_tried_again() -> None:
    recorded = FakeRecorded(refuses=True)
    recorded.put(f"{LAZY}superseded", digest("superseded"), MINE, offered=False)
    async with plane(recorded) as running:
        await asyncio.sleep(A_LOOK_S + OLD_S)
        tried = removals(running)["failed"]
        assert tried >= 1
        await asyncio.sleep(NEXT_S)
        assert removals(running)["failed"] == tried + 1
        recorded.refuses = False
        await asyncio.sleep(NEXT_S)
        assert left(recorded) == []


async def test_plain_copies_cost_nothing_there_and_no_start_waits() -> None:
    recorded, mirror = FakeRecorded(), FakeMirror()
    mirror.there["mirror/docker.io/library/python", digest("a")] = Found(digest("ran"), digest("a"))
    async with plane(recorded, mirror=mirror) as running:
        sandbox = (await running.create(OWNER, SandboxSpec(image="python:3"))).sandbox
        assert sandbox.image_ran == digest("ran")
        assert await running.service._core.store.note(f"copy-use:mirror/docker.io/library/python@{digest('ran')}") == ""


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


class Between(FakeRecorded):
    """Has a use noted while a copy is being removed."""

    external: ExternalCopies
    using: asyncio.Task[bool]
    takes_s = 1.0

    async def remove(self, repository: str, digest: str) -> bool:
        self.using = asyncio.create_task(self.external.use(repository, digest))
        await asyncio.sleep(self.takes_s)
        return await super().remove(repository, digest)


async def test_a_copy_that_is_used_meanwhile_stays_and_one_that_is_gone_is_said_to_be(clock: VirtualClock) -> None:
    recorded = FakeRecorded()
    external = ExternalCopies(recorded, RecoveringStore(MemoryStore(clock)), clock)
    at = f"{LAZY}a", digest("a")
    recorded.put(*at, MINE, offered=False)
    (seen,) = await external.stored()
    await asyncio.sleep(1)
    assert await external.use(*at)
    with pytest.raises(Problem) as caught:
        await external.remove(*at, seen.used_ms)
    assert caught.value.code == "conflict"
    (seen,) = await external.stored()
    assert await external.remove(*at, seen.used_ms)
    assert not await external.use(*at)
    # Made again, it is there.
    recorded.put(*at, MINE, offered=False)
    assert await external.use(*at)
    assert (await external.stored())[0].used_ms == clock.now_ms()


@pytest.mark.parametrize("takes_s", [1.0, 60.0])
async def test_a_use_in_the_middle_of_a_removal_is_told_that_the_copy_is_gone_however_long_it_takes(
    clock: VirtualClock, takes_s: float
) -> None:
    recorded = Between()
    recorded.takes_s = takes_s
    recorded.external = external = ExternalCopies(recorded, RecoveringStore(MemoryStore(clock)), clock)
    at = f"{LAZY}a", digest("a")
    recorded.put(*at, MINE, offered=False)
    (seen,) = await external.stored()
    await external.remove(*at, seen.used_ms)
    assert await recorded.using is False
    assert await external.use(*at) is False


async def test_a_removal_that_does_not_end_is_broken_off_and_a_use_asks_the_registry(clock: VirtualClock) -> None:
    recorded = Between()
    recorded.takes_s = 1e6
    recorded.external = external = ExternalCopies(recorded, RecoveringStore(MemoryStore(clock)), clock)
    at = f"{LAZY}a", digest("a")
    recorded.put(*at, MINE, offered=False)
    (seen,) = await external.stored()
    with pytest.raises(Problem) as caught:
        await external.remove(*at, seen.used_ms)
    assert caught.value.code == "upstream_timeout"
    assert await recorded.using is False
    assert await external.use(*at)
