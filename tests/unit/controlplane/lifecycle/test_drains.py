"""A node that is drained: its warm sandboxes end at once, its claimed ones are told and end at the deadline."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.cluster import Drain
from controlplane.lifecycle.drains.steps import Step, step
from controlplane.lifecycle.record.changes import draining
from controlplane.model import EndCause, Sandbox, SandboxSpec, State
from tests.support.asgi import Caller
from tests.support.fake_cluster import FakeCluster
from tests.support.shared_store import SharedMemory
from tests.support.virtual_time import VirtualClock
from tests.support.world import OTHER_KEY, OWNER, SPEC, World, world

HOUR_MS = 3_600_000
MOMENTS = st.integers(0, 1000)


def drain(until_ms: int, *, estimated: bool = False) -> Drain:
    return Drain(until_ms, 0, "test", "is drained", estimated=estimated)


def now_ms(plane: World) -> int:
    return plane.deps.clock.now_ms()


async def record(plane: World, sandbox_id: str) -> dict[str, Any]:
    told = (await plane.api("GET", f"/v1/sandboxes/{sandbox_id}")).json
    assert isinstance(told, dict)
    return told


async def test_a_claimed_sandbox_is_told_and_ends_at_the_deadline() -> None:
    async with world() as plane:
        sandbox = (await plane.create(OWNER, SPEC)).sandbox
        until_ms = now_ms(plane) + 60_000
        plane.cluster.node_drains.mark("n1", drain(until_ms))
        await asyncio.sleep(1)
        told = await record(plane, sandbox.id)
        assert (told["state"], told["draining_at_ms"], told["end"]) == ("running", until_ms, None)
        story = (await plane.api("GET", f"/v1/sandboxes/{sandbox.id}/timeline")).json
        assert story["draining_at_ms"] == until_ms
        assert "its node is drained" in story["summary"]
        assert story["moments"][-1]["word"] == "drain"
        await asyncio.sleep(58)
        assert (await record(plane, sandbox.id))["end"] is None
        await asyncio.sleep(2)
        ended = await record(plane, sandbox.id)
        assert (ended["end"]["cause"], ended["end"]["by"]) == ("sandbox_evicted", "drain")
        assert ended["end"]["at_ms"] - until_ms <= 1_000
        assert ended["draining_at_ms"] is None
        assert sandbox.id in plane.cluster.stopped


async def test_its_own_end_comes_first_where_that_is_earlier() -> None:
    async with world() as plane:
        short = (await plane.create(OWNER, SandboxSpec(image="a", ttl_ms=30_000))).sandbox
        plane.cluster.node_drains.mark("n1", drain(now_ms(plane) + HOUR_MS))
        await asyncio.sleep(1)
        assert (await record(plane, short.id))["draining_at_ms"] == short.expires_at_ms
        await asyncio.sleep(31)
        assert (await record(plane, short.id))["end"]["cause"] == "ttl_expired"


async def test_warm_ones_are_retired_and_their_pool_starts_others_elsewhere() -> None:
    async with world(FakeCluster()) as plane:
        await plane.api("PUT", "/v1/pools/py", body={"template": {"image": SPEC.image}, "min_warm": 3, "max_warm": 3})
        await asyncio.sleep(5)
        first = [*plane.cluster.held]
        assert len(first) == 3
        plane.cluster.nodes.update(dict.fromkeys(first[:2], "n2"))
        plane.cluster.node_drains.known["n2"] = None
        plane.cluster.node_drains.mark("n2", drain(now_ms(plane) + HOUR_MS))
        await asyncio.sleep(5)
        assert set(first[:2]) <= set(plane.cluster.stopped)
        assert first[2] in plane.cluster.held
        assert len(plane.cluster.held) == 3
        # Nobody has had them, so nobody is told.
        claimed = (await plane.create(OWNER, SPEC)).sandbox
        assert claimed.draining_at_ms is None


async def test_one_that_is_claimed_on_a_drained_node_all_the_same_is_told() -> None:
    async with world(FakeCluster(ready_s=None)) as plane:
        creating = asyncio.create_task(plane.create(OWNER, SPEC))
        await asyncio.sleep(1)
        until_ms = now_ms(plane) + HOUR_MS // 2
        plane.cluster.nodes[next(iter(plane.cluster.held))] = "late"
        plane.cluster.node_drains.known["late"] = None
        plane.cluster.node_drains.drains["late"] = drain(until_ms)  # no change is told of it
        await plane.cluster.get_ready(next(iter(plane.cluster.held)))
        sandbox = (await creating).sandbox
        await asyncio.sleep(1)
        assert (await record(plane, sandbox.id))["draining_at_ms"] == until_ms


async def test_a_drain_that_is_taken_back_in_the_middle_ends_nothing() -> None:
    async with world() as plane:
        sandbox = (await plane.create(OWNER, SPEC)).sandbox
        drains = plane.cluster.node_drains
        drains.mark("n1", drain(now_ms(plane) + 30_000))
        await asyncio.sleep(20)
        drains.mark("n1", None)
        await asyncio.sleep(60)
        told = await record(plane, sandbox.id)
        assert (told["state"], told["draining_at_ms"]) == ("running", None)


async def test_a_second_drain_sets_another_deadline_earlier_or_later() -> None:
    async with world() as plane:
        sandbox = (await plane.create(OWNER, SPEC)).sandbox
        drains, began_ms = plane.cluster.node_drains, now_ms(plane)
        drains.mark("n1", drain(began_ms + 30_000))
        await asyncio.sleep(20)
        drains.mark("n1", drain(began_ms + 90_000))
        await asyncio.sleep(40)
        assert (await record(plane, sandbox.id))["draining_at_ms"] == began_ms + 90_000
        drains.mark("n1", drain(began_ms + 62_000))
        await asyncio.sleep(4)
        assert (await record(plane, sandbox.id))["end"]["cause"] == "sandbox_evicted"


async def test_a_deadline_in_the_past_ends_them_at_once_and_tells_it_first() -> None:
    async with world() as plane:
        sandbox = (await plane.create(OWNER, SPEC)).sandbox
        plane.cluster.node_drains.mark("n1", drain(now_ms(plane) - 5))
        await asyncio.sleep(1)
        words = [
            one["word"] for one in (await plane.api("GET", f"/v1/sandboxes/{sandbox.id}/timeline")).json["moments"]
        ]
        assert words.index("drain") < words.index("sandbox_evicted")


async def test_a_node_that_flaps_ends_no_claimed_sandbox() -> None:
    async with world() as plane:
        sandbox = (await plane.create(OWNER, SPEC)).sandbox
        for _ in range(20):
            plane.cluster.node_drains.mark("n1", drain(now_ms(plane) + 10_000))
            plane.cluster.node_drains.mark("n1", None)
        await asyncio.sleep(60)
        told = await record(plane, sandbox.id)
        assert (told["end"], told["draining_at_ms"]) == (None, None)


async def test_a_node_that_vanishes_in_the_middle_leaves_the_end_to_the_cluster() -> None:
    async with world() as plane:
        sandbox = (await plane.create(OWNER, SPEC)).sandbox
        plane.cluster.node_drains.mark("n1", drain(now_ms(plane) + HOUR_MS))
        await asyncio.sleep(1)
        plane.cluster.node_drains.vanish("n1")
        await asyncio.sleep(30)
        told = await record(plane, sandbox.id)
        assert (told["end"], told["draining_at_ms"] is None) == (None, False)


async def test_a_mark_without_a_time_does_not_keep_an_operators_deadline_that_is_taken_back() -> None:
    async with world() as plane:
        sandbox = (await plane.create(OWNER, SPEC)).sandbox
        drains, began_ms = plane.cluster.node_drains, now_ms(plane)
        drains.mark("n1", drain(began_ms + 30_000))
        await asyncio.sleep(10)
        # The operator takes it back, and an autoscaler's mark stays; and counted anew elsewhere, it stays what it was.
        for later_ms in (HOUR_MS, HOUR_MS + 5_000):
            drains.mark("n1", drain(began_ms + later_ms, estimated=True))
            await asyncio.sleep(30)
            told = await record(plane, sandbox.id)
            assert (told["end"], told["draining_at_ms"]) == (None, min(began_ms + HOUR_MS, sandbox.expires_at_ms))
        kept = await plane.deps.store.get(sandbox.id)
        assert kept is not None
        assert (kept.draining_at_ms, kept.draining_exact) == (began_ms + HOUR_MS, False)


@given(record=st.none() | MOMENTS, exact=st.booleans(), counted_ms=st.lists(MOMENTS, min_size=1, max_size=4))
def test_replicas_that_count_a_mark_agree_on_the_earliest(
    record: int | None, exact: bool, counted_ms: list[int]
) -> None:
    sandbox = Sandbox("sb-1", "o", SPEC, 0, 5000, "f", state=State.RUNNING, draining_at_ms=record, draining_exact=exact)
    for _ in range(2):
        for until_ms in counted_ms:
            do, at_ms = step(sandbox, drain(until_ms, estimated=True), -1)
            if do is Step.TELL:
                sandbox = draining(sandbox, at_ms, 0)
    named = [] if record is None or (exact and record not in counted_ms) else [record]
    assert sandbox.draining_at_ms == min([*counted_ms, *named])


async def test_a_replica_that_comes_later_keeps_the_deadline_that_was_counted_first() -> None:
    cluster, core = FakeCluster(), SharedMemory(VirtualClock())
    async with world(cluster, store=core.view("a")) as plane:
        sandbox = (await plane.create(OWNER, SPEC)).sandbox
        until_ms = now_ms(plane) + 60_000
        cluster.node_drains.mark("n1", drain(until_ms, estimated=True))
        await asyncio.sleep(30)
    cluster.node_drains.drains["n1"] = drain(until_ms + 30_000, estimated=True)
    async with world(cluster, store=core.view("b")) as plane:
        await asyncio.sleep(20)
        assert (await record(plane, sandbox.id))["draining_at_ms"] == until_ms
        await asyncio.sleep(15)
        assert (await record(plane, sandbox.id))["end"]["cause"] == "sandbox_evicted"


@pytest.mark.parametrize("later", [None, 600_000])
@pytest.mark.parametrize("known_after_s", [0, 12])
async def test_a_drain_that_changed_while_no_control_plane_ran_ends_nothing(
    later: int | None, known_after_s: int
) -> None:
    cluster, core = FakeCluster(), SharedMemory(VirtualClock())
    drains = cluster.node_drains
    async with world(cluster, store=core.view("a")) as plane:
        sandbox = (await plane.create(OWNER, SPEC)).sandbox
        began_ms = now_ms(plane)
        drains.mark("n1", drain(began_ms + 30_000))
        await asyncio.sleep(20)
    await asyncio.sleep(20)
    moved = None if later is None else drain(began_ms + later)
    drains.drains.clear()
    known, drains.known = drains.known, {} if known_after_s else drains.known
    async with world(cluster, store=core.view("b")) as plane:
        await asyncio.sleep(known_after_s)
        drains.known = known
        drains.mark("n1", moved)
        await asyncio.sleep(20)
        told = await record(plane, sandbox.id)
        assert (told["end"], told["draining_at_ms"]) == (None, later and began_ms + later)
        drains.mark("n1", drain(now_ms(plane) - 1))
        await asyncio.sleep(10)
        assert (await record(plane, sandbox.id))["end"]["cause"] == "sandbox_evicted"


async def test_two_replicas_end_it_once() -> None:
    cluster, core = FakeCluster(annotates_behind=True), SharedMemory(VirtualClock())
    async with world(cluster, store=core.view("a")) as one, world(cluster, store=core.view("b")) as other:
        await asyncio.sleep(0.01)  # both follow the feed
        sandbox = (await one.create(OWNER, SPEC)).sandbox
        cluster.node_drains.mark("n1", drain(now_ms(one) + 10_000))
        await asyncio.sleep(20)
        ended = await record(other, sandbox.id)
        assert ended["end"]["cause"] == "sandbox_evicted"
        words = [at["word"] for at in (await one.api("GET", f"/v1/sandboxes/{sandbox.id}/timeline")).json["moments"]]
        assert words.count("drain") == words.count("sandbox_evicted") == 1


async def test_operators_list_nodes_and_drain_one() -> None:
    async with world() as plane:
        await plane.api("PUT", "/v1/pools/py", body={"template": {"image": "warm"}, "min_warm": 2, "max_warm": 2})
        await plane.create(OWNER, SPEC)
        await asyncio.sleep(5)
        (node,) = (await plane.api("GET", "/v1/nodes")).json["nodes"]
        assert node == {
            "name": "n1",
            "state": "ready",
            "why": "",
            "max_pods": 256,
            "claimed": 1,
            "warm": 2,
            "starting": 0,
            "drain": None,
        }
        told = (await plane.api("PUT", "/v1/nodes/n1/drain", body={"within_ms": 60_000})).json
        assert (told["state"], told["drain"]["by"]) == ("draining", OWNER)
        assert told["drain"]["until_ms"] == now_ms(plane) + 60_000
        assert (await plane.service.levels()).nodes_draining == 1
        await asyncio.sleep(2)
        assert (await plane.api("DELETE", "/v1/nodes/n1/drain")).json["state"] == "ready"
        unknown = await plane.api("PUT", "/v1/nodes/n9/drain", body={})
        assert (unknown.status, unknown.code) == (404, "not_found")
        for body in ({"within_ms": -1}, {"within_ms": 8 * 24 * HOUR_MS}, {"deadline": 1}):
            assert (await plane.api("PUT", "/v1/nodes/n1/drain", body=body)).code == "invalid_argument"
        stranger = Caller(plane.api.app, OTHER_KEY)
        for method, path in (("GET", "/v1/nodes"), ("DELETE", "/v1/nodes/n1/drain")):
            assert (await stranger(method, path)).code == "permission_denied"


async def test_an_engine_has_no_nodes() -> None:
    cluster = FakeCluster()
    cluster.node_drains = None  # type: ignore[assignment]
    async with world(cluster) as plane:
        assert (await plane.api("GET", "/v1/nodes")).code == "unsupported"
        assert (await plane.api("PUT", "/v1/nodes/n1/drain", body={})).code == "unsupported"


@st.composite
def sandboxes(draw: st.DrawFn) -> Sandbox:
    state = draw(st.sampled_from(State))
    return Sandbox(
        "sb-1",
        "o",
        SPEC,
        0,
        5000,
        "f",
        state=state,
        end=None if state.counted else EndCause("deleted", "", 0, ""),
        pool=draw(st.sampled_from(["", "p"])),
        claimed_at_ms=draw(st.none() | st.just(1)),
        draining_at_ms=draw(st.none() | MOMENTS),
        draining_exact=draw(st.booleans()),
    )


DRAINS = st.none() | st.builds(lambda until_ms, estimated: drain(until_ms, estimated=estimated), MOMENTS, st.booleans())


@given(sandbox=sandboxes(), of_node=DRAINS, at_ms=MOMENTS)
def test_steps_settle_and_end_nothing_early(sandbox: Sandbox, of_node: Drain | None, at_ms: int) -> None:
    do, deadline_ms = step(sandbox, of_node, at_ms)
    if do is Step.RETIRE:
        assert sandbox.unclaimed
        assert of_node is not None
    elif do is Step.END:
        assert of_node is not None
        assert not sandbox.unclaimed
        assert deadline_ms == sandbox.draining_at_ms
        assert deadline_ms is not None
        assert deadline_ms <= at_ms
    elif do is Step.TELL:
        told = draining(sandbox, deadline_ms, at_ms, exact=of_node is not None and not of_node.estimated)
        assert told.version == sandbox.version + 1
        again, same_ms = step(told, of_node, at_ms)
        assert again is not Step.TELL
        assert same_ms == deadline_ms
    if do is not Step.NOTHING:
        assert sandbox.state.counted


async def test_gateways_hear_of_it_and_of_each_other_deadline() -> None:
    async with world() as plane:
        sandbox = (await plane.create(OWNER, SPEC)).sandbox

        async def told_ms() -> int:
            with plane.service.board.subscribe() as feed:
                (route,) = (await feed.next()).snapshot.routes
            return route.draining_at_ms

        assert await told_ms() == 0
        until_ms = now_ms(plane) + 60_000
        plane.cluster.node_drains.mark("n1", drain(until_ms))
        await asyncio.sleep(1)
        assert await told_ms() == until_ms
        # Its own end, where that comes first.
        plane.cluster.node_drains.mark("n1", drain(sandbox.expires_at_ms + HOUR_MS))
        await asyncio.sleep(1)
        assert await told_ms() == sandbox.expires_at_ms
        await plane.api("POST", f"/v1/sandboxes/{sandbox.id}/extend", body={"ttl_ms": 2 * HOUR_MS})
        assert await told_ms() == sandbox.expires_at_ms + HOUR_MS
        plane.cluster.node_drains.mark("n1", None)
        await asyncio.sleep(1)
        assert await told_ms() == 0
