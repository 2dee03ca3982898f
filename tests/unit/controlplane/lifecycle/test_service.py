"""Create, delete, keys, deadlines, deaths: the service against a fake cluster in virtual time."""

import asyncio

import pytest

from controlplane.cluster import Death, Pulling
from controlplane.errors import Problem
from controlplane.lifecycle import Options
from controlplane.model import SandboxSpec, State
from tests.support.fake_cluster import FakeCluster
from tests.support.world import OWNER, SPEC, World, world


async def test_create_answers_when_the_sandbox_is_ready(plane: World) -> None:
    created = await plane.create(OWNER, SPEC)
    assert created.sandbox.state is State.RUNNING
    assert created.sandbox.kernel == "Linux version 6.1 fake"
    assert created.sandbox.timings_ms == {
        "queue": 0,
        "start": 100,
        "ready_push": 20,
        "boot": 0,
        "total": 120,
    }
    assert not created.replayed


async def test_starts_are_bounded_and_first_come_first_served() -> None:
    async with world(options=Options(starts_in_flight=2)) as plane:
        creates = [asyncio.create_task(plane.create(OWNER, SPEC)) for _ in range(7)]
        order = [(await create).sandbox.id for create in creates]
        assert plane.cluster.most_at_once == 2
        assert plane.cluster.started == order


async def test_a_start_that_gets_no_turn_ends_with_start_queue_timeout() -> None:
    async with world(FakeCluster(start_s=10), options=Options(starts_in_flight=1)) as plane:
        first = asyncio.create_task(plane.create(OWNER, SPEC))
        await asyncio.sleep(0)
        with pytest.raises(Problem, match="start_queue_timeout: .* 1 starts were in flight"):
            await plane.create(OWNER, SandboxSpec(image="a", start_timeout_ms=500))
        await first


async def test_a_start_that_is_never_ready_ends_with_start_timeout_and_is_removed() -> None:
    async with world(FakeCluster(ready_s=None)) as plane:
        with pytest.raises(Problem, match="start_timeout"):
            await plane.create(OWNER, SandboxSpec(image="a", start_timeout_ms=500))
        await asyncio.sleep(1)
        assert plane.cluster.held == {}
        (ended,) = await plane.service.find(OWNER, {}, None)
        assert ended.state is State.ENDED


async def test_a_start_whose_node_pulls_until_its_deadline_says_so_in_time() -> None:
    async with world(FakeCluster(ready_s=None)) as plane:
        began_ms = plane.deps.clock.now_ms()
        plane.cluster.pulls[""] = Pulling("n1", "registry.internal/a:1", began_ms + 1_000)
        creating = asyncio.create_task(plane.create(OWNER, SandboxSpec(image="a", start_timeout_ms=31_000)))
        await asyncio.sleep(11)
        (starting,) = await plane.service.find(OWNER, {}, None)
        why = (await plane.api("GET", f"/v1/sandboxes/{starting.id}/timeline")).json
        assert why["summary"] == "It is starting: node n1 has been pulling registry.internal/a:1 for 10 s."
        with pytest.raises(Problem) as caught:
            await creating
        assert plane.deps.clock.now_ms() - began_ms == pytest.approx(31_000, abs=100)
        error = caught.value
        assert (error.code, error.entry.fault, error.details["phase"]) == ("start_timeout", "platform", "pull")
        assert "31 s: node n1 has been pulling registry.internal/a:1 for 30 s" in error.detail
        why = (await plane.api("GET", f"/v1/sandboxes/{starting.id}/timeline")).json
        assert "has been pulling registry.internal/a:1 for 30 s" in why["summary"]
        words = [one["word"] for one in why["moments"]]
        assert words[words.index("start") + 1 : words.index("start_timeout") + 1] == ["pull", "start_timeout"]


async def test_a_start_that_gets_ready_at_the_last_moment_is_none_that_pulls() -> None:
    async with world(FakeCluster(ready_s=30.7)) as plane:
        plane.cluster.pulls[""] = Pulling("n1", "a", 0)
        sandbox = (await plane.create(OWNER, SandboxSpec(image="a", start_timeout_ms=31_000))).sandbox
        await asyncio.sleep(1)
        assert (await plane.service.get(OWNER, sandbox.id)).state is State.RUNNING


@pytest.mark.parametrize("answer", ["never", "fails"])
async def test_a_cluster_that_does_not_say_what_is_pulled_holds_up_no_end(
    answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(sandbox_id: str) -> None:
        await asyncio.sleep(0 if answer == "fails" else 60)
        raise Problem("internal", f"nobody knows of {sandbox_id}")

    async with world(FakeCluster(ready_s=None)) as plane:
        monkeypatch.setattr(plane.cluster, "pulling", silent)
        began_ms = plane.deps.clock.now_ms()
        with pytest.raises(Problem, match="was not ready within its start timeout of 5 s$") as caught:
            await plane.create(OWNER, SandboxSpec(image="a", start_timeout_ms=5_000))
        assert plane.deps.clock.now_ms() - began_ms == pytest.approx(5_000, abs=100)
        assert "phase" not in caught.value.details


async def test_the_same_key_joins_a_start_under_way(plane: World) -> None:
    one, two = await asyncio.gather(plane.create(OWNER, SPEC, "k"), plane.create(OWNER, SPEC, "k"))
    assert one.sandbox.id == two.sandbox.id
    assert (one.replayed, two.replayed) == (False, True)
    assert len(plane.cluster.started) == 1


async def test_the_same_key_with_other_parameters_is_a_conflict(plane: World) -> None:
    await plane.create(OWNER, SPEC, "k")
    with pytest.raises(Problem, match="conflict: key k was used"):
        await plane.create(OWNER, SandboxSpec(image="other"), "k")


async def test_two_owners_may_use_one_key(plane: World) -> None:
    one = await plane.create("alice", SPEC, "k")
    two = await plane.create("bob", SPEC, "k")
    assert one.sandbox.id != two.sandbox.id


async def test_a_key_answers_the_end_of_its_sandbox_until_the_tombstone_goes(plane: World) -> None:
    sandbox = (await plane.create(OWNER, SPEC, "k")).sandbox
    await plane.service.delete(OWNER, sandbox.id, wait_s=60)
    with pytest.raises(Problem, match="deleted"):
        await plane.create(OWNER, SPEC, "k")
    await asyncio.sleep(24 * 3600 + 1)
    assert not (await plane.create(OWNER, SPEC, "k")).replayed


async def test_a_failed_start_that_may_be_tried_again_gives_its_key_back(plane: World) -> None:
    plane.cluster.next_error = Problem("capacity_unavailable", "no space left")
    with pytest.raises(Problem, match="capacity_unavailable"):
        await plane.create(OWNER, SPEC, "k")
    assert not (await plane.create(OWNER, SPEC, "k")).replayed


async def test_a_failed_start_that_is_final_keeps_its_key(plane: World) -> None:
    plane.cluster.next_error = Problem("image_not_found", "there is no image a")
    for _ in range(2):
        with pytest.raises(Problem, match="image_not_found: there is no image a"):
            await plane.create(OWNER, SPEC, "k")
    assert len(plane.cluster.started) == 1


async def test_deleting_an_unknown_key_refuses_the_create_that_arrives_later(plane: World) -> None:
    assert (await plane.service.delete_key(OWNER, "k", wait_s=60)).ids == []
    with pytest.raises(Problem, match="deleted before its create arrived"):
        await plane.create(OWNER, SPEC, "k")


async def test_deleting_a_key_while_its_sandbox_starts_ends_it(plane: World) -> None:
    create = asyncio.create_task(plane.create(OWNER, SPEC, "k"))
    await asyncio.sleep(0.05)
    deleted = await plane.service.delete_key(OWNER, "k", wait_s=60)
    with pytest.raises(Problem, match="deleted"):
        await create
    assert list(deleted.ids) == plane.cluster.started
    assert plane.cluster.held == {}


@pytest.mark.parametrize("after_s", [0, 0.05, 0.1, 0.11, 0.12, 0.13], ids=lambda s: f"after {s} s")
async def test_delete_is_legal_at_every_moment_of_a_start(after_s: float) -> None:
    async with world(options=Options(starts_in_flight=1)) as plane:
        create = asyncio.create_task(plane.create(OWNER, SPEC, "k"))
        await asyncio.sleep(after_s)
        sandbox = await plane.deps.store.by_key(OWNER, "k")
        assert sandbox is not None
        ended = await plane.service.delete(OWNER, sandbox.id, wait_s=60)
        assert ended.state is State.ENDED
        assert plane.cluster.held == {}
        await asyncio.wait([create])
        create.exception()


async def test_a_sandbox_in_the_queue_is_deleted_without_asking_the_cluster() -> None:
    async with world(FakeCluster(start_s=5), options=Options(starts_in_flight=1)) as plane:
        first = asyncio.create_task(plane.create(OWNER, SPEC))
        second = asyncio.create_task(plane.create(OWNER, SPEC, "k"))
        await asyncio.sleep(1)
        await plane.service.delete_key(OWNER, "k", wait_s=60)
        with pytest.raises(Problem, match="deleted"):
            await second
        assert plane.cluster.stopped == []
        await first


async def test_deleting_twice_is_success_and_asks_the_cluster_once(plane: World) -> None:
    sandbox = (await plane.create(OWNER, SPEC)).sandbox
    one, two = await asyncio.gather(
        plane.service.delete(OWNER, sandbox.id, wait_s=60), plane.service.delete(OWNER, sandbox.id, wait_s=60)
    )
    three = await plane.service.delete(OWNER, sandbox.id, wait_s=60)
    assert one == two == three
    assert plane.cluster.stopped == [sandbox.id]


async def test_delete_frees_the_limit_before_the_cluster_confirms() -> None:
    async with world(FakeCluster(stop_s=30), options=Options(max_sandboxes=1)) as plane:
        sandbox = (await plane.create(OWNER, SPEC)).sandbox
        with pytest.raises(Problem, match="capacity_unavailable: 1 of at most 1"):
            await plane.create(OWNER, SPEC)
        delete = asyncio.create_task(plane.service.delete(OWNER, sandbox.id, wait_s=60))
        await asyncio.sleep(0.001)
        await plane.create(OWNER, SPEC)
        assert not delete.done()
        await delete


async def test_a_delete_that_the_cluster_does_not_confirm_goes_on_and_says_so() -> None:
    async with world(FakeCluster(stop_s=90)) as plane:
        sandbox = (await plane.create(OWNER, SPEC)).sandbox
        with pytest.raises(Problem, match="upstream_timeout"):
            await plane.service.delete(OWNER, sandbox.id, wait_s=60)
        assert (await plane.service.get(OWNER, sandbox.id)).state is State.ENDING
        await asyncio.sleep(60)
        assert (await plane.service.get(OWNER, sandbox.id)).state is State.ENDED


async def test_a_stop_that_fails_is_repeated(plane: World) -> None:
    sandbox = (await plane.create(OWNER, SPEC)).sandbox
    plane.cluster.next_stop_error = Problem("internal", "engine away")
    assert (await plane.service.delete(OWNER, sandbox.id, wait_s=60)).state is State.ENDED


async def test_many_deletes_are_bounded_and_all_end(plane: World) -> None:
    spec = SandboxSpec(image="a", labels={"run": "r1"})
    await asyncio.gather(*(plane.create(OWNER, spec) for _ in range(20)))
    other = (await plane.create(OWNER, SPEC)).sandbox
    deleted = await plane.service.delete_all(OWNER, {"run": "r1"}, wait_s=60)
    assert len(deleted.ids) == 20
    assert plane.cluster.most_stops_at_once == 8
    assert [one.id for one in await plane.service.find(OWNER, {})] == [other.id]


async def test_a_death_ends_the_sandbox_with_its_cause(plane: World) -> None:
    sandbox = (await plane.create(OWNER, SPEC)).sandbox
    plane.cluster.kill(Death(sandbox.id, "oom_killed", "the kernel killed the sidecar for memory"))
    await asyncio.sleep(1)
    ended = await plane.service.get(OWNER, sandbox.id)
    assert ended.state is State.ENDED
    assert ended.end is not None
    assert (ended.end.cause, ended.end.fault, ended.end.by) == ("oom_killed", "workload", "engine")
    assert plane.cluster.held == {}


async def test_a_death_while_starting_fails_the_create_at_once() -> None:
    async with world(FakeCluster(ready_s=None)) as plane:
        create = asyncio.create_task(plane.create(OWNER, SPEC))
        await asyncio.sleep(0.5)
        plane.cluster.kill(Death(plane.cluster.started[0], "sandbox_lost", "the target ended with exit code 1"))
        with pytest.raises(Problem, match="sandbox_lost: the target ended with exit code 1"):
            await create


async def test_the_first_cause_of_an_end_stays(plane: World) -> None:
    sandbox = (await plane.create(OWNER, SPEC)).sandbox
    delete = asyncio.create_task(plane.service.delete(OWNER, sandbox.id, wait_s=60))
    await asyncio.sleep(0)
    plane.cluster.kill(Death(sandbox.id, "sandbox_lost", "exit code 137"))
    ended = await delete
    assert ended.end is not None
    assert ended.end.cause == "deleted"


async def test_a_ttl_ends_a_sandbox_in_time(plane: World) -> None:
    sandbox = (await plane.create(OWNER, SandboxSpec(image="a", ttl_ms=5_000))).sandbox
    await asyncio.sleep(4.8)
    assert (await plane.service.get(OWNER, sandbox.id)).state is State.RUNNING
    await asyncio.sleep(0.3)
    ended = await plane.service.get(OWNER, sandbox.id)
    assert ended.end is not None
    assert (ended.end.cause, ended.end.by) == ("ttl_expired", "reaper")


async def test_extend_moves_the_end_later_and_never_earlier(plane: World) -> None:
    sandbox = (await plane.create(OWNER, SandboxSpec(image="a", ttl_ms=5_000))).sandbox
    longer = await plane.service.extend(OWNER, sandbox.id, 60_000)
    assert longer.expires_at_ms > sandbox.expires_at_ms
    assert (await plane.service.extend(OWNER, sandbox.id, 1_000)).expires_at_ms == longer.expires_at_ms
    await asyncio.sleep(59)
    assert (await plane.service.get(OWNER, sandbox.id)).state is State.RUNNING
    await asyncio.sleep(2)
    with pytest.raises(Problem, match="ttl_expired"):
        await plane.service.extend(OWNER, sandbox.id, 1_000)


async def test_a_failure_of_the_sidecar_is_the_failure_of_the_create(plane: World) -> None:
    plane.cluster.next_failure = Problem("start_timeout", "the target did not appear")
    with pytest.raises(Problem, match="start_timeout: the target did not appear"):
        await plane.create(OWNER, SPEC)


async def test_an_option_that_the_cluster_cannot_honour_is_refused(plane: World) -> None:
    spec = SandboxSpec.model_validate({"image": "a", "cpu_millicores": {"request": 1, "limit": 65_000}})
    with pytest.raises(Problem, match="unsupported"):
        await plane.create(OWNER, spec)
    assert await plane.service.find(OWNER, {}, None) == []


async def test_drain_deletes_everything_and_takes_nothing_new(plane: World) -> None:
    await asyncio.gather(plane.create("alice", SPEC), plane.create("bob", SPEC))
    drained = await plane.service.drain(delete=True)
    assert len(drained.ids) == 2
    assert plane.cluster.held == {}
    with pytest.raises(Problem, match="draining"):
        await plane.create(OWNER, SPEC)


async def test_a_cancelled_create_leaves_the_start_to_its_key(plane: World) -> None:
    create = asyncio.create_task(plane.create(OWNER, SPEC, "k"))
    await asyncio.sleep(0.05)
    create.cancel()
    again = await plane.create(OWNER, SPEC, "k")
    assert again.replayed
    assert len(plane.cluster.started) == 1
