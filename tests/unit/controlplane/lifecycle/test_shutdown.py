"""What runs in the background: deadlines beside hung engines, races, shutdown, and that nothing piles up."""

import asyncio

import pytest

from controlplane.cluster import Boot, Started
from controlplane.cluster.finish import finish
from controlplane.errors import Problem
from controlplane.lifecycle import Options, Push
from controlplane.model import SandboxSpec, State
from tests.support.fake_cluster import FakeCluster
from tests.support.world import OWNER, SPEC, World, world


class HungCluster(FakeCluster):
    """Its engine takes an hour for everything, and a cancelled call waits for the answer."""

    async def start(self, sandbox_id: str, spec: SandboxSpec, boot: Boot) -> Started:
        self.started.append(sandbox_id)
        await finish(asyncio.create_task(asyncio.sleep(3600)))
        return Started(None)

    async def stop(self, sandbox_id: str) -> None:
        await finish(asyncio.create_task(asyncio.sleep(3600)))


async def test_a_start_timeout_is_kept_also_when_the_engine_hangs() -> None:
    async with world(HungCluster()) as plane:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        with pytest.raises(Problem, match="start_timeout"):
            await plane.create(OWNER, SandboxSpec(image="a", start_timeout_ms=500))
        assert loop.time() - began_s == pytest.approx(0.5)


async def test_a_delete_of_a_start_that_hangs_answers_its_creator_at_once() -> None:
    async with world(HungCluster()) as plane:
        create = asyncio.create_task(plane.create(OWNER, SPEC, "k"))
        await asyncio.sleep(1)
        delete = asyncio.create_task(plane.service.delete_key(OWNER, "k", wait_s=60))
        await asyncio.sleep(0.001)
        assert isinstance(create.exception(), Problem)
        assert list((await delete).failed) == plane.cluster.started


async def test_the_end_does_not_wait_for_an_engine_that_hangs() -> None:
    loop = asyncio.get_running_loop()
    async with world(HungCluster()) as plane:
        creates = [asyncio.create_task(plane.create(OWNER, SPEC, f"k{n}")) for n in range(3)]
        await asyncio.sleep(1)
        delete = asyncio.create_task(plane.service.delete_key(OWNER, "k0", wait_s=60))
        await asyncio.sleep(1)
        left_s = loop.time()
    assert loop.time() - left_s < 12
    for one in (delete, *creates):
        one.cancel()
    await asyncio.wait([delete, *creates])


@pytest.mark.parametrize("timeout_ms", [100, 119, 120, 121])
async def test_a_deadline_at_the_moment_of_readiness_is_one_or_the_other(timeout_ms: int) -> None:
    async with world() as plane:
        spec = SandboxSpec(image="a", start_timeout_ms=timeout_ms)
        create = asyncio.create_task(plane.create(OWNER, spec))
        await asyncio.sleep(10)
        (record,) = await plane.service.find(OWNER, {}, None)
        if create.exception() is None:
            assert record.state is State.RUNNING
            assert list(plane.cluster.held) == [record.id]
        else:
            assert record.state is State.ENDED
            assert plane.cluster.held == {}


async def test_who_asks_after_the_start_has_settled_hears_what_came_of_it(plane: World) -> None:
    plane.cluster.start_s = 0
    plane.cluster.next_error = Problem("image_not_found", "there is no image a")
    sandbox = await plane.request(OWNER, SPEC)
    await asyncio.sleep(1)
    with pytest.raises(Problem, match="image_not_found"):
        await plane.service.ready(sandbox)
    other = await plane.request(OWNER, SPEC)
    await asyncio.sleep(1)
    assert (await plane.service.ready(other)).state is State.RUNNING


async def test_a_bug_while_one_is_stopped_takes_no_other_down(plane: World, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = (await plane.create(OWNER, SPEC)).sandbox
    stop, calls = plane.cluster.stop, 0

    async def broken(sandbox_id: str) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ZeroDivisionError
        await stop(sandbox_id)

    monkeypatch.setattr(plane.cluster, "stop", broken)
    assert (await plane.service.delete(OWNER, sandbox.id, wait_s=60)).state is State.ENDED


async def test_drain_waits_while_the_cluster_gets_on_with_it() -> None:
    async with world(FakeCluster(stop_s=35), options=Options(starts_in_flight=20)) as plane:
        await asyncio.gather(*(plane.create(OWNER, SPEC) for _ in range(20)))
        drained = await plane.service.drain(delete=True)
        assert (len(drained.ids), dict(drained.failed)) == (20, {})
        assert plane.cluster.held == {}


async def test_a_push_cannot_say_that_its_sandbox_is_elsewhere() -> None:
    async with world(FakeCluster(ready_s=None)) as plane:
        create = asyncio.create_task(plane.create(OWNER, SPEC))
        await asyncio.sleep(1)
        ((sandbox_id, held),) = plane.cluster.held.items()
        await plane.service.accept_push(held.boot.ready_token, Push(sandbox_id, address="unix:/other/agent.sock"))
        assert (await create).sandbox.address == f"unix:/fake/{sandbox_id}"


async def test_an_extension_at_the_moment_of_expiry_is_one_or_the_other() -> None:
    async with world() as plane:
        sandbox = (await plane.create(OWNER, SandboxSpec(image="a", ttl_ms=5_000))).sandbox
        await asyncio.sleep(5 - 0.12)
        extend = asyncio.create_task(plane.service.extend(OWNER, sandbox.id, 60_000))
        await asyncio.wait([extend])
        await asyncio.sleep(30)
        state = (await plane.service.get(OWNER, sandbox.id)).state
        assert state is (State.RUNNING if extend.exception() is None else State.ENDED)


async def test_two_deletes_and_a_ttl_at_once_are_one_end(plane: World) -> None:
    sandbox = (await plane.create(OWNER, SandboxSpec(image="a", ttl_ms=5_000), "k")).sandbox
    await asyncio.sleep(5 - 0.12)
    one, two = await asyncio.gather(
        plane.service.delete(OWNER, sandbox.id, wait_s=60), plane.service.delete_key(OWNER, "k", wait_s=60)
    )
    assert one.state is State.ENDED
    assert two.ids == [sandbox.id]
    assert plane.cluster.stopped == [sandbox.id]


async def test_two_thousand_sandboxes_leave_nothing_behind() -> None:
    async with world(options=Options(starts_in_flight=64)) as plane:
        for turn in range(4):
            run = {"run": "r"}
            spec = SandboxSpec(image="a", labels=run)
            await asyncio.gather(*(plane.create(OWNER, spec, f"k{turn}-{n}") for n in range(500)))
            assert len((await plane.service.delete_all(OWNER, run, wait_s=60)).ids) == 500
            await plane.service.delete_key(OWNER, "never", wait_s=60)
        # Once only: the planner looks every second of it.
        await asyncio.sleep(25 * 3600)
        assert await plane.service.find(OWNER, {}, None) == []
        parts, store = plane.service._core, plane.deps.store
        kept = (
            parts.starts._tasks,
            parts.settlements._unsettled,
            parts.readiness._begun,
            parts.expiry.ttl._timers._deadlines._moments,
            parts.reclaimer._under_way,
            vars(store)["_records"],
            vars(store)["_keys"],
            vars(store)["_tombstones"],
            parts.ledger._held,
            parts.readiness._busy,
            parts.line.slots._starts,
            vars(store)["_slots"],
        )
        assert [len(one) for one in kept] == [0] * len(kept)
        assert len(parts.expiry.ttl._timers._deadlines._heap) <= 1024
