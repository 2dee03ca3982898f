"""After a restart: adopt, bury, remove."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from controlplane.cluster import Boot, Death, Health
from controlplane.errors import Problem
from controlplane.lifecycle.record.timeline import story
from controlplane.model import Sandbox, SandboxSpec, State
from controlplane.store import MemoryStore, UnreadableRecordError
from tests.support.fake_cluster import FakeCluster, FakeSidecars, Held
from tests.support.virtual_time import VirtualClock
from tests.support.world import OWNER, SPEC, world


async def test_what_runs_is_adopted_with_key_token_and_route() -> None:
    cluster = FakeCluster()
    async with world(cluster) as before:
        sandbox = (await before.create(OWNER, SandboxSpec(image="a", labels={"l": "m"}), "k")).sandbox
    async with world(cluster) as after:
        adopted = await after.service.get(OWNER, sandbox.id)
        told = replace(sandbox, version=0, timings_ms={}, spec=adopted.spec, timeline=adopted.timeline, callers=())
        assert adopted == told
        assert [one.word for one in story(adopted)] == ["request", "ready", "adopt"]
        again = await after.create(OWNER, SandboxSpec(image="a", labels={"l": "m"}), "k")
        assert again.replayed
        with pytest.raises(Problem, match="conflict"):
            await after.create(OWNER, SandboxSpec(image="b"), "k")
        with after.service.board.subscribe() as feed:
            (route,) = (await feed.next()).snapshot.routes
            assert (route.sandbox_id, route.address) == (sandbox.id, f"unix:/fake/{sandbox.id}")
        assert (await after.service.delete(OWNER, sandbox.id, wait_s=60)).state is State.ENDED
    assert cluster.held == {}


async def test_an_extension_outlives_a_restart() -> None:
    cluster = FakeCluster()
    async with world(cluster) as before:
        sandbox = (await before.create(OWNER, SandboxSpec(image="a", ttl_ms=10_000))).sandbox
        extended = await before.service.extend(OWNER, sandbox.id, 100_000)
    async with world(cluster) as after:
        assert (await after.service.get(OWNER, sandbox.id)).expires_at_ms == extended.expires_at_ms


async def test_an_adopted_sandbox_still_expires() -> None:
    cluster = FakeCluster()
    async with world(cluster) as before:
        sandbox = (await before.create(OWNER, SandboxSpec(image="a", ttl_ms=10_000))).sandbox
    async with world(cluster) as after:
        await asyncio.sleep(11)
        ended = (await after.service.get(OWNER, sandbox.id)).end
        assert ended is not None
        assert ended.cause == "ttl_expired"


async def test_what_expired_meanwhile_is_buried() -> None:
    cluster = FakeCluster()
    async with world(cluster) as before:
        sandbox = (await before.create(OWNER, SandboxSpec(image="a", ttl_ms=10_000))).sandbox
    await asyncio.sleep(60)
    async with world(cluster) as after:
        ended = (await after.service.get(OWNER, sandbox.id)).end
        assert ended is not None
        assert ended.cause == "ttl_expired"
        await asyncio.sleep(1)
    assert cluster.held == {}


async def test_what_died_meanwhile_gets_its_tombstone() -> None:
    cluster = FakeCluster()
    async with world(cluster) as before:
        sandbox = (await before.create(OWNER, SPEC)).sandbox
    cluster.held[sandbox.id].death = Death(sandbox.id, "oom_killed", "the kernel killed the sidecar for memory")
    async with world(cluster) as after:
        with pytest.raises(Problem, match="oom_killed"):
            await after.service.alive(OWNER, sandbox.id)
        await asyncio.sleep(1)
        assert (await after.service.get(OWNER, sandbox.id)).state is State.ENDED
    assert cluster.held == {}


async def test_what_gives_no_proof_of_life_is_lost() -> None:
    cluster, sidecars = FakeCluster(), FakeSidecars()
    async with world(cluster, sidecars) as before:
        sandbox = (await before.create(OWNER, SPEC)).sandbox
    sidecars.dead.add(f"unix:/fake/{sandbox.id}")
    async with world(cluster, sidecars) as after:
        with pytest.raises(Problem, match="sandbox_lost: it gave no proof of life after a restart"):
            await after.service.alive(OWNER, sandbox.id)


async def test_one_call_that_fails_is_no_death_where_a_network_lies_between() -> None:
    cluster, sidecars = FakeCluster(annotates_behind=True), FakeSidecars()
    async with world(cluster, sidecars) as before:
        sandbox = (await before.create(OWNER, SPEC)).sandbox
        await asyncio.sleep(1)
    sidecars.dead.add(sandbox.address or "")
    async with world(cluster, sidecars) as after:
        assert (await after.service.alive(OWNER, sandbox.id)).state is State.RUNNING
    assert len(cluster.held) == 1


async def test_what_never_got_ready_is_removed_and_its_key_is_free() -> None:
    cluster = FakeCluster(ready_s=None)
    async with world(cluster) as before:
        create = asyncio.create_task(before.create(OWNER, SPEC, "k"))
        await asyncio.sleep(1)
        create.cancel()
    assert len(cluster.held) == 1
    cluster.ready_s = 0.1
    async with world(cluster) as after:
        assert not (await after.create(OWNER, SPEC, "k")).replayed
    assert len(cluster.held) == 1


async def test_what_cannot_be_read_is_removed() -> None:
    cluster = FakeCluster()
    cluster.held["sb-x"] = Held(SPEC, Boot("t", "k", "damaged"), {"ready_at_ms": "1"})
    async with world(cluster) as after:
        await asyncio.sleep(1)
        assert await after.service.find(OWNER, {}, None) == []
    assert cluster.held == {}


class OddStore(MemoryStore):
    """One record in it is of another version."""

    async def get(self, sandbox_id: str) -> Sandbox | None:
        return await self.peek(sandbox_id)

    async def peek(self, sandbox_id: str) -> Sandbox | None:
        if sandbox_id == "sb-odd":
            raise UnreadableRecordError(sandbox_id, "it is odd")
        return await super().peek(sandbox_id)


async def test_what_has_a_record_that_cannot_be_read_is_left_alone() -> None:
    clock = VirtualClock()
    cluster = FakeCluster()
    for name in ("sb-odd", "sb-x"):
        cluster.held[name] = Held(SPEC, Boot("t", "k", "damaged"), {"ready_at_ms": "1"})
    async with world(cluster, clock=clock, store=OddStore(clock)):
        await asyncio.sleep(1)
    assert list(cluster.held) == ["sb-odd"]


class Hesitant(FakeSidecars):
    """Does not answer the first call."""

    async def health(self, address: str, token: str) -> Health:
        if self.dead:
            self.dead.clear()
            raise Problem("sandbox_unreachable", "it does not answer yet")
        return await super().health(address, token)


async def test_one_that_nobody_has_marked_is_asked_more_than_once_before_it_is_removed() -> None:
    cluster, sidecars = FakeCluster(annotates_behind=True), Hesitant()
    async with world(cluster, sidecars) as before:
        sandbox = (await before.create(OWNER, SandboxSpec(image="a", start_timeout_ms=1_000))).sandbox
        await asyncio.sleep(2)
    cluster.held[sandbox.id].facts.clear()
    sidecars.acknowledged.add(sandbox.address or "")
    sidecars.dead.add("the first")
    async with world(cluster, sidecars) as after:
        assert (await after.service.alive(OWNER, sandbox.id)).state is State.RUNNING


SOON = SandboxSpec(image="a", start_timeout_ms=1_000, ttl_ms=600_000)


@asynccontextmanager
async def unmarked(spec: SandboxSpec = SOON) -> AsyncIterator[tuple[FakeCluster, FakeSidecars, Sandbox]]:
    """A sandbox that ran, of which the cluster was told nothing; all replicas and the store are gone."""
    cluster, sidecars = FakeCluster(annotates_behind=True), FakeSidecars()
    async with world(cluster, sidecars) as before:
        sandbox = (await before.create(OWNER, spec, "k")).sandbox
        extended = await before.service.extend(OWNER, sandbox.id, 700_000)
        await asyncio.sleep(2)
    for name in ("ready_at_ms", "address", "kernel"):
        cluster.held[sandbox.id].facts.pop(name, None)
    yield cluster, sidecars, extended


@pytest.mark.parametrize("answers", [True, False])
async def test_one_that_somebody_created_goes_on_whether_it_answers_a_rebuild_or_not(answers: bool) -> None:
    async with unmarked() as (cluster, sidecars, sandbox):
        (sidecars.acknowledged if answers else sidecars.dead).add(sandbox.address or "")
        async with world(cluster, sidecars) as after:
            found = await after.service.alive(OWNER, sandbox.id)
            assert (found.state, found.address) == (State.RUNNING, sandbox.address)
            assert found.kernel == ("Linux" if answers else "")
            assert found.expires_at_ms == sandbox.expires_at_ms
            assert (await after.create(OWNER, SOON, "k")).replayed


async def test_one_that_says_nobody_heard_that_it_is_ready_is_removed() -> None:
    async with unmarked() as (cluster, sidecars, sandbox), world(cluster, sidecars) as after:
        with pytest.raises(Problem, match="sandbox_not_found"):
            await after.service.alive(OWNER, sandbox.id)


async def test_the_end_of_one_that_nobody_has_marked_keeps_its_cause() -> None:
    async with unmarked() as (cluster, sidecars, sandbox):
        cluster.held[sandbox.id].death = Death(sandbox.id, "oom_killed", "it took too much")
        async with world(cluster, sidecars) as after:
            with pytest.raises(Problem, match="oom_killed: it took too much"):
                await after.service.alive(OWNER, sandbox.id)


async def test_one_that_is_not_where_its_record_says_is_ended() -> None:
    cluster, clock = FakeCluster(annotates_behind=True), VirtualClock()
    store = MemoryStore(clock)
    async with world(cluster, clock=clock, store=store) as before:
        sandbox = (await before.create(OWNER, SPEC)).sandbox
        forged = replace(sandbox, address="http://10.0.0.9:7070", version=sandbox.version + 1)
        assert await store.replace(forged, sandbox.version)
        await before.service._core._upkeep.orphans()
        await asyncio.sleep(1)
        with pytest.raises(Problem, match=r"sandbox_lost: its readiness push was forged.*10\.0\.0\.9"):
            await before.service.alive(OWNER, sandbox.id)
