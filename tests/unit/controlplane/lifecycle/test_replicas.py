"""Two control planes on one store: a start, its push, its end and its waiters may all be at different ones."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from controlplane.cluster import Death
from controlplane.errors import Problem
from controlplane.lifecycle import Options, Push
from controlplane.model import Sandbox, SandboxSpec, State
from controlplane.store import Resync
from tests.support.fake_cluster import FakeCluster, FakeSidecars
from tests.support.refilled import refilled
from tests.support.shared_store import SharedMemory
from tests.support.virtual_time import VirtualClock
from tests.support.world import OWNER, SPEC, World, world

ENV_SPEC = SandboxSpec(image="a", settings_digest="d" * 64)


@dataclass
class Pair:
    """Two replicas; pushes land at `b`."""

    core: SharedMemory
    cluster: FakeCluster
    sidecars: FakeSidecars
    a: World
    b: World


def on_kubernetes(ready_s: float | None = 0.02, **more: object) -> FakeCluster:
    """A cluster where an announcement does not wait for its facts to be written."""
    return FakeCluster(ready_s=ready_s, annotates_behind=True, **more)  # type: ignore[arg-type]


@asynccontextmanager
async def pair(cluster: FakeCluster | None = None, options: Options | None = None) -> AsyncIterator[Pair]:
    cluster, sidecars = cluster or on_kubernetes(), FakeSidecars()
    core = SharedMemory(VirtualClock())
    async with (
        world(cluster, sidecars, options, store=core.view("a")) as a,
        world(cluster, sidecars, options, store=core.view("b")) as b,
    ):
        await asyncio.sleep(0.01)  # both follow the feed
        yield Pair(core, cluster, sidecars, a, b)


async def recorded(plane: World) -> Sandbox:
    """The only sandbox on record."""
    (sandbox,) = await plane.deps.store.find(None, {}, None)
    return sandbox


async def routes(plane: World) -> list[str]:
    with plane.service.board.subscribe() as feed:
        return [route.sandbox_id for route in (await feed.next()).snapshot.routes]


async def ends(plane: World) -> list[tuple[str, str]]:
    with plane.service.board.subscribe() as feed:
        return [(end.sandbox_id, end.cause) for end in (await feed.next()).snapshot.ends]


def kill(plane: World) -> None:
    """Ends a replica as a SIGKILL does: nothing is handed over, its lease lapses."""
    parts = plane.service._core
    for task in (*parts._loops, *parts.starts._tasks.values()):
        task.cancel()


async def test_a_push_completes_a_start_of_another_replica() -> None:
    async with pair() as two:
        created = await two.a.create(OWNER, ENV_SPEC)
        assert created.sandbox.state is State.RUNNING
        assert created.sandbox.address == f"http://10.0.0.1:7070/{created.sandbox.id}"
        assert await routes(two.a) == await routes(two.b) == [created.sandbox.id]


WHOLE = {"queue", "start", "ready_push", "boot", "total"}


async def test_a_start_whose_push_lands_elsewhere_has_all_its_phases() -> None:
    async with pair(on_kubernetes(ready_s=3, start_s=2)) as two:
        created = (await two.a.create(OWNER, SPEC)).sandbox
        assert created.timings_ms == {
            "queue": 0,
            "start": 2_000,
            "ready_push": 3_000,
            "boot": 0,
            "total": 5_000,
        }
        await asyncio.sleep(1)
        for plane in (two.a, two.b):
            assert (await plane.service.get(OWNER, created.id)).timings_ms == created.timings_ms
        for phase in WHOLE:
            counted = [
                plane.deps.metrics.registry.get_sample_value(
                    "rollbox_create_phase_seconds_count", {"phase": phase, "start": "cold"}
                )
                for plane in (two.a, two.b)
            ]
            assert sum(one or 0 for one in counted) == 1, (phase, counted)


@pytest.mark.parametrize("by", ["a", "b"])
async def test_a_push_before_the_cluster_has_answered(by: str) -> None:
    async with pair(on_kubernetes(ready_s=None, start_s=10)) as two:
        create = asyncio.create_task(two.a.create(OWNER, SPEC, "k"))
        await asyncio.sleep(4)
        sandbox = await recorded(two.a)
        token = two.a.deps.key.readiness(sandbox).text
        taking = {"a": two.a, "b": two.b}[by]
        await taking.service.accept_push(token, Push(sandbox.id, "http://10.0.0.1:7070", "k", boot_ms=500))
        known = (await create).sandbox.timings_ms
        # Only the replica that asked the cluster knows that it has not answered.
        told = {"start": 4_000, "ready_push": 0} if by == "a" else {"unknown": 3_500}
        assert known == {"queue": 0, **told, "boot": 500, "total": 4_000}


async def test_what_the_cluster_has_answered_to_a_replica_that_died_is_known_to_the_next_one() -> None:
    core, cluster = SharedMemory(VirtualClock()), on_kubernetes(ready_s=None, start_s=2)
    async with world(cluster, store=core.view("a")) as a:
        await a.request(OWNER, SPEC, "k")
        await asyncio.sleep(3)
        async with world(cluster, store=core.view("b")) as b:
            kill(a)
            create = asyncio.create_task(b.create(OWNER, SPEC, "k"))
            await asyncio.sleep(30)
            assert b.service._core.starts.tasks  # it is taken on
            await cluster.push_now(cluster.started[0])
            known = (await create).sandbox.timings_ms
    assert known.keys() == WHOLE
    assert known["start"] == 2_000
    assert known["queue"] + known["start"] + known["ready_push"] == known["total"]


async def test_what_only_a_replica_that_died_knew_of_a_start_is_named_unknown() -> None:
    core, cluster = SharedMemory(VirtualClock()), on_kubernetes(start_s=5)
    async with world(cluster, store=core.view("a")) as a:
        await a.request(OWNER, SPEC, "k")
        await asyncio.sleep(1)
        async with world(cluster, store=core.view("b")) as b:
            kill(a)
            known = (await b.create(OWNER, SPEC, "k")).sandbox.timings_ms
    assert known.keys() == WHOLE | {"unknown"}
    parts = {phase: took for phase, took in known.items() if phase not in ("boot", "total")}
    assert parts["unknown"] > 0
    assert sum(parts.values()) == known["total"]


async def test_a_start_whose_replica_died_in_the_queue_was_in_the_queue_meanwhile() -> None:
    core, cluster = SharedMemory(VirtualClock()), on_kubernetes(slots=0)
    async with world(cluster, store=core.view("a")) as a:
        await a.request(OWNER, SPEC, "k")
        await asyncio.sleep(7)
        async with world(cluster, store=core.view("b")) as b:
            kill(a)
            create = asyncio.create_task(b.create(OWNER, SPEC, "k"))
            await asyncio.sleep(30)
            cluster.slots = 8
            known = (await create).sandbox.timings_ms
    assert known.keys() == WHOLE
    assert known["queue"] >= 37_000
    assert known["queue"] + known["start"] + known["ready_push"] == known["total"]


async def test_a_store_without_the_note_of_a_start_leaves_a_phase_unknown_and_nothing_else() -> None:
    async with pair(on_kubernetes(ready_s=3, start_s=2)) as two:
        two.core.memory._notes.clear()
        create = asyncio.create_task(two.a.create(OWNER, SPEC))
        await asyncio.sleep(3)
        assert [name for name in two.core.memory._notes if name.startswith("start:")]
        two.core.memory._notes.clear()
        known = (await create).sandbox.timings_ms
        assert known == {"queue": 0, "unknown": 5_000, "boot": 0, "total": 5_000}


async def test_the_clusters_answer_is_not_waited_for() -> None:
    async with pair(on_kubernetes(ready_s=None, start_s=10)) as two:
        create = asyncio.create_task(two.a.create(OWNER, SPEC, "k"))
        await asyncio.sleep(1)
        sandbox = await recorded(two.a)
        token = two.a.deps.key.readiness(sandbox).text
        for plane in (two.a, two.b):
            await plane.service.accept_push(token, Push(sandbox.id, "http://10.0.0.1:7070", "k"))
        assert (await create).sandbox.state is State.RUNNING


async def test_a_replica_that_dies_in_the_middle_leaves_its_start_to_the_others() -> None:
    core, cluster = SharedMemory(VirtualClock()), on_kubernetes(ready_s=5)
    async with world(cluster, store=core.view("a")) as a:
        create = asyncio.create_task(a.create(OWNER, SPEC, "k"))
        await asyncio.sleep(1)
        async with world(cluster, store=core.view("b")) as b:
            kill(a)
            create.cancel()
            again = await b.create(OWNER, SPEC, "k")
            assert again.replayed
            assert again.sandbox.state is State.RUNNING
            assert len(cluster.held) == 1


async def test_a_start_that_died_with_its_replica_before_the_cluster_heard_of_it_is_taken_on() -> None:
    core, cluster = SharedMemory(VirtualClock()), on_kubernetes(start_s=5)
    async with world(cluster, store=core.view("a")) as a:
        await a.request(OWNER, ENV_SPEC, "k")
        await asyncio.sleep(1)
        async with world(cluster, store=core.view("b")) as b:
            kill(a)
            again = await b.create(OWNER, ENV_SPEC, "k")
            assert (again.replayed, again.sandbox.state) == (True, State.RUNNING)


async def test_queued_starts_of_a_replica_that_has_gone_are_taken_on() -> None:
    core, cluster = SharedMemory(VirtualClock()), on_kubernetes()
    one = Options(starts_in_flight=1)
    async with world(cluster, options=one, store=core.view("b")) as b:
        cluster.start_s = 3
        async with world(cluster, options=one, store=core.view("a")) as a:
            cluster.push = b.service.accept_push
            for number in range(3):
                await a.request(OWNER, SPEC, f"k{number}")
            await asyncio.sleep(1)
        assert core.holders
        creates = [await b.create(OWNER, SPEC, f"k{number}") for number in range(3)]
        assert all(created.replayed and created.sandbox.state is State.RUNNING for created in creates)
        assert len(cluster.held) == 3
        await asyncio.sleep(5)
        assert len(vars(core.memory)["_slots"]) == 0


async def test_a_drain_sends_waiters_to_the_others_and_fails_no_start() -> None:
    core, cluster = SharedMemory(VirtualClock()), on_kubernetes(ready_s=3)
    async with world(cluster, store=core.view("b")) as b:
        async with world(cluster, store=core.view("a")) as a:
            cluster.push = b.service.accept_push
            create = asyncio.create_task(a.create(OWNER, SPEC, "k"))
            await asyncio.sleep(1)
            await a.service.drain(delete=False)
            with pytest.raises(Problem, match="draining: .* gets ready elsewhere") as caught:
                await create
            assert caught.value.retry_after_ms is not None
            with pytest.raises(Problem, match="draining"):
                await a.create(OWNER, SPEC, "k")
        again = await b.create(OWNER, SPEC, "k")
        assert again.replayed
        assert len(cluster.held) == 1


async def test_a_drain_ends_a_start_that_nobody_can_ask_for_again() -> None:
    core, cluster = SharedMemory(VirtualClock()), on_kubernetes(ready_s=3)
    async with world(cluster, store=core.view("b")) as b:
        async with world(cluster, store=core.view("a")) as a:
            create = asyncio.create_task(a.create(OWNER, SPEC))
            await asyncio.sleep(1)
            await a.service.drain(delete=False)
            with pytest.raises(Problem, match="draining"):
                await create
        await asyncio.sleep(1)
        assert (await recorded(b)).end is not None
        assert cluster.held == {}


async def test_a_call_to_the_cluster_is_finished_before_a_replica_leaves() -> None:
    core, cluster = SharedMemory(VirtualClock()), on_kubernetes(start_s=4, ready_s=0.1)
    async with world(cluster, store=core.view("b")) as b:
        async with world(cluster, store=core.view("a")) as a:
            cluster.push = b.service.accept_push
            await a.request(OWNER, SPEC, "k")
            await asyncio.sleep(1)
        assert len(cluster.held) == 1
        assert (await b.create(OWNER, SPEC, "k")).sandbox.state is State.RUNNING


async def test_a_sandbox_is_deleted_at_another_replica_than_its_own() -> None:
    async with pair() as two:
        sandbox = (await two.a.create(OWNER, SPEC)).sandbox
        ended = await two.b.service.delete(OWNER, sandbox.id, wait_s=60)
        await asyncio.sleep(0)
        assert ended.state is State.ENDED
        assert await ends(two.a) == await ends(two.b) == [(sandbox.id, "deleted")]
        assert await routes(two.a) == []
        assert two.a.service._core.expiry.ttl._timers._deadlines._moments == {}


async def test_a_start_is_ended_at_another_replica_and_leaves_nothing() -> None:
    async with pair(on_kubernetes(ready_s=None, start_s=1)) as two:
        create = asyncio.create_task(two.a.create(OWNER, SPEC, "k"))
        await asyncio.sleep(0.5)
        await two.b.service.delete_key(OWNER, "k", wait_s=60)
        with pytest.raises(Problem, match="deleted"):
            await create
        await asyncio.sleep(5)
        assert two.cluster.held == {}
        assert (await recorded(two.a)).state is State.ENDED
        assert two.a.service._core.starts._tasks == {}


async def test_a_delete_waits_for_the_confirmation_that_another_replica_asked_for() -> None:
    async with pair(on_kubernetes(stop_s=2)) as two:
        sandbox = (await two.a.create(OWNER, SPEC)).sandbox
        one, other = await asyncio.gather(
            two.a.service.delete(OWNER, sandbox.id, wait_s=60), two.b.service.delete(OWNER, sandbox.id, wait_s=60)
        )
        assert one.state is other.state is State.ENDED
        assert one.end == other.end


async def test_both_expire_a_sandbox_once() -> None:
    async with pair() as two:
        sandbox = (await two.a.create(OWNER, SandboxSpec(image="a", ttl_ms=5_000))).sandbox
        await asyncio.sleep(10)
        assert await ends(two.a) == await ends(two.b) == [(sandbox.id, "ttl_expired")]
        counted = sum(
            plane.deps.metrics.registry.get_sample_value(
                "rollbox_sandbox_ends_total", {"cause": "ttl_expired", "fault": "caller", "masked": "true"}
            )
            or 0
            for plane in (two.a, two.b)
        )
        assert counted == 1


async def test_an_extension_at_another_replica_holds() -> None:
    async with pair() as two:
        sandbox = (await two.a.create(OWNER, SandboxSpec(image="a", ttl_ms=5_000))).sandbox
        await two.b.service.extend(OWNER, sandbox.id, 60_000)
        await asyncio.sleep(30)
        assert (await two.a.service.get(OWNER, sandbox.id)).state is State.RUNNING
        await asyncio.sleep(35)
        assert await ends(two.a) == [(sandbox.id, "ttl_expired")]


async def test_a_port_that_is_public_at_one_replica_is_so_for_the_gateways_of_all() -> None:
    async with pair() as two:
        sandbox = (await two.a.create(OWNER, SPEC)).sandbox
        for public, ports in ((True, [80]), (False, [])):
            await two.b.service.open_port(OWNER, sandbox.id, 80, public=public)
            await asyncio.sleep(1)
            for plane in (two.a, two.b):
                with plane.service.board.subscribe() as feed:
                    (route,) = (await feed.next()).snapshot.routes
                    assert [one.port for one in route.public_ports] == ports


async def test_slots_are_shared_and_a_freed_one_is_heard_of_at_once() -> None:
    async with pair(options=Options(starts_in_flight=2)) as two:
        began_s = asyncio.get_running_loop().time()
        planes = [two.a, two.b] * 4
        await asyncio.gather(*(plane.create(OWNER, SPEC) for plane in planes))
        assert two.cluster.most_at_once == 2
        assert asyncio.get_running_loop().time() - began_s == pytest.approx(4 * 0.12, abs=0.01)


async def test_no_node_takes_a_start_until_one_does() -> None:
    async with pair(on_kubernetes(slots=0)) as two:
        create = asyncio.create_task(two.a.create(OWNER, SPEC))
        await asyncio.sleep(3)
        assert two.cluster.started == []
        two.cluster.slots = 8
        assert (await create).sandbox.state is State.RUNNING


async def test_a_kernel_that_was_not_promised_ends_the_sandbox() -> None:
    async with pair(on_kubernetes(isolation="gVisor")) as two:
        with pytest.raises(Problem, match="isolation_missing: kernel 'Linux version 6.1 fake' is not gVisor"):
            await two.a.create(OWNER, ENV_SPEC)
        await asyncio.sleep(1)
        assert two.cluster.held == {}


async def test_a_failure_that_is_pushed_elsewhere_fails_the_create() -> None:
    async with pair() as two:
        two.cluster.next_failure = Problem("start_timeout", "the target did not appear")
        with pytest.raises(Problem, match="start_timeout: the target did not appear"):
            await two.a.create(OWNER, SPEC)


async def test_repeated_late_and_forged_pushes_change_nothing_and_are_counted() -> None:
    async with pair() as two:
        sandbox = (await two.a.create(OWNER, SPEC)).sandbox
        token = two.cluster.held[sandbox.id].boot.ready_token
        push = Push(sandbox.id, "http://10.9.9.9:7070", "other")
        await two.a.service.accept_push(token, push)
        await two.b.service.accept_push(token, push)
        with pytest.raises(Problem, match="unauthenticated"):
            await two.a.service.accept_push("forged", push)
        assert await two.a.service.get(OWNER, sandbox.id) == sandbox
        await two.a.service.delete(OWNER, sandbox.id, wait_s=60)
        with pytest.raises(Problem, match="deleted"):
            await two.b.service.accept_push(token, push)
        outcomes = {
            outcome: sum(
                plane.deps.metrics.registry.get_sample_value("rollbox_readiness_pushes_total", {"outcome": outcome})
                or 0
                for plane in (two.a, two.b)
            )
            for outcome in ("accepted", "duplicate", "late", "forged", "failure", "error")
        }
        assert outcomes == {"accepted": 1, "duplicate": 2, "late": 1, "forged": 1, "failure": 0, "error": 0}


async def test_one_push_at_both_replicas_is_one_readiness() -> None:
    async with pair(on_kubernetes(ready_s=None)) as two:
        create = asyncio.create_task(two.a.create(OWNER, SPEC, "k"))
        await asyncio.sleep(1)
        sandbox = await recorded(two.a)
        token = two.cluster.held[sandbox.id].boot.ready_token
        push = Push(sandbox.id, "http://10.0.0.1:7070", "k")
        planes = (two.a, two.b, two.a, two.b)
        await asyncio.gather(*(plane.service.accept_push(token, push) for plane in planes))
        assert (await create).sandbox.version == (await recorded(two.b)).version == 3


async def test_facts_are_written_behind_and_again_when_that_fails() -> None:
    async with pair() as two:
        two.cluster.next_annotate_error = Problem("internal", "the API server is busy")
        sandbox = (await two.a.create(OWNER, SPEC)).sandbox
        assert two.cluster.held[sandbox.id].facts == {}
        await asyncio.sleep(5)
        assert two.cluster.held[sandbox.id].facts["address"] == sandbox.address
        assert two.b.service._core.annotations.pending == 0


async def test_a_flushed_store_is_rebuilt_and_counts_are_exact() -> None:
    async with pair() as two:
        running = [(await plane.create(OWNER, SPEC, f"k{n}")).sandbox for n, plane in enumerate([two.a, two.b])]
        await asyncio.sleep(1)
        two.cluster.ready_s = 2
        starting = asyncio.create_task(two.a.create(OWNER, ENV_SPEC, "k2"))
        await asyncio.sleep(1)
        two.core.empty()
        created = await asyncio.gather(*(plane.create(OWNER, SPEC, "k3") for plane in (two.a, two.b)))
        assert two.core.rebuilds == 2
        assert created[0].sandbox.id == created[1].sandbox.id
        assert (await starting).sandbox.state is State.RUNNING
        counts = await two.a.deps.store.counts()
        assert counts == {state: 4 if state is State.RUNNING else 0 for state in State}
        assert [(await two.b.create(OWNER, SPEC, f"k{n}")).sandbox.id for n in range(2)] == [one.id for one in running]


async def test_a_start_that_another_replica_rebuilt_without_is_put_back_by_its_own() -> None:
    async with pair(on_kubernetes(ready_s=6)) as two:
        create = asyncio.create_task(two.a.create(OWNER, ENV_SPEC, "k"))
        await asyncio.sleep(1.5)
        two.core.empty()
        await refilled(two.b.deps.store)  # as if `b` had done it before `a` knew of the loss
        assert await two.b.deps.store.counts() == dict.fromkeys(State, 0)
        assert (await create).sandbox.state is State.RUNNING


async def test_a_sandbox_without_facts_is_adopted_by_its_own_word() -> None:
    cluster, sidecars = on_kubernetes(), FakeSidecars()
    core = SharedMemory(VirtualClock())
    async with world(cluster, sidecars, store=core.view("a")) as a:
        sandbox = (await a.create(OWNER, SPEC, "k")).sandbox
    cluster.held[sandbox.id].facts.clear()
    sidecars.acknowledged.add(sandbox.address or "")
    core.empty()
    async with world(cluster, sidecars, store=core.view("b")) as b:
        adopted = await b.service.get(OWNER, sandbox.id)
        assert (adopted.state, adopted.address) == (State.RUNNING, sandbox.address)
        assert (await b.create(OWNER, SPEC, "k")).replayed


async def test_a_start_without_secrets_goes_on_after_everything_was_lost() -> None:
    cluster, core = on_kubernetes(ready_s=None), SharedMemory(VirtualClock())
    async with world(cluster, store=core.view("a")) as a:
        await a.request(OWNER, SPEC, "k")
        await asyncio.sleep(1)
    core.empty()
    async with world(cluster, store=core.view("b")) as b:
        create = asyncio.create_task(b.create(OWNER, SPEC, "k"))
        await asyncio.sleep(1)
        await cluster.push_now(cluster.started[0])
        created = await create
        assert created.replayed
        assert created.sandbox.id == cluster.started[0]


async def test_a_start_whose_replica_has_gone_is_ended_at_its_deadline() -> None:
    core, cluster = SharedMemory(VirtualClock()), on_kubernetes(ready_s=None)
    async with world(cluster, store=core.view("b")) as b:
        async with world(cluster, store=core.view("a")) as a:
            sandbox = await a.request(OWNER, SandboxSpec(image="a", start_timeout_ms=20_000), "k")
            await asyncio.sleep(1)
        with pytest.raises(Problem, match="start_timeout"):
            await b.service.ready(sandbox)
        await asyncio.sleep(1)
        assert cluster.held == {}


async def test_an_end_that_its_replica_left_unconfirmed_is_confirmed() -> None:
    core, cluster = SharedMemory(VirtualClock()), on_kubernetes(stop_s=3600)
    async with world(cluster, store=core.view("b")) as b:
        async with world(cluster, store=core.view("a")) as a:
            sandbox = (await a.create(OWNER, SPEC)).sandbox
            delete = asyncio.create_task(a.service.delete(OWNER, sandbox.id, wait_s=60))
            await asyncio.sleep(1)
        await asyncio.wait([delete])
        cluster.stop_s = 0.1
        await asyncio.sleep(40)
        assert (await b.service.get(OWNER, sandbox.id)).state is State.ENDED
        assert cluster.held == {}


async def test_what_the_cluster_does_not_have_any_more_is_lost() -> None:
    async with pair() as two:
        sandbox = (await two.a.create(OWNER, SPEC)).sandbox
        two.cluster.held.clear()
        await asyncio.sleep(200)
        assert await ends(two.b) == [(sandbox.id, "sandbox_lost")]


async def test_a_death_that_nobody_saw_is_found() -> None:
    async with pair() as two:
        sandbox = (await two.a.create(OWNER, SPEC)).sandbox
        two.cluster.held[sandbox.id].death = Death(sandbox.id, "oom_killed", "out of memory")
        await asyncio.sleep(120)
        assert await ends(two.a) == [(sandbox.id, "oom_killed")]


async def test_a_store_that_is_away_for_a_moment_takes_nothing_down() -> None:
    async with pair() as two:
        sandbox = (await two.a.create(OWNER, SandboxSpec(image="a", ttl_ms=10_000))).sandbox
        two.core.away = Problem("upstream_timeout", "Redis at redis:6379 did not do what was asked")
        with pytest.raises(Problem, match="upstream_timeout: Redis at"):
            await two.a.create(OWNER, SPEC)
        await asyncio.sleep(12)
        two.core.away = None
        await asyncio.sleep(20)
        assert (sandbox.id, "ttl_expired") in await ends(two.b)
        assert (await two.b.create(OWNER, SPEC)).sandbox.state is State.RUNNING


async def test_a_create_whose_admission_was_not_answered_is_begun_for_its_key() -> None:
    async with pair() as two:
        store = two.a.deps.store
        admit = store.admit

        async def unanswered(*asked: Any) -> object:
            await admit(*asked)
            raise Problem("upstream_timeout", "Redis at redis:6379 did not do what was asked")

        store.admit = unanswered  # type: ignore[method-assign,assignment]
        with pytest.raises(Problem, match="upstream_timeout"):
            await two.a.create(OWNER, SPEC, "k")
        with pytest.raises(Problem, match="upstream_timeout"):
            await two.a.create(OWNER, SPEC)
        assert (await two.b.create(OWNER, SPEC, "k")).replayed
        await asyncio.sleep(1)
        assert len(two.cluster.held) == 1


async def test_what_was_stored_while_nobody_listened_is_heard_though_the_first_look_failed() -> None:
    async with pair() as two:
        created = [(await two.a.create(OWNER, SPEC)).sandbox for _ in range(2)]
        await asyncio.sleep(1)
        deaf = two.core.feeds.pop("b")
        await two.a.service.delete(OWNER, created[0].id, wait_s=60)
        two.core.away = Problem("upstream_timeout", "it is started elsewhere")
        two.core.feeds["b"] = deaf
        deaf.put_nowait(Resync())
        await asyncio.sleep(3)
        two.core.away = None
        await asyncio.sleep(2)
        assert await ends(two.b) == [(created[0].id, "deleted")]
        assert await routes(two.b) == [created[1].id]


async def test_a_start_that_is_taken_on_when_it_is_over_already_holds_nothing() -> None:
    async with pair() as two:
        created = (await two.a.create(OWNER, SPEC)).sandbox
        two.b.service._core.starts.begin(replace(created, state=State.STARTING, ready_at_ms=None))
        await asyncio.sleep(1)
        assert not two.b.service._core.starts._tasks
        assert (await two.b.service.levels()).starts_in_flight == 0
        assert (await two.b.service.get(OWNER, created.id)).state is State.RUNNING
