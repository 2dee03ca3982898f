"""Claims: replaced when dead, cold with a reason, told to the cluster, and never given twice."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import pytest

from controlplane.cluster import Death
from controlplane.cluster.engine.documents import FileDocuments
from controlplane.errors import Problem
from controlplane.lifecycle.service.groups import SAMPLE, Groups
from controlplane.model import GROUP, Sandbox, SandboxSpec, State, Usage, pool_owner
from controlplane.telemetry import Served
from tests.support.fake_cluster import FakeCluster, FakeSidecars
from tests.support.refilled import refilled
from tests.support.shared_store import SharedMemory
from tests.support.virtual_time import VirtualClock
from tests.support.world import OWNER, SPEC, World, world

ENV_SPEC = SandboxSpec(image=SPEC.image, settings_digest="d" * 64, labels={"l": "m"}, ttl_ms=60_000)
# No refill while a test looks: as many starts a minute as it wants warm ones.
POOL = {"template": {"image": SPEC.image}, "min_warm": 2, "max_warm": 2, "auto": False, "starts_per_minute": 2}


@dataclass
class Sick(FakeCluster):
    """A cluster that notes the owner of a claimed sandbox after ``wait_s``, and fails as often as it is told to."""

    failures: int = 0
    wait_s: float = 0.0
    asked: list[str] = field(default_factory=list)

    async def annotate(self, sandbox_id: str, facts: Mapping[str, str]) -> None:
        if "claim" in facts:
            self.asked.append(sandbox_id)
            await asyncio.sleep(self.wait_s)
            if self.failures:
                self.failures -= 1
                raise Problem("internal", "nobody answers")
        await super().annotate(sandbox_id, facts)


@asynccontextmanager
async def pooled(cluster: FakeCluster | None = None, **more: Any) -> AsyncIterator[World]:
    """A control plane with two warm sandboxes."""
    documents = FileDocuments()
    await documents.put("pools", "p", POOL, None)
    async with world(cluster, documents=documents, **more) as plane:
        await warmed(plane, 2)
        yield plane


async def warmed(plane: World, number: int) -> list[Sandbox]:
    """The warm ones, once there are so many."""
    found: Sequence[Sandbox] = ()
    while len(found) < number:
        await asyncio.sleep(0.1)
        found = await plane.deps.store.find(pool_owner("p"), {}, {State.WARM})
    return list(found)


def counted(plane: World) -> dict[str, float]:
    """Creates of the pool's image, by how they were served."""
    registry = plane.deps.metrics.registry
    found = {
        served: registry.get_sample_value("rollbox_creates_total", {"pool": "p", "served": served})
        for served in get_args(Served)
    }
    return {served: count for served, count in found.items() if count}


async def test_a_create_gets_a_warm_one_that_is_its_owners_from_then_on() -> None:
    async with pooled() as plane:
        warm = await warmed(plane, 2)
        created = await plane.create(OWNER, ENV_SPEC, "k")
        sandbox = created.sandbox
        assert sandbox.id in {one.id for one in warm}
        assert (sandbox.owner, sandbox.state, sandbox.warm, created.replayed) == (OWNER, State.RUNNING, True, False)
        assert sandbox.expires_at_ms == plane.deps.clock.now_ms() + 60_000
        assert [one.id for one in await plane.service.find(OWNER, {"l": "m"})] == [sandbox.id]
        again = await plane.create(OWNER, ENV_SPEC, "k")
        assert (again.replayed, again.sandbox.id) == (True, sandbox.id)
        with pytest.raises(Problem, match="conflict"):
            await plane.create(OWNER, SPEC, "k")
        assert await plane.deps.store.usage(OWNER) == Usage.of(sandbox)
        assert len(plane.cluster.started) == 2


async def test_the_gateways_know_a_warm_one_and_whose_it_is() -> None:
    async with pooled() as plane:
        with plane.service.board.subscribe() as feed:
            routes = (await feed.next()).snapshot.routes
            assert {route.owner for route in routes} == {"pool:p"}
            sandbox = (await plane.create(OWNER, SPEC)).sandbox
            (route,) = (await feed.next()).delta.routes
            assert (route.sandbox_id, route.owner, route.address) == (sandbox.id, OWNER, sandbox.address)


async def test_a_sandbox_that_dies_at_its_claim_is_replaced_in_the_same_call() -> None:
    async with pooled(cluster := Sick(failures=1)) as plane:
        sandbox = (await plane.create(OWNER, ENV_SPEC, "k")).sandbox
        assert (sandbox.warm, len(cluster.asked)) == (True, 2)
        assert counted(plane) == {"warm": 1}
        (dead,) = [one for one in await plane.service.find(OWNER, {}, None) if one.id != sandbox.id]
        assert dead.end is not None
        assert (dead.end.cause, dead.end.detail) == (
            "sandbox_lost",
            "it did not answer when it was claimed: nobody answers",
        )
        assert (await plane.create(OWNER, ENV_SPEC, "k")).sandbox.id == sandbox.id
        assert await plane.deps.store.usage(OWNER) == Usage.of(sandbox)


async def test_who_goes_away_while_a_replacement_starts_leaves_none_behind() -> None:
    async with pooled(Sick(failures=2, wait_s=3)) as plane:
        plane.cluster.ready_s = None
        create = asyncio.create_task(plane.create(OWNER, ENV_SPEC))
        await asyncio.sleep(7)
        (cold,) = [one for one in await plane.service.find(OWNER, {}) if one.cold_reason]
        create.cancel()
        await asyncio.sleep(1)
        assert (await plane.service.get(OWNER, cold.id)).end is not None


async def test_when_all_are_dead_the_next_one_is_cold_and_says_so() -> None:
    documents = FileDocuments()
    await documents.put("pools", "p", POOL | {"min_warm": 5, "max_warm": 5, "starts_per_minute": 5}, None)
    async with world(Sick(failures=4), documents=documents) as plane:
        await warmed(plane, 5)
        sandbox = (await plane.create(OWNER, ENV_SPEC, "k")).sandbox
        assert (sandbox.warm, sandbox.cold_reason) == (False, "4 warm ones were dead when they were claimed")
        assert len(await warmed(plane, 1)) == 1
        assert counted(plane) == {"dead": 1}


async def test_what_is_deleted_while_it_is_claimed_is_not_replaced() -> None:
    async with pooled(Sick(failures=1, wait_s=1)) as plane:
        create = asyncio.create_task(plane.create(OWNER, ENV_SPEC, "k"))
        await asyncio.sleep(0.5)
        assert len((await plane.service.delete_key(OWNER, "k", wait_s=60)).ids) == 1
        with pytest.raises(Problem, match="deleted by its owner"):
            await create
        assert len(await warmed(plane, 1)) == 1
        assert await plane.service.find(OWNER, {}) == []


async def test_a_death_that_is_heard_during_the_claim_is_replaced() -> None:
    async with pooled(Sick(wait_s=1)) as plane:
        create = asyncio.create_task(plane.create(OWNER, ENV_SPEC, "k"))
        await asyncio.sleep(0.5)
        (first,) = await plane.service.find(OWNER, {})
        plane.cluster.kill(Death(first.id, "oom_killed", "the kernel killed it"))
        second = (await create).sandbox
        assert second.id != first.id
        assert (await plane.service.get(OWNER, first.id)).end is not None
        assert (await plane.create(OWNER, ENV_SPEC, "k")).sandbox.id == second.id


async def test_who_repeats_a_key_notes_what_the_one_before_did_not() -> None:
    async with pooled() as plane:
        claimed = await plane.request(OWNER, ENV_SPEC, "k")  # and then its control plane died
        assert "claim" not in plane.cluster.held[claimed.id].facts
        again = await plane.create(OWNER, ENV_SPEC, "k")
        assert (again.replayed, again.sandbox.id) == (True, claimed.id)
        assert "claim" in plane.cluster.held[claimed.id].facts


async def test_who_finds_a_group_notes_what_the_one_before_did_not() -> None:
    async with pooled() as plane:
        spec = ENV_SPEC.model_copy(update={"labels": {GROUP: "g", SAMPLE: "0"}})
        claimed = await plane.request(OWNER, spec, "g/0")  # and then its control plane died
        assert "claim" not in plane.cluster.held[claimed.id].facts
        for _ in range(2):
            found = (await Groups(plane.service).get(OWNER, "g"))[0]
            assert isinstance(found, Sandbox)
            assert found.id == claimed.id
            assert "claim" in plane.cluster.held[claimed.id].facts


async def test_a_repetition_takes_nothing_away_from_one_that_is_in_use() -> None:
    async with pooled(cluster := Sick()) as plane:
        sandbox = (await plane.create(OWNER, ENV_SPEC.model_copy(update={"ttl_ms": 600_000}), "k")).sandbox
        await asyncio.sleep(120)
        cluster.failures = 1
        with pytest.raises(Problem, match="nobody answers"):
            await plane.create(OWNER, ENV_SPEC.model_copy(update={"ttl_ms": 600_000}), "k")
        assert (await plane.service.get(OWNER, sandbox.id)).state is State.RUNNING


async def test_a_claim_that_its_client_abandoned_is_deleted() -> None:
    async with pooled(Sick(wait_s=1)) as plane:
        create = asyncio.create_task(plane.create(OWNER, ENV_SPEC, "k"))
        await asyncio.sleep(0.5)
        create.cancel()
        (sandbox,) = await plane.service.find(OWNER, {})
        assert list((await plane.service.delete_key(OWNER, "k", wait_s=60)).ids) == [sandbox.id]
        assert await plane.service.find(OWNER, {}) == []
        with pytest.raises(Problem, match="deleted by its owner"):
            await plane.create(OWNER, ENV_SPEC, "k")


async def test_a_creator_without_a_key_who_hung_up_before_leaves_nothing() -> None:
    async with pooled() as plane:
        gone = asyncio.Event()
        gone.set()
        await plane.api("POST", "/v1/sandboxes", body={"image": SPEC.image}, hang_up=gone)
        await asyncio.sleep(1)
        assert await plane.service.find(OWNER, {}) == []
        assert len(await plane.service.find(OWNER, {}, {State.ENDED})) == 1


async def test_the_answer_says_whether_it_was_warm_and_why_not() -> None:
    async with pooled() as plane:
        warm = await plane.api("POST", "/v1/sandboxes", body={"image": SPEC.image})
        assert (warm.json["source"], warm.json["cold_reason"]) == ("warm", "")
        cold = await plane.api("POST", "/v1/sandboxes", body={"image": SPEC.image, "pids_limit": 64})
        assert (cold.json["source"], cold.json["cold_reason"]) == (
            "cold",
            f"pool p keeps {SPEC.image} with other pids_limit",
        )


async def test_options_that_a_pool_cannot_bind_late_start_cold_and_say_so() -> None:
    async with pooled() as plane:
        other = SandboxSpec(image=SPEC.image, pids_limit=100)
        sandbox = (await plane.create(OWNER, other)).sandbox
        assert sandbox.cold_reason == f"pool p keeps {SPEC.image} with other pids_limit"
        elsewhere = (await plane.create(OWNER, SandboxSpec(image="b"))).sandbox
        assert (elsewhere.warm, elsewhere.cold_reason) == (False, "")
        for _ in range(2):
            assert (await plane.create(OWNER, SPEC)).sandbox.warm
        assert (await plane.create(OWNER, SPEC)).sandbox.cold_reason == "pool p had none ready"


async def test_a_claimed_one_expires_when_its_owner_said() -> None:
    async with pooled() as plane:
        sandbox = (await plane.create(OWNER, ENV_SPEC)).sandbox
        await asyncio.sleep(61)
        ended = (await plane.service.get(OWNER, sandbox.id)).end
        assert ended is not None
        assert ended.cause == "ttl_expired"


async def test_a_warm_one_outlives_the_deadline_of_its_start() -> None:
    async with pooled() as plane:
        before = {one.id for one in await warmed(plane, 2)}
        await asyncio.sleep(SPEC.start_timeout_ms / 1000 + 60)
        assert {one.id for one in await warmed(plane, 2)} == before


async def test_after_a_restart_the_claimed_one_is_its_owners_and_the_warm_one_warm() -> None:
    cluster = FakeCluster()
    async with pooled(cluster=cluster) as before:
        sandbox = (await before.create(OWNER, ENV_SPEC, "k")).sandbox
    documents = FileDocuments()
    await documents.put("pools", "p", POOL | {"min_warm": 1, "max_warm": 1, "starts_per_minute": 1}, None)
    async with world(cluster, documents=documents) as after:
        adopted = await after.service.get(OWNER, sandbox.id)
        assert (adopted.owner, adopted.claimed_at_ms, adopted.pool) == (OWNER, sandbox.claimed_at_ms, "p")
        assert (adopted.expires_at_ms, adopted.spec.labels) == (sandbox.expires_at_ms, {"l": "m"})
        assert (await after.create(OWNER, ENV_SPEC, "k")).sandbox.id == sandbox.id
        (warm,) = await warmed(after, 1)
        store = after.deps.store
        assert await store.usage(None) == await store.usage(OWNER) + await store.usage(pool_owner("p"))
        assert (await after.create("bob", SPEC)).sandbox.id == warm.id


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[SharedMemory, World, World]]:
    """Two replicas on one store, with two warm sandboxes; facts are written behind."""
    cluster, sidecars, documents = FakeCluster(annotates_behind=True), FakeSidecars(), FileDocuments()
    core = SharedMemory(VirtualClock())
    await documents.put("pools", "p", POOL, None)
    async with (
        world(cluster, sidecars, store=core.view("a"), documents=documents) as a,
        world(cluster, sidecars, store=core.view("b"), documents=documents) as b,
    ):
        await warmed(a, 2)
        await asyncio.sleep(6)  # their facts are written
        yield core, a, b


async def nobody_knows(of: Sandbox, *replicas: World) -> None:
    """Lets a claim be known to the store alone, as when the only replica that knew of it died before it wrote that."""
    await asyncio.sleep(0.01)  # what is on its way to the others has come
    for plane in replicas:
        plane.service._core.annotations.forget(of.id)
        recent = plane.service._core.ledger._facts
        recent._records.pop(of.id, None)
        recent._since_ms.pop(of.id, None)


async def test_the_cluster_hears_behind_whose_a_claimed_one_is() -> None:
    async with pair() as (core, a, b):
        sandbox = (await a.create(OWNER, ENV_SPEC, "k")).sandbox
        assert "claim" not in a.cluster.held[sandbox.id].facts
        await asyncio.sleep(6)
        assert "claim" in a.cluster.held[sandbox.id].facts
        core.empty()
        assert (await b.service.get(OWNER, sandbox.id)).owner == OWNER
        assert (await b.create(OWNER, ENV_SPEC, "k")).sandbox.id == sandbox.id


async def test_a_store_that_is_lost_right_after_a_claim_gives_its_sandbox_to_nobody_else() -> None:
    async with pair() as (core, a, b):
        claimed = [(await a.create(OWNER, ENV_SPEC, f"k{n}")).sandbox for n in range(2)]
        core.empty()
        others = await asyncio.gather(*(b.create("bob", SPEC) for _ in range(4)))
        assert not {one.sandbox.id for one in others} & {one.id for one in claimed}
        for number, one in enumerate(claimed):
            assert (await b.create(OWNER, ENV_SPEC, f"k{number}")).sandbox.id == one.id


async def test_what_a_dead_replica_had_claimed_the_others_know() -> None:
    async with pair() as (core, a, b):
        waiting = await a.request(OWNER, ENV_SPEC, "k")  # and then its control plane died
        sandbox = (await a.create(OWNER, SPEC, "l")).sandbox
        for one in (waiting, sandbox):
            await nobody_knows(one, a)
        core.empty()
        assert (await b.service.get(OWNER, sandbox.id)).state is State.RUNNING
        again = (await b.create(OWNER, ENV_SPEC, "k")).sandbox
        assert again.id == waiting.id
        await asyncio.sleep(70)
        assert "claim" in b.cluster.held[sandbox.id].facts


async def test_what_only_a_dead_replica_knew_to_be_claimed_is_given_to_nobody_else() -> None:
    async with pair() as (core, a, b):
        (one, other) = [(await a.create(OWNER, ENV_SPEC, f"k{n}")).sandbox for n in range(2)]
        for dead in (one, other):
            await nobody_knows(dead, a, b)
        core.empty()
        for _ in range(20):
            bobs = (await b.create("bob", SPEC)).sandbox
            assert bobs.id not in (one.id, other.id)
            await asyncio.sleep(1)
        assert not {one.id, other.id} & set(b.cluster.held)
        ends = [(await b.deps.store.get(dead.id)) for dead in (one, other)]
        assert {end.end.cause for end in ends if end and end.end} == {"ttl_expired"}
        await asyncio.sleep(60)
        assert len(await warmed(b, 2)) == 2


@asynccontextmanager
async def unmarked(sidecar: str) -> AsyncIterator[tuple[World, Sandbox]]:
    """A replica that rebuilds without a word of a claimed sandbox whose sidecar is ``acknowledged``, or ``dead``."""
    async with pair() as (core, a, b):
        sandbox = (await a.create(OWNER, ENV_SPEC, "k")).sandbox
        await nobody_knows(sandbox, a, b)
        a.cluster.held[sandbox.id].facts.clear()
        getattr(a.sidecars, sidecar).add(sandbox.address)
        core.empty()
        assert (await b.create("bob", SPEC)).sandbox.id != sandbox.id
        yield b, sandbox


async def test_one_that_nobody_marked_as_ready_is_not_claimable_after_a_rebuild_either() -> None:
    async with unmarked("acknowledged") as (b, sandbox):
        found = await b.deps.store.get(sandbox.id)
        assert found is not None
        assert found.state is State.WARM
        assert found.expires_at_ms < (found.ready_at_ms or 0)


async def test_a_pool_fills_up_again_beside_what_was_rebuilt_and_leaves_that_to_its_expiry() -> None:
    async with pair() as (_, a, _b):
        cluster, documents = a.cluster, a.deps.documents
    before = set(cluster.held)
    known = await documents.get("pools", "p")
    assert known is not None
    await documents.put("pools", "p", POOL | {"starts_per_minute": 60}, known.version)
    async with world(cluster, store=SharedMemory(VirtualClock()).view("c"), documents=documents) as c:
        await asyncio.sleep(4)
        store = c.deps.store
        assert len(before) == 2
        assert before < {one.id for one in await store.find(pool_owner("p"), {}, {State.WARM})}
        assert await store.warm(SPEC.template_hash()) == 2
        (pool,) = c.service._core.pools._pools.values()
        assert (pool._demand._refill_ms or 0) < 60_000
        await asyncio.sleep(4)
        assert await store.warm(SPEC.template_hash()) == 2
        assert not before & set(cluster.held)


async def test_one_that_does_not_answer_a_rebuild_is_not_started_again_as_if_nobody_had_claimed_it() -> None:
    async with unmarked("dead") as (b, sandbox):
        assert await b.deps.store.get(sandbox.id) is None
        await asyncio.sleep(SPEC.start_timeout_ms / 1000 + 70)
        assert sandbox.id not in b.cluster.held


async def test_a_claim_whose_note_was_lost_is_told_to_the_cluster_again() -> None:
    async with pair() as (core, a, b):
        sandbox = (await a.create(OWNER, ENV_SPEC.model_copy(update={"ttl_ms": 600_000}), "k")).sandbox
        await nobody_knows(sandbox, a, b)
        await asyncio.sleep(70)
        assert "claim" in a.cluster.held[sandbox.id].facts
        core.empty()
        assert (await b.service.get(OWNER, sandbox.id)).owner == OWNER


async def test_a_claim_that_a_restarted_store_has_lost_is_what_a_replica_or_the_cluster_knows() -> None:
    async with pair() as (core, a, b):
        before = core.copy()
        (told, untold) = [(await a.create(OWNER, ENV_SPEC, f"k{n}")).sandbox for n in range(2)]
        await asyncio.sleep(10)  # the cluster knows whose they are
        for world in (a, b):
            world.service._core.ledger._facts._records.pop(told.id)
            world.service._core.ledger._facts._since_ms.pop(told.id, None)
        b.cluster.held[untold.id].facts.pop("claim")
        core.rewind(before)
        again = [(await b.create(OWNER, ENV_SPEC, f"k{n}")).sandbox for n in range(2)]
        assert [one.id for one in again] == [told.id, untold.id]
        assert (await b.deps.store.usage(OWNER)).sandboxes == 2


async def unaware() -> None:
    """A replica that has not noticed that the store is lost."""


@pytest.mark.parametrize("state", [State.WARM, State.STARTING])
async def test_a_claim_that_another_replica_rebuilt_without_is_put_back_by_its_own(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair() as (core, a, b):
        (first, second) = [(await a.create(OWNER, ENV_SPEC, f"k{n}")).sandbox for n in range(2)]
        await asyncio.sleep(0.01)  # `b` has heard of them
        for one in (first, second):
            b.service._core.ledger._facts._records.pop(one.id)
        b.service._core.ledger._facts._since_ms.clear()
        core.empty()
        if state is State.STARTING:
            # What a replica still holds of its start, which had not heard of the claim.
            pools = replace(first, owner=pool_owner("p"), claimed_at_ms=None, claim_id="", idempotency_key=None)
            await b.deps.store.restore(replace(pools, state=state, ready_at_ms=None, version=2))
        with monkeypatch.context() as patch:
            patch.setattr(a.service._core.store, "ensure", unaware)
            await b.service._core._upkeep._comparison._observer.run()
            await refilled(b.deps.store)  # before `a` knew of the loss
        found = await b.deps.store.get(first.id)
        assert found is not None
        assert found.state is state
        await asyncio.sleep(5)
        assert (await b.service.get(OWNER, first.id)).state is State.RUNNING
        assert (await b.deps.store.usage(OWNER)).sandboxes == 2
        assert first.id not in {one.id for one in await b.deps.store.find(pool_owner("p"), {})}


async def test_a_claim_whose_answer_was_lost_is_its_keys_or_nobodys() -> None:
    async with pair() as (_, a, b):
        store = a.deps.store
        claim = store.claim

        async def unanswered(*asked: Any) -> object:
            await claim(*asked)
            raise Problem("upstream_timeout", "Redis at redis:6379 did not do what was asked")

        store.claim = unanswered  # type: ignore[method-assign,assignment]
        for key in ("k", None):
            with pytest.raises(Problem, match="upstream_timeout"):
                await a.create(OWNER, SPEC, key)
        store.claim = claim  # type: ignore[method-assign]
        again = await b.create(OWNER, SPEC, "k")
        assert (again.replayed, again.sandbox.warm) == (True, True)
        await asyncio.sleep(1)
        assert [one.id for one in await b.service.find(OWNER, {})] == [again.sandbox.id]


async def test_two_replicas_never_give_one_sandbox_to_two() -> None:
    async with pair() as (_, a, b):
        created = await asyncio.gather(*(plane.create(OWNER, SPEC) for plane in (a, b) * 4))
        ids = [one.sandbox.id for one in created]
        assert len(set(ids)) == 8
        assert sum(one.sandbox.warm for one in created) == 2
        await asyncio.sleep(1)
        for plane in (a, b):
            with plane.service.board.subscribe() as feed:
                owners = {route.sandbox_id: route.owner for route in (await feed.next()).snapshot.routes}
                assert {owners[one] for one in ids} == {OWNER}
