"""Pools from the door: declared, filled, claimed from, rolled, drained, scaled, and what they say meanwhile."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from controlplane.cluster.documents import Document
from controlplane.cluster.engine.documents import FileDocuments
from controlplane.errors import Problem
from controlplane.lifecycle import Options
from controlplane.lifecycle.record.transition import Transition
from controlplane.model import Sandbox, SandboxSpec, State
from controlplane.model.pool import PoolSpec
from controlplane.model.spec import Template
from tests.support.fake_cluster import FakeCluster, room_for
from tests.support.shared_store import SharedMemory
from tests.support.virtual_time import VirtualClock
from tests.support.world import OWNER, World, world

IMAGE = "python:3.12"


def spec(least: int = 2, most: int | None = None, image: str = IMAGE, **more: object) -> PoolSpec:
    body = {"template": {"image": image}, "min_warm": least, "max_warm": least if most is None else most, **more}
    return PoolSpec.model_validate(body)


@pytest.fixture
async def plane() -> AsyncIterator[World]:
    async with world(options=Options(starts_in_flight=16)) as running:
        yield running


async def ready(plane: World, pool: str = "p") -> list[Sandbox]:
    return [one for one in await plane.deps.store.find(None, {}, {State.WARM}) if one.pool == pool]


async def settle(seconds: float = 5.0) -> None:
    await asyncio.sleep(seconds)


async def status(plane: World, name: str = "p") -> dict[str, object]:
    return (await plane.service.pools.get(name)).status


async def test_a_declared_pool_is_filled_and_a_claim_is_refilled_at_once(plane: World) -> None:
    await plane.service.pools.put("p", spec(3))
    await settle()
    assert len(await ready(plane)) == 3
    created = await plane.create(OWNER, SandboxSpec(image=IMAGE, settings_digest="d" * 64))
    assert created.sandbox.pool == "p"
    assert created.sandbox.warm
    await settle(0.5)
    assert len(await ready(plane)) == 3
    told = await status(plane)
    assert (told["ready"], told["wanted"], told["claimed_per_minute"]) == (3, 3, 1)


async def test_creates_are_counted_by_how_they_were_served(plane: World) -> None:
    await plane.service.pools.put("p", spec(1, starts_per_minute=1))
    await settle()
    wishes = [
        SandboxSpec(image=IMAGE, settings_digest="d" * 64),
        SandboxSpec(image=IMAGE),
        SandboxSpec(image=IMAGE, pids_limit=64),
        SandboxSpec(image=IMAGE, pids_limit=65),
        SandboxSpec(image="other"),
    ]
    for number, wish in enumerate(wishes):
        created = await plane.create(OWNER, wish, str(number))
        assert (await plane.create(OWNER, wish, str(number))).sandbox.id == created.sandbox.id

    def counted(pool: str, served: str) -> float | None:
        labels = {"pool": pool, "served": served}
        return plane.deps.metrics.registry.get_sample_value("rollbox_creates_total", labels)

    assert (counted("p", "warm"), counted("p", "none_ready"), counted("p", "other_template")) == (1, 1, 2)
    assert counted("", "no_pool") == 1
    assert counted("p", "dead") is None


async def test_nothing_is_started_beyond_what_nodes_and_queue_bear_at_once() -> None:
    cluster = FakeCluster(slots=3)
    async with world(cluster, options=Options(starts_in_flight=16)) as plane:
        await plane.service.pools.put("p", spec(12))
        await settle(10)
        assert len(await ready(plane)) == 12
        assert cluster.most_at_once <= 3


async def test_a_pool_that_found_no_room_resumes_as_soon_as_there_is_some() -> None:
    async with world(options=Options(starts_in_flight=16, max_sandboxes=3)) as plane:
        others = [(await plane.create(OWNER, SandboxSpec(image="other", ttl_ms=7_200_000))) for _ in range(3)]
        await plane.service.pools.put("p", spec(2))
        await settle(3_600)
        told = await status(plane)
        assert "capacity_unavailable: 3 of at most 3 sandboxes are in use" in str(told["why"])
        for number, other in enumerate(others[:2], start=1):
            await plane.service.delete(OWNER, other.sandbox.id)
            await settle(1)
            assert len(await ready(plane)) == number
        assert (await status(plane))["failures"] == []


async def test_a_new_template_rolls_the_pool_and_there_are_never_less(plane: World) -> None:
    await plane.service.pools.put("p", spec(4, surge=2))
    await settle()
    warm = {one.id for one in await ready(plane)}
    counts = [len(warm)]

    def heard(transition: Transition) -> None:
        sandbox = transition.after
        (warm.add if sandbox.state is State.WARM else warm.discard)(sandbox.id)
        counts.append(len(warm))

    plane.service._core.ledger.subscribe(heard)
    await plane.service.pools.put("p", spec(4, image="python:3.13", surge=2))
    await settle(10)
    assert {one.spec.image for one in await ready(plane)} == {"python:3.13"}
    assert len(await ready(plane)) == 4
    assert (min(counts), max(counts)) == (4, 6)


async def test_what_its_sandboxes_keep_running_rolls_the_pool_and_no_claim_asks_for_it(plane: World) -> None:
    await plane.service.pools.put("p", spec(2))
    await settle()
    plain = {one.id for one in await ready(plane)}
    await plane.service.pools.put("p", spec(2, interpreter="python"))
    await settle(30)
    kept = await ready(plane)
    assert [(one.interpreter, one.id in plain) for one in kept] == [("python", False)] * 2
    claimed = (await plane.create(OWNER, SandboxSpec(image=IMAGE, settings_digest="d" * 64))).sandbox
    assert (claimed.warm, claimed.interpreter) == (True, "python")
    cold = (await plane.create(OWNER, SandboxSpec(image="other"))).sandbox
    assert cold.interpreter == ""


async def test_a_drained_pool_keeps_none_and_what_was_claimed_goes_on(plane: World) -> None:
    await plane.service.pools.put("p", spec(2))
    await settle()
    mine = (await plane.create(OWNER, SandboxSpec(image=IMAGE))).sandbox
    await plane.service.pools.put("p", spec(2, drain=True))
    await settle()
    assert await ready(plane) == []
    assert (await plane.service.alive(OWNER, mine.id)).state is State.RUNNING
    assert (await status(plane))["why"] == "none are wanted: the pool is drained"


async def test_a_removed_pool_leaves_nothing_behind(plane: World) -> None:
    await plane.service.pools.put("p", spec(2))
    await settle()
    assert await plane.service.pools.remove("p")
    assert not await plane.service.pools.remove("p")
    await settle()
    assert await ready(plane) == []
    with pytest.raises(Problem, match="there is no pool 'p'; `rollbox pool list` shows them"):
        await plane.service.pools.get("p")
    await plane.service.pools.put("python", spec(0))
    with pytest.raises(Problem, match="there is no pool 'pyton': did you mean python?"):
        await plane.service.pools.get("pyton")


async def test_a_pool_grows_with_the_claims_and_comes_back_to_nothing(plane: World) -> None:
    await plane.service.pools.put("p", spec(0, 20))
    await settle()
    assert await ready(plane) == []
    wish = SandboxSpec(image=IMAGE)
    cold = (await plane.create(OWNER, wish)).sandbox
    assert cold.cold_reason == "pool p had none ready"
    await settle()
    told = await status(plane)
    assert told["wanted"] == len(await ready(plane)) == 2
    assert "at most 1 were asked for within" in str(told["why"])
    for _ in range(2):
        assert (await plane.create(OWNER, wish)).sandbox.warm
    await settle()
    assert len(await ready(plane)) > 2
    await settle(700)
    assert await ready(plane) == []


async def test_an_image_that_does_not_exist_is_tried_ever_more_rarely_and_the_pool_says_why() -> None:
    cluster = FakeCluster(next_error=None)
    refusal = Problem("image_not_found", "there is no image nope:1")

    async def start(*_: object) -> None:
        cluster.started.append("tried")
        raise refusal

    cluster.start = start  # type: ignore[assignment, method-assign]
    async with world(cluster, options=Options(starts_in_flight=16)) as plane:
        await plane.service.pools.put("p", spec(8, image="nope:1"))
        await settle(5)
        assert len(cluster.started) == 1
        told = await status(plane)
        assert "image_not_found: there is no image nope:1" in str(told["why"])
        assert told["failures"] == [{"code": "image_not_found", "detail": "there is no image nope:1", "count": 1}]
        await settle(3600)
        assert len(cluster.started) < 20
        with pytest.raises(Problem, match="no image"):
            await plane.create(OWNER, SandboxSpec(image="nope:1"))


async def test_a_changed_pool_is_tried_at_once_whatever_failed_before() -> None:
    cluster = FakeCluster(next_error=Problem("image_not_found", "there is no image yet"))
    async with world(cluster, options=Options(starts_in_flight=16)) as plane:
        await plane.service.pools.put("p", spec(1))
        await settle(3)
        assert await ready(plane) == []
        await plane.service.pools.put("p", spec(2))
        await settle(3)
        assert len(await ready(plane)) == 2


async def test_a_full_installation_holds_the_pool_up_and_it_says_so() -> None:
    async with world(options=Options(starts_in_flight=16, max_sandboxes=3)) as plane:
        await plane.create(OWNER, SandboxSpec(image="other"))
        await plane.service.pools.put("p", spec(3))
        await settle()
        assert len(await ready(plane)) == 2
        assert "capacity_unavailable" in str((await status(plane))["why"])


async def test_unclaimed_ones_give_way_to_creates_least_wanted_first_and_claimed_ones_stay() -> None:
    async with world(options=Options(starts_in_flight=16, max_sandboxes=6)) as plane:
        await plane.service.pools.put("busy", spec(3))
        await plane.service.pools.put("idle", spec(3, image="python:3.13"))
        await settle()
        mine = (await plane.create(OWNER, SandboxSpec(image=IMAGE))).sandbox
        assert mine.warm
        await settle()
        assert [len(await ready(plane, pool)) for pool in ("busy", "idle")] == [2, 3]
        for left in ([2, 2], [2, 1], [2, 0], [1, 0], [0, 0]):
            cold = (await plane.create(OWNER, SandboxSpec(image="other"))).sandbox
            assert not cold.warm
            assert [len(await ready(plane, pool)) for pool in ("busy", "idle")] == left
        with pytest.raises(Problem, match="6 of at most 6 sandboxes are in use here"):
            await plane.create(OWNER, SandboxSpec(image="other", start_timeout_ms=5_000))
        assert (await plane.service.alive(OWNER, mine.id)).state is State.RUNNING


async def test_one_who_is_at_his_own_quota_makes_nobody_give_way() -> None:
    async with world(options=Options(starts_in_flight=16, max_sandboxes=3)) as plane:
        await plane.service.quotas.change(OWNER, {"sandboxes": 1})
        await plane.create(OWNER, SandboxSpec(image="other"))
        await plane.service.pools.put("p", spec(2))
        await settle()
        with pytest.raises(Problem, match="quota"):
            await plane.create(OWNER, SandboxSpec(image="other", start_timeout_ms=5_000))
        assert len(await ready(plane)) == 2


async def test_a_herd_of_creates_takes_a_place_each_and_no_more_than_that_give_way() -> None:
    async with world(options=Options(starts_in_flight=16, max_sandboxes=20)) as plane:
        await plane.service.pools.put("p", spec(20))
        await settle(10)
        wishes = [plane.create(OWNER, SandboxSpec(image="other")) for _ in range(8)]
        assert len({one.sandbox.id for one in await asyncio.gather(*wishes)}) == 8
        assert len(await ready(plane)) == 12


async def test_a_place_that_was_given_up_is_not_filled_again_at_once() -> None:
    cluster = FakeCluster()
    async with world(cluster, options=Options(starts_in_flight=16, max_sandboxes=4)) as plane:
        await plane.service.pools.put("p", spec(4))
        await settle()
        for number in range(3):
            cold = (await plane.create(OWNER, SandboxSpec(image="other"))).sandbox
            await plane.service.delete(OWNER, cold.id)
            await settle(10)
            assert (len(await ready(plane)), len(cluster.started)) == (3, 5 + number)
        assert "4 sandboxes are in use, and 1 places are left to creates that found none" in str(
            (await status(plane))["why"]
        )
        await settle(120)
        assert len(await ready(plane)) == 4


async def test_a_replica_that_does_not_plan_has_warm_ones_give_way_too() -> None:
    cluster, documents, core = FakeCluster(annotates_behind=True), FileDocuments(), SharedMemory(VirtualClock())
    options = Options(starts_in_flight=16, max_sandboxes=3)
    async with (
        world(cluster, options=options, store=core.view("a"), documents=documents) as a,
        world(cluster, options=options, store=core.view("b"), documents=documents) as b,
    ):
        await a.service.pools.put("p", spec(3))
        await settle()
        assert len(await ready(a)) == 3
        waiting = b if a.service._core.pools.leads else a
        assert not (await waiting.create(OWNER, SandboxSpec(image="other"))).sandbox.warm
        await settle(30)
        assert (len(await ready(a)), len(cluster.started)) == (2, 4)


async def test_warm_ones_make_room_on_a_node_for_a_create_and_are_not_refilled_meanwhile() -> None:
    cluster = FakeCluster(room=room_for(0, a=3, b=2), stop_s=2.0)
    async with world(cluster, options=Options(starts_in_flight=16)) as plane:
        await plane.service.pools.put("p", spec(4))
        await settle()
        mine = (await plane.create(OWNER, SandboxSpec(image=IMAGE))).sandbox
        await settle()
        assert len(await ready(plane)) == 4
        cold = await asyncio.gather(*(plane.create(OWNER, SandboxSpec(image="other")) for _ in range(3)))
        assert not any(one.sandbox.warm for one in cold)
        assert len(await ready(plane)) == 1
        for one in cold:
            await plane.service.delete(OWNER, one.sandbox.id)
        await settle(30)
        assert len(await ready(plane)) == 1
        assert "gave way to creates within the last minute" in str((await status(plane))["why"])
        assert (await plane.service.alive(OWNER, mine.id)).state is State.RUNNING
        await settle(60)
        assert len(await ready(plane)) == 4
        told = plane.deps.metrics.registry.get_sample_value("rollbox_unclaimed_gave_way_total", {"room": "nodes"})
        assert told == 3


async def test_a_create_at_a_replica_that_does_not_plan_has_warm_ones_make_room_too() -> None:
    cluster = FakeCluster(room=room_for(3), annotates_behind=True, stop_s=1.0)
    documents, core = FileDocuments(), SharedMemory(VirtualClock())
    options = Options(starts_in_flight=16)
    async with (
        world(cluster, options=options, store=core.view("a"), documents=documents) as a,
        world(cluster, options=options, store=core.view("b"), documents=documents) as b,
    ):
        await a.service.pools.put("p", spec(3))
        await settle()
        waiting = b if a.service._core.pools.leads else a
        assert not (await waiting.create(OWNER, SandboxSpec(image="other"))).sandbox.warm
        # Neither of them starts another one in its place.
        await settle(30)
        assert (len(await ready(a)), len(cluster.started)) == (2, 4)


async def test_what_is_about_to_leave_its_node_spares_warm_ones_and_claimed_ones_never_go() -> None:
    cluster = FakeCluster(room=room_for(4), stop_s=10.0)
    async with world(cluster, options=Options(starts_in_flight=16)) as plane:
        mine = [(await plane.create(OWNER, SandboxSpec(image="other"))).sandbox for _ in range(2)]
        await plane.service.pools.put("p", spec(2))
        await settle()
        await plane.service.delete(OWNER, mine[0].id)
        await plane.create(OWNER, SandboxSpec(image="other"))
        assert len(await ready(plane)) == 2
        await asyncio.gather(*(plane.create(OWNER, SandboxSpec(image="other")) for _ in range(2)))
        with pytest.raises(Problem, match="no node has room"):
            await plane.create(OWNER, SandboxSpec(image="other", start_timeout_ms=5_000))
        assert (await plane.service.alive(OWNER, mine[1].id)).state is State.RUNNING


async def test_a_start_that_no_warm_one_could_help_ends_none_of_them() -> None:
    cluster = FakeCluster(room=room_for(0, a=2, b=2))
    async with world(cluster, options=Options(starts_in_flight=16)) as plane:
        await plane.service.pools.put("p", spec(4))
        await settle()
        elsewhere = SandboxSpec(image="other", node_selector={"zone": "x"}, start_timeout_ms=5_000)
        with pytest.raises(Problem, match="labels"):
            await plane.create(OWNER, elsewhere)
        assert len(await ready(plane)) == 4


@pytest.mark.parametrize(
    ("name", "wish", "said"),
    [
        ("P_1", spec(), "the name 'P_1' must be"),
        ("p", spec(5, 9), "max_warm 9 is more than the 6 sandboxes"),
        ("p", spec(template={"image": "a", "cpu_millicores": {"request": 1, "limit": 65_000}}), "cpu_millicores.limit"),
    ],
)
async def test_what_could_not_be_kept_is_refused_before_anything_happens(name: str, wish: PoolSpec, said: str) -> None:
    async with world(options=Options(max_sandboxes=6)) as plane:
        with pytest.raises(Problem, match=said):
            await plane.service.pools.put(name, wish)
        assert await plane.service.pools.list() == []


def test_sizes_that_contradict_each_other_name_value_and_rule() -> None:
    with pytest.raises(ValueError, match="min_warm 4 must not be greater than max_warm 3"):
        spec(4, 3)
    with pytest.raises(ValueError, match="auto is off, so nothing decides between min_warm 1 and max_warm 3"):
        spec(1, 3, auto=False)


async def test_a_declaration_past_our_api_that_is_not_sound_changes_nothing(plane: World) -> None:
    await plane.service.pools.put("p", spec(2))
    await settle()
    before = {one.id for one in await ready(plane)}
    await plane.deps.documents.put("pools", "p", {"template": {"image": "python:3.13"}, "min_warm": 9, "max_warm": 1})
    await settle()
    assert {one.id for one in await ready(plane)} == before
    shown = await plane.service.pools.get("p")
    assert shown.declared.spec is None
    assert "min_warm 9 must not be greater than max_warm 1" in str(shown.status["why"])


async def test_only_one_of_two_replicas_plans_and_the_other_goes_on_when_it_leaves(plane: World) -> None:
    other = plane.service._core.pools
    await settle()
    assert other.leads
    await other.leave()
    assert not other.leads
    assert await plane.deps.store.lease("pools", "other", 1_000)


async def test_a_planner_that_was_paused_and_lost_its_lease_starts_nothing(plane: World) -> None:
    await settle()
    store, pools = plane.deps.store, plane.service._core.pools
    await store.lease("pools", store.replica, 0)
    assert await store.lease("pools", "another", 60_000)
    assert pools.leads  # so it thinks
    template = Template(image=IMAGE)
    body = PoolSpec(template=template, min_warm=2, max_warm=2).model_dump(mode="json")
    pools.declare([Document("p", "1", body)])
    await pools.turn()
    assert await store.find(None, {}, None) == []
    assert not pools.leads


async def test_when_the_lease_moves_the_other_replica_goes_on_and_the_rate_holds() -> None:
    cluster, documents, core = FakeCluster(annotates_behind=True), FileDocuments(), SharedMemory(VirtualClock())
    options = Options(starts_in_flight=16)
    async with (
        world(cluster, options=options, store=core.view("a"), documents=documents) as a,
        world(cluster, options=options, store=core.view("b"), documents=documents) as b,
    ):
        await a.service.pools.put("p", spec(2, starts_per_minute=3))
        await settle(3)
        planning, waiting = (a, b) if a.service._core.pools.leads else (b, a)
        assert not waiting.service._core.pools.leads
        assert len(await ready(a)) == 2
        for _ in range(2):
            assert (await waiting.create(OWNER, SandboxSpec(image=IMAGE))).sandbox.warm
        await settle(2)
        assert len(cluster.started) == 3
        await planning.service._core.pools.leave()
        await settle(10)
        assert waiting.service._core.pools.leads
        assert len(cluster.started) == 3
        assert "3 were started within a minute already" in str((await status(waiting))["why"])
        assert (await planning.service.pools.get("p")).status == (await status(waiting))
        await settle(60)
        assert len(await ready(a)) == 2
