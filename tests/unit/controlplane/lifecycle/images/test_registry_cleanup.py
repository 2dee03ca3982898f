"""The clean-up of the private registry: what it never removes, and what follows where it is full."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from controlplane.errors import Problem
from controlplane.images import Credentials, Found, ImageOptions, PrivateRegistry, RegistryRoom, StoreLimit
from controlplane.lifecycle import Options
from controlplane.lifecycle.housekeeping.copy_removals import REFUSED_MS
from controlplane.lifecycle.housekeeping.registry_cleanup import LOOK_EVERY_S, WAIT_S
from controlplane.lifecycle.images.pins import PAST_FULL
from controlplane.model import SandboxSpec
from controlplane.telemetry import Levels
from tests.support.fake_cluster import FakeCluster
from tests.support.fake_collector import FakeCollector
from tests.support.fake_mirror import FakeKeyrings, FakeMirror
from tests.support.fake_registry import FakeRegistry, digest
from tests.support.world import OWNER, World, world

HOST = "registry.internal:5000"
PRIVATE = PrivateRegistry(HOST)
A_LOOK_S = WAIT_S + 10
NEXT_S = LOOK_EVERY_S + WAIT_S
YOUNG = 10**15


@asynccontextmanager
async def plane(
    collector: FakeCollector,
    mirror: FakeMirror | None = None,
    *,
    budget: str = "50%",
    past_full: bool = True,
    recorded_bytes: int = 0,
    keyrings: FakeKeyrings | None = None,
    cluster: FakeCluster | None = None,
) -> AsyncIterator[World]:
    images = ImageOptions("auto", private=PRIVATE, budget=StoreLimit.parse(budget), past_full=past_full)
    images = replace(images, recorded_bytes=recorded_bytes)
    async with world(
        cluster,
        options=Options(starts_in_flight=16, images=images),
        registry=FakeRegistry(),
        mirror=mirror or FakeMirror(),
        keyrings=keyrings or FakeKeyrings(),
        collector=collector,
    ) as running:
        yield running


def left(collector: FakeCollector) -> list[str]:
    return sorted(repository.rpartition("/")[2] for repository, _ in collector.images)


def counted(plane: World) -> dict[str, float]:
    text = plane.deps.metrics.render(Levels({}, 0, 0, 0))[0].decode()
    lines = [line.rpartition(" ") for line in text.splitlines() if "registry" in line and not line.startswith("#")]
    return {name: float(value) for name, _, value in lines if float(value) and "_created" not in name}


def mirrored(name: str) -> str:
    return f"mirror/docker.io/library/{name}"


def copies(**used_ms: int) -> FakeCollector:
    made = FakeCollector()
    for name, at_ms in used_ms.items():
        made.put(mirrored(name), digest(name), at_ms)
    return made


async def test_the_least_used_go_until_the_registry_is_at_its_mark_and_their_bytes_come_back() -> None:
    collector = copies(a=4, b=2, c=1, d=3)
    async with plane(collector) as running:
        await asyncio.sleep(A_LOOK_S)
        assert left(collector) == ["a", "d"]
        told = counted(running)
        assert told['rollbox_image_removals_total{outcome="removed",store="registry"}'] == 2
        assert told['rollbox_image_store_bytes{store="registry"}'] == 400
        assert told['rollbox_image_store_limit_bytes{store="registry"}'] == 500
        assert told["rollbox_registry_collected_bytes_total"] == 400
        assert [told[f'rollbox_registry_stored{{kind="{one}"}}'] for one in ("copy", "blob")] == [4, 2]
        assert told["rollbox_registry_collection_seconds_count"] == 1
        await asyncio.sleep(NEXT_S)
        assert (left(collector), collector.collections) == (["a", "d"], [False, False])


async def test_layers_that_copies_share_count_once() -> None:
    collector = FakeCollector()
    for name in "abcdefgh":
        collector.put(mirrored(name), digest(name), base=400, **{name: 10})
    async with plane(collector):
        await asyncio.sleep(A_LOOK_S)
        assert len(collector.images) == 8


async def test_what_a_sandbox_a_pool_or_a_commit_needs_stays() -> None:
    collector = copies(idle=1, pooled=1, young=YOUNG)
    # A commit keeps what it is built on, whatever becomes of the copy.
    collector.put("commits/alice/x", digest("x"), base=50, own=50)
    collector.put(mirrored("based"), digest("based"), base=50)
    collector.put("estargz/docker.io/library/pooled", digest("lazily pooled"))
    collector.put("somebody/elses", digest("else"))
    mirror = FakeMirror()
    async with plane(collector, mirror, budget="10%") as running:
        pool = {"template": {"image": "pooled:1"}, "min_warm": 0, "max_warm": 0}
        assert (await running.api("PUT", "/v1/pools/p", body=pool)).status in (200, 201)
        for name in ("running", "ended"):
            sandbox = (await running.create(OWNER, SandboxSpec(image=f"{name}:1"))).sandbox
            collector.put(mirrored(name), sandbox.image_ran if name == "running" else digest(name))
            # The other form of what it runs, of the same source: what it is started from first, or falls back to.
            source = sandbox.image_digest if name == "running" else digest("other")
            lazy = f"estargz/docker.io/library/{name}", digest(f"lazy {name}")
            collector.put(*lazy)
            collector.made_of(*lazy, source)
            if name == "ended":
                await running.service.delete(OWNER, sandbox.id, wait_s=5)
        await asyncio.sleep(A_LOOK_S)
        assert left(collector) == ["based", "elses", "pooled", "pooled", "running", "running", "x", "young"]


async def test_converted_copies_of_a_commit_go_with_it_whatever_room_there_is() -> None:
    collector = FakeCollector()
    lazy = f"estargz/{HOST.replace(':', '__')}/commits"
    collector.put("commits/alice/kept", digest("kept"), YOUNG)
    for name, source in (("kept", "kept"), ("gone", "gone"), ("elsewhere", "kept")):
        collector.put(f"{lazy}/alice/{name}", digest(f"lazy {name}"), YOUNG)
        collector.made_of(f"{lazy}/alice/{name}", digest(f"lazy {name}"), digest(source))
    # One that is being made: nothing says yet of what.
    collector.put(f"{lazy}/alice/young", digest("young"), YOUNG)
    collector.put("estargz/docker.io/library/other", digest("other"), YOUNG)
    async with plane(collector, budget="0"):
        await asyncio.sleep(A_LOOK_S)
        assert left(collector) == ["kept", "kept", "other", "young"]


async def test_a_pool_that_was_declared_anew_keeps_its_new_image_too() -> None:
    collector = copies(fresh=1)
    async with plane(collector, budget="10%") as running:
        pool = {"template": {"image": "old:1"}, "min_warm": 1, "max_warm": 1}
        assert (await running.api("PUT", "/v1/pools/p", body=pool)).status in (200, 201)
        await asyncio.sleep(5)
        await running.create(OWNER, SandboxSpec(image="old:1"))
        pool = {"template": {"image": "fresh:1"}, "min_warm": 0, "max_warm": 0}
        assert (await running.api("PUT", "/v1/pools/p", body=pool)).status in (200, 201)
        await asyncio.sleep(A_LOOK_S)
        assert left(collector) == ["fresh"]


async def test_garbage_is_collected_also_where_nobody_says_how_full_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    collector = copies(a=1)
    collector.garbage["left"] = 7

    async def room() -> RegistryRoom:
        raise Problem("upstream_timeout", "it does not answer")

    monkeypatch.setattr(collector, "room", room)
    async with plane(collector) as running:
        await asyncio.sleep(A_LOOK_S)
        assert counted(running)["rollbox_registry_collected_bytes_total"] == 7
        # And the use of a copy is noted all the same.
        await running.create(OWNER, SandboxSpec(image="python:3"))
        assert collector.used


async def test_a_copy_that_is_used_meanwhile_stays() -> None:
    collector = copies(a=1, b=2, c=3)
    collector.in_use.add(digest("a"))
    async with plane(collector) as running:
        await asyncio.sleep(A_LOOK_S)
        assert left(collector) == ["a", "b", "c"]
        assert counted(running)['rollbox_image_removals_total{outcome="in_use",store="registry"}'] == 1


@pytest.mark.parametrize("away", [False, True])
async def test_without_a_budget_nothing_is_removed_and_garbage_goes_all_the_same(away: bool) -> None:
    collector = copies(a=1, b=2, c=3, d=4, e=5)
    collector.garbage["left"] = 7
    collector.away = away
    async with plane(collector, budget="0") as running:
        await asyncio.sleep(A_LOOK_S)
        assert len(collector.images) == 5
        assert counted(running).get("rollbox_registry_collected_bytes_total", 0) == (0 if away else 7)


async def test_a_copy_that_was_there_is_noted_as_used_and_copied_again_if_it_was_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    collector, mirror = FakeCollector(), FakeMirror()
    ran = digest(f"ran {digest('a')}")
    mirror.there[mirrored("python"), digest("a")] = Found(ran, digest("a"))
    real = collector.use

    async def use(repository: str, of: str) -> bool:
        if not await real(repository, of) or len(collector.used) > 1:
            return True
        # Removed before its use was noted: the mirror does not find it any more.
        mirror.there.clear()
        return False

    monkeypatch.setattr(collector, "use", use)
    async with plane(collector, mirror) as running:
        sandbox = (await running.create(OWNER, SandboxSpec(image="python:3"))).sandbox
        assert sandbox.image_ran == ran
        assert collector.used == [(mirrored("python"), ran)] * 2
        assert len(mirror.asked) == 2


# -- recorded copies --------------------------------------------------------------------------------------------------


async def test_recorded_copies_that_later_lists_took_the_place_of_go_although_there_is_room() -> None:
    collector, lazy = FakeCollector(), "estargz/docker.io/library/"
    for name in ("common", "superseded", "offered", "young"):
        collector.put(f"{lazy}{name}", digest(name), YOUNG if name == "young" else 1, **{name: 10})
    for name in ("superseded", "offered", "young"):
        collector.recorded_for(f"{lazy}{name}", digest(name), "a" * 16, offered=name == "offered")
    async with plane(collector) as running:
        sandbox = (await running.create(OWNER, SandboxSpec(image="runs:1"))).sandbox
        # The same source as what runs, which needs a copy of its own and no other one.
        collector.made_of(f"{lazy}superseded", digest("superseded"), sandbox.image_digest)
        ran = f"{lazy}runs", sandbox.image_ran
        collector.put(*ran, 1, runs=10)
        collector.recorded_for(*ran, "a" * 16, offered=False)
        await asyncio.sleep(A_LOOK_S)
        assert left(collector) == ["common", "offered", "runs", "young"]
        assert counted(running)['rollbox_image_removals_total{outcome="removed",store="registry"}'] == 1


async def test_of_an_owner_that_has_too_much_recorded_copies_go_down_to_its_mark() -> None:
    collector = FakeCollector()
    for number in range(6):
        repository = f"estargz/docker.io/library/a{number}"
        collector.put(repository, digest(f"a{number}"), number, **{f"a{number}": 20})
        collector.recorded_for(repository, digest(f"a{number}"), "a" * 16, offered=True)
    async with plane(collector, recorded_bytes=100):
        await asyncio.sleep(A_LOOK_S)
        assert left(collector) == ["a2", "a3", "a4", "a5"]


async def test_a_registry_that_refuses_a_removal_is_not_asked_for_the_others_nor_at_each_look() -> None:
    collector = FakeCollector()
    collector.keeps_all = True
    for number in range(6):
        repository = f"estargz/docker.io/library/a{number}"
        collector.put(repository, digest(f"a{number}"), number, **{f"a{number}": 20})
        collector.recorded_for(repository, digest(f"a{number}"), "a" * 16, offered=True)
    async with plane(collector, recorded_bytes=100) as running:
        await asyncio.sleep(A_LOOK_S + 3 * NEXT_S)
        assert collector.refused == 1
        assert counted(running)['rollbox_image_removals_total{outcome="failed",store="registry"}'] == 1
        await asyncio.sleep(REFUSED_MS / 1000 + NEXT_S)
        assert collector.refused == 2


# -- full -------------------------------------------------------------------------------------------------------------


def filled() -> tuple[FakeCollector, FakeMirror]:
    """A registry that is full with two copies of a day ago, of which one is needed."""
    collector, mirror = copies(a=1), FakeMirror()
    collector.full = True
    collector.put(mirrored("b"), digest("b"), YOUNG)
    return collector, mirror


async def test_where_it_is_full_nodes_pull_what_all_may_have_from_where_it_is_and_it_is_cleaned_up_at_once() -> None:
    collector, mirror = filled()
    async with plane(collector, mirror) as running:
        sandbox = (await running.create(OWNER, SandboxSpec(image="python:3"))).sandbox
        assert running.cluster.held[sandbox.id].spec.image == f"docker.io/library/python:3@{digest('a')}"
        assert (sandbox.image_digest, sandbox.image_ran) == (digest("a"), "")
        assert (sandbox.image_pulled, sandbox.image_pulled_why) == ("full", PAST_FULL)
        timeline = (await running.api("GET", f"/v1/sandboxes/{sandbox.id}/timeline")).json
        assert PAST_FULL in str(timeline["moments"])
        await asyncio.sleep(1)
        # Long before the next look, and although it has less than its budget.
        assert (left(collector), collector.collections) == (["b"], [True])
        assert counted(running)['rollbox_registry_full_starts_total{outcome="upstream"}'] == 1
        await asyncio.sleep(10)
        again = (await running.create(OWNER, SandboxSpec(image="python:3"))).sandbox
        assert running.cluster.held[again.id].spec.image.startswith(f"{HOST}/mirror/")


async def test_what_is_there_starts_from_a_registry_that_is_full() -> None:
    collector, mirror = filled()
    ran = digest(f"ran {digest('a')}")
    mirror.there[mirrored("python"), digest("a")] = Found(ran, digest("a"))
    collector.put(mirrored("python"), ran)
    async with plane(collector, mirror) as running:
        sandbox = (await running.create(OWNER, SandboxSpec(image="python:3"))).sandbox
        assert sandbox.image_ran == ran


async def test_an_image_of_owners_with_own_credentials_is_never_pulled_by_nodes_themselves() -> None:
    collector, mirror = filled()
    keyrings = FakeKeyrings({OWNER: {"docker.io": Credentials("user", "password")}})
    async with plane(collector, mirror, keyrings=keyrings) as running:
        with pytest.raises(Problem) as caught:
            await running.create(OWNER, SandboxSpec(image="python:3"))
        assert caught.value.code == "image_store_full"
        assert not running.cluster.held
        assert counted(running)['rollbox_registry_full_starts_total{outcome="failed"}'] == 1


@pytest.mark.parametrize(("past_full", "pull"), [(False, "auto"), (True, "lazy")])
async def test_else_the_create_fails_with_a_code_of_its_own(past_full: bool, pull: str) -> None:
    collector, mirror = filled()
    cluster = FakeCluster()
    cluster.lazy.images = PRIVATE.converted
    async with plane(collector, mirror, past_full=past_full, cluster=cluster) as running:
        spec = SandboxSpec.model_validate({"image": "python:3", "pull": pull})
        with pytest.raises(Problem) as caught:
            await running.create(OWNER, spec)
        assert caught.value.code == "image_store_full"
        ended = await running.deps.store.find(OWNER, {}, None)
        assert [one.end.cause for one in ended if one.end is not None] == ["image_store_full"]


async def test_a_registry_that_says_no_in_other_words_and_is_full_is_full() -> None:
    collector, mirror = copies(a=1), FakeMirror()
    mirror.failure = Problem("image_pull_failed", "it answers 500", side="registry", outcome="away")
    async with plane(collector, mirror, past_full=False) as running:
        with pytest.raises(Problem) as caught:
            await running.create(OWNER, SandboxSpec(image="python:3"))
        assert caught.value.code == "image_pull_failed"
        await asyncio.sleep(10)
        creating = asyncio.create_task(running.create(OWNER, SandboxSpec(image="debian:12")))
        await asyncio.sleep(0)
        mirror.takes_s = 4
        await asyncio.sleep(1)
        collector.full = True
        with pytest.raises(Problem) as caught:
            await creating
        assert caught.value.code == "image_store_full"


async def test_a_collector_that_is_away_holds_up_no_start() -> None:
    collector, mirror = FakeCollector(away=True), FakeMirror()
    async with plane(collector, mirror) as running:
        assert (await running.create(OWNER, SandboxSpec(image="python:3"))).sandbox.image_ran
