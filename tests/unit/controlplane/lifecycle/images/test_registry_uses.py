"""When copies count as used, by starts (also while nobody notes it) and by groups, and who cleans up."""

import asyncio
from typing import Any

import pytest

from controlplane.images import ImageOptions, PrivateRegistry
from controlplane.lifecycle import Options
from controlplane.lifecycle.housekeeping.registry_cleanup import URGENT_EVERY_S, WAIT_S
from controlplane.lifecycle.images import RegistryStore
from controlplane.lifecycle.images.registry_store import AWAY_MS, CLOSE_WITHIN_S, MOST_NOTED, NOTED_EVERY_S
from controlplane.model import GROUP, SandboxSpec
from tests.support.fake_cluster import FakeCluster, FakeSidecars
from tests.support.fake_collector import FakeCollector
from tests.support.fake_mirror import FakeKeyrings, FakeMirror
from tests.support.fake_registry import FakeRegistry, digest
from tests.support.shared_store import SharedMemory
from tests.support.virtual_time import VirtualClock
from tests.support.world import OWNER, world

PRIVATE = PrivateRegistry("registry.internal:5000")
OPTIONS = Options(starts_in_flight=16, images=ImageOptions("auto", private=PRIVATE))
PYTHON = "mirror/docker.io/library/python"
SOON_S = NOTED_EVERY_S + 1


async def test_uses_of_a_time_when_the_collector_was_away_are_told_once_it_answers() -> None:
    collector = FakeCollector(away=True)
    async with world(
        options=OPTIONS, registry=FakeRegistry(), mirror=FakeMirror(), keyrings=FakeKeyrings(), collector=collector
    ) as running:
        ran = (await running.create(OWNER, SandboxSpec(image="python:3"))).sandbox.image_ran
        await running.create(OWNER, SandboxSpec(image="python:3"))
        await asyncio.sleep(120)
        assert collector.used == []
        collector.away = False
        await asyncio.sleep(AWAY_MS / 1000 + SOON_S)
        assert collector.used == [(PYTHON, ran)]


async def test_as_many_are_remembered_as_there_is_room_for() -> None:
    collector = FakeCollector()
    store = RegistryStore(collector, VirtualClock())
    for number in range(MOST_NOTED + 1):
        store.note(PYTHON, str(number))
    store.note(PYTHON, "1")
    await store.tell()
    told = [one for _, one in collector.used]
    assert (len(told), told[0], told[-1]) == (MOST_NOTED, "2", "1")


class Broken(FakeCollector):
    """Answers nothing; a fault in the program, or an end of the process, is what comes of it.

    Attributes:
        fails: what is raised; None: nothing is, in an hour.
    """

    fails: Exception | None = None

    async def use(self, repository: str, digest: str) -> bool:
        if self.fails is not None:
            raise self.fails
        await asyncio.sleep(3600)
        return await super().use(repository, digest)


async def test_what_is_not_told_stays_noted_whatever_has_come_between() -> None:
    collector = Broken()
    store = RegistryStore(collector, VirtualClock())
    store.note(PYTHON, "1")
    began_s = asyncio.get_running_loop().time()
    await store.close()
    assert asyncio.get_running_loop().time() - began_s == pytest.approx(CLOSE_WITHIN_S)
    collector.fails = RuntimeError("a fault")
    with pytest.raises(RuntimeError):
        await store.tell()
    store.copies = kept = FakeCollector()
    await store.tell()
    assert kept.used == [(PYTHON, "1")]


async def test_what_is_noted_is_told_when_the_control_plane_ends() -> None:
    collector = FakeCollector()
    async with world(
        options=OPTIONS, registry=FakeRegistry(), mirror=FakeMirror(), keyrings=FakeKeyrings(), collector=collector
    ) as running:
        running.service._core._registry_store.note(PYTHON, "1")
        await asyncio.sleep(1)
        assert collector.used == []
    assert collector.used == [(PYTHON, "1")]


async def test_the_end_of_a_groups_sandbox_is_a_use_of_its_copy_and_of_others_is_none() -> None:
    collector = FakeCollector()
    async with world(
        options=OPTIONS, registry=FakeRegistry(), mirror=FakeMirror(), keyrings=FakeKeyrings(), collector=collector
    ) as running:
        alone = (await running.create(OWNER, SandboxSpec(image="alone:1"))).sandbox
        labels = {GROUP: "g"}
        members = [(await running.create(OWNER, SandboxSpec(image="python:3", labels=labels))).sandbox for _ in "ab"]
        collector.used.clear()
        for one in (alone, *members):
            await running.service.delete(OWNER, one.id, wait_s=5)
        await asyncio.sleep(SOON_S)
        assert collector.used == [(PYTHON, members[0].image_ran)]


async def test_one_replica_cleans_up_a_registry_that_is_full() -> None:
    core, cluster, sidecars, collector = (
        SharedMemory(VirtualClock()),
        FakeCluster(annotates_behind=True),
        FakeSidecars(),
        FakeCollector(),
    )
    collector.full = True
    collector.put(PYTHON, digest("needed by nobody, and young"), 10**15)
    parts: Any = {"options": OPTIONS, "registry": FakeRegistry(), "keyrings": FakeKeyrings(), "collector": collector}
    async with (
        world(cluster, sidecars, store=core.view("a"), mirror=FakeMirror(), **parts) as a,
        world(cluster, sidecars, store=core.view("b"), mirror=FakeMirror(), **parts) as b,
    ):
        await asyncio.sleep(0.01)  # both follow the feed
        specs = [SandboxSpec(image=f"image-{number}:1") for number in range(4)]
        await asyncio.gather(*(plane.create(OWNER, one) for one, plane in zip(specs, (a, b, a, b), strict=True)))
        await asyncio.sleep(WAIT_S - 1)
        assert collector.collections == [True]
        # After that and the first regular look any replica that finds the registry full does it.
        await asyncio.sleep(2 * URGENT_EVERY_S)
        assert collector.collections == [True] * 2
        await b.create(OWNER, SandboxSpec(image="image-5:1"))
        await asyncio.sleep(1)
        assert collector.collections == [True] * 3
