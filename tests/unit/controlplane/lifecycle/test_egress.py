"""Network policies of sandboxes: what egress replicas are told, when a switch is in force, and what survives."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import jwt
import pytest

from controlplane.egress import EgressOptions, EgressPolicy
from controlplane.errors import Problem
from controlplane.lifecycle import Options
from controlplane.lifecycle.admission.quotas import DeclaredQuota
from controlplane.model import SandboxSpec, State
from controlplane.model.pool import PoolSpec
from controlplane.model.spec import Template
from controlplane.wire import egress_pb2 as wire
from tests.support.egress_replica import egress_replica
from tests.support.fake_cluster import FakeCluster
from tests.support.shared_store import SharedMemory
from tests.support.virtual_time import VirtualClock
from tests.support.world import OWNER, SPEC, World, world

INSTALLED = Options(egress=EgressOptions(3128))
PACKAGES = SandboxSpec(image="python:3.12", egress="packages")
TRAINER = EgressPolicy.model_validate({"mode": "allow", "allow": ["trainer.example"]})


@pytest.fixture
async def plane() -> AsyncIterator[World]:
    async with world(options=INSTALLED) as made:
        yield made


async def test_a_sandbox_that_asks_for_nothing_is_told_to_nobody(plane: World) -> None:
    async with egress_replica(plane) as replica:
        sandbox = (await plane.create(OWNER, SPEC)).sandbox
        await asyncio.sleep(1)
        assert (replica.serves, sandbox.egress.bound, sandbox.egress.in_force) == ({}, False, True)
        view = await plane.service.egress.switch(OWNER, sandbox.id, "offline")
        assert (view.sandbox.egress.revision, view.policy.mode, replica.serves) == (0, "offline", {})


async def test_a_create_with_a_policy_is_answered_when_it_is_in_force(plane: World) -> None:
    async with egress_replica(plane) as replica:
        sandbox = (await plane.create(OWNER, PACKAGES)).sandbox
        assert (sandbox.egress.name, sandbox.egress.in_force) == ("packages", True)
        assigned, policy = replica.serves[sandbox.id], replica.policy(sandbox.id)
        assert (assigned.address, assigned.owner, assigned.generation) == (sandbox.address, OWNER, 1)
        claims = jwt.decode(assigned.token, options={"verify_signature": False})
        assert (claims["sub"], claims["scp"]) == (sandbox.id, ["egress"])
        assert (policy.name, policy.mode) == ("packages", wire.RULES)
        assert ("packages/pypi", "pypi.org") in [(one.id, one.host) for one in policy.allow]


async def test_a_switch_is_told_applied_and_counted(plane: World) -> None:
    async with egress_replica(plane, cut=3) as replica:
        sandbox = (await plane.create(OWNER, PACKAGES)).sandbox
        view = await plane.service.egress.switch(OWNER, sandbox.id, "offline")
        after = view.sandbox.egress
        assert (after.name, after.in_force, after.cut, view.link is not None and view.link.up) == (
            "offline",
            True,
            3,
            True,
        )
        assert after.revision > sandbox.egress.revision
        assert replica.policy(sandbox.id).mode == wire.OFFLINE
        updates = replica.updates
        again = await plane.service.egress.switch(OWNER, sandbox.id, "offline")
        assert (again.sandbox.egress, replica.updates) == (after, updates)


async def test_a_policy_is_sent_once_for_all_that_have_it(plane: World) -> None:
    async with egress_replica(plane) as replica:
        many = [(await plane.create(OWNER, PACKAGES)).sandbox for _ in range(5)]
        await asyncio.gather(*(plane.service.egress.switch(OWNER, one.id, TRAINER) for one in many))
        assert len(replica.policies) == 2
        assert {replica.policy(one.id).name for one in many} == {"custom"}


async def test_an_end_is_withdrawn(plane: World) -> None:
    async with egress_replica(plane) as replica:
        sandbox = (await plane.create(OWNER, PACKAGES)).sandbox
        await plane.service.delete(OWNER, sandbox.id)
        await asyncio.sleep(0.1)
        assert replica.serves == {}
        with pytest.raises(Problem, match="deleted"):
            await plane.service.egress.switch(OWNER, sandbox.id, "offline")


async def test_without_a_replica_a_create_fails_and_its_key_may_ask_again(plane: World) -> None:
    with pytest.raises(Problem, match="no egress replica is connected") as refused:
        await plane.create(OWNER, PACKAGES, "k")
    assert refused.value.code == "egress_unavailable"
    assert (await plane.service.levels()).egress_unserved == 1
    async with egress_replica(plane):
        again = await plane.create(OWNER, PACKAGES, "k")
        assert (again.replayed, again.sandbox.egress.in_force) == (True, True)
        assert (await plane.service.levels()).egress_unserved == 0


async def test_a_switch_that_nobody_confirms_is_on_record_and_not_called_applied(plane: World) -> None:
    sandbox = (await plane.create(OWNER, SPEC)).sandbox
    async with egress_replica(plane, silent=True) as replica:
        with pytest.raises(Problem, match="has not confirmed it"):
            await plane.service.egress.switch(OWNER, sandbox.id, "packages")
        view = await plane.service.egress.view(OWNER, sandbox.id)
        assert (view.sandbox.egress.name, view.sandbox.egress.in_force) == ("packages", False)
        assert replica.policy(sandbox.id).name == "packages"


@pytest.mark.parametrize("nothing", ["offline", EgressPolicy(mode="none")])
async def test_what_allows_nothing_needs_no_link_whatever_it_was_called(
    plane: World, nothing: str | EgressPolicy
) -> None:
    async with egress_replica(plane) as replica:
        sandbox = (await plane.create(OWNER, PACKAGES)).sandbox
        await replica.link(sandbox.id, up=False, detail="reset")
        view = await plane.service.egress.switch(OWNER, sandbox.id, nothing)
        assert (view.sandbox.egress.name, view.sandbox.egress.in_force) == ("offline", True)
        born = (await plane.create(OWNER, SandboxSpec(image="a", egress=nothing))).sandbox
        assert not born.egress.bound, "one that has reached nothing since its birth has no link"


async def test_what_allows_something_is_in_force_only_with_a_link(plane: World) -> None:
    sandbox = (await plane.create(OWNER, SPEC)).sandbox
    async with egress_replica(plane, link_up=False) as replica:
        with pytest.raises(Problem, match="no link to it: no answer"):
            await plane.service.egress.switch(OWNER, sandbox.id, "packages")
        await replica.link(sandbox.id, up=True)
        view = await plane.service.egress.view(OWNER, sandbox.id)
        assert view.sandbox.egress.in_force
        await replica.link(sandbox.id, up=False, detail="reset")
        view = await plane.service.egress.switch(OWNER, sandbox.id, "offline")
        assert view.sandbox.egress.in_force, "offline needs no link"


async def test_sandboxes_move_when_their_replica_goes_and_only_these(plane: World) -> None:
    async with egress_replica(plane, "e1") as one:
        async with egress_replica(plane, "e2") as two:
            made = {(await plane.create(OWNER, PACKAGES)).sandbox.id for _ in range(20)}
            before = {*one.serves}
            assert before | {*two.serves} == made
            assert not before & {*two.serves}
            assert 0 < len(before) < 20
        await asyncio.sleep(0.1)
        assert {*one.serves} == made
        # It waits for what is open at the other one, where there was one.
        assert {name for name, assigned in one.serves.items() if assigned.moved} == made - before


async def test_a_policy_that_there_is_not_or_that_is_unsound_creates_nothing(plane: World) -> None:
    for wish, code in (("nothing", "not_found"), (_including("nothing"), "invalid_argument")):
        with pytest.raises(Problem) as refused:
            await plane.create(OWNER, SPEC.model_copy(update={"egress": wish}))
        assert refused.value.code == code
    assert await plane.deps.store.find(None, {}, None) == []


def _including(name: str) -> EgressPolicy:
    return EgressPolicy.model_validate({"mode": "allow", "include": [name]})


async def test_where_egress_is_not_installed_every_policy_but_offline_is_refused() -> None:
    async with world() as plane:
        with pytest.raises(Problem) as refused:
            await plane.create(OWNER, PACKAGES)
        assert refused.value.code == "unsupported"
        # That is what every sandbox has here.
        assert (await plane.create(OWNER, SandboxSpec(image="python:3.12", egress="offline"))).sandbox.egress.in_force
        sandbox = (await plane.create(OWNER, SPEC)).sandbox
        for call in (
            plane.service.egress.view(OWNER, sandbox.id),
            plane.service.egress.switch(OWNER, sandbox.id, "offline"),
        ):
            with pytest.raises(Problem) as refused:
                await call
            assert refused.value.code == "unsupported"


async def test_the_installations_default_holds_for_creates_that_ask_for_nothing() -> None:
    options = Options(egress=EgressOptions(3128, "packages"))
    async with world(options=options) as plane, egress_replica(plane):
        assert (await plane.create(OWNER, SPEC)).sandbox.egress.name == "packages"
        offline = SPEC.model_copy(update={"egress": "offline"})
        assert not (await plane.create(OWNER, offline)).sandbox.egress.bound


async def test_the_date_of_a_policy_is_told_to_its_replica() -> None:
    dated = EgressPolicy.model_validate({"mode": "allow", "include": ["packages"], "until": "2024-06-01"})
    options = Options(egress=EgressOptions(3128, cached=("pypi.org",)))
    async with world(options=options) as plane, egress_replica(plane) as replica:
        sandbox = (await plane.create(OWNER, SPEC.model_copy(update={"egress": dated}))).sandbox
        told = replica.policy(sandbox.id)
        assert (told.mode, told.until) == (wire.DATED, "2024-06-01T00:00:00Z")
        assert "pypi.org" in {one.host for one in told.dated}


async def test_a_date_where_no_cache_is_installed_is_refused_before_anything_happens(plane: World) -> None:
    async with egress_replica(plane):
        dated = EgressPolicy.model_validate({"mode": "allow", "include": ["packages"], "until": "2024-06-01"})
        with pytest.raises(Problem, match="no package cache is installed here") as refused:
            await plane.create(OWNER, SPEC.model_copy(update={"egress": dated}))
        assert refused.value.code == "invalid_argument"
        assert (await plane.api("GET", "/v1/sandboxes")).json["sandboxes"] == []


async def test_a_key_is_compared_with_the_policy_that_was_asked_for(plane: World) -> None:
    async with egress_replica(plane):
        first = await plane.create(OWNER, PACKAGES, "k")
        assert (await plane.create(OWNER, PACKAGES, "k")).sandbox.id == first.sandbox.id
        for other in (
            SPEC,
            SPEC.model_copy(update={"egress": "swe-eval"}),
            SPEC.model_copy(update={"egress": TRAINER}),
        ):
            with pytest.raises(Problem, match="other parameters"):
                await plane.create(OWNER, other, "k")


async def test_policies_outlive_a_restart() -> None:
    for behind in (False, True):
        cluster, clock = FakeCluster(annotates_behind=behind), VirtualClock()
        async with world(cluster, options=INSTALLED, clock=clock) as before, egress_replica(before):
            made = (await before.create(OWNER, SPEC.model_copy(update={"egress": TRAINER}))).sandbox
            switched = (await before.create(OWNER, PACKAGES)).sandbox
            view = await before.service.egress.switch(OWNER, switched.id, "offline")
            await asyncio.sleep(6)
        async with world(cluster, options=INSTALLED, clock=clock) as after, egress_replica(after) as replica:
            await asyncio.sleep(0.1)
            assert [one.host for one in replica.policy(made.id).allow] == ["trainer.example"]
            assert replica.serves[switched.id].revision == view.sandbox.egress.revision
            assert replica.policy(switched.id).mode == wire.OFFLINE
            assert (await after.service.egress.view(OWNER, made.id)).sandbox.egress.in_force


async def test_a_switch_at_one_control_plane_is_applied_by_a_replica_of_another() -> None:
    core, cluster = SharedMemory(VirtualClock()), FakeCluster(annotates_behind=True)
    async with (
        world(cluster, options=INSTALLED, store=core.view("a")) as a,
        world(cluster, options=INSTALLED, store=core.view("b")) as b,
        egress_replica(b, "e1", cut=2) as one,
    ):
        await asyncio.sleep(2)
        sandbox = (await a.create(OWNER, SPEC.model_copy(update={"egress": TRAINER}))).sandbox
        assert sandbox.egress.in_force
        view = await a.service.egress.switch(OWNER, sandbox.id, "offline")
        assert (view.sandbox.egress.in_force, view.sandbox.egress.cut, view.link) == (True, 2, None)
        async with egress_replica(a, "e2") as two:
            made = {(await a.create(OWNER, PACKAGES)).sandbox.id for _ in range(10)} | {sandbox.id}
            await asyncio.sleep(2)
            assert {*one.serves} | {*two.serves} == made
            assert not {*one.serves} & {*two.serves}
            assert one.serves
            assert two.serves
        await asyncio.sleep(3)
        assert {*one.serves} == made


async def test_a_lost_store_loses_no_policy() -> None:
    core, cluster = SharedMemory(VirtualClock()), FakeCluster(annotates_behind=True)
    async with (
        world(cluster, options=INSTALLED, store=core.view("a")) as a,
        egress_replica(a) as replica,
    ):
        sandbox = (await a.create(OWNER, SPEC.model_copy(update={"egress": TRAINER}))).sandbox
        await asyncio.sleep(6)
        core.empty()
        await asyncio.sleep(10)
        view = await a.service.egress.view(OWNER, sandbox.id)
        assert (view.policy.allow[0].host, view.sandbox.egress.revision) == ("trainer.example", sandbox.egress.revision)
        assert replica.policy(sandbox.id).allow[0].host == "trainer.example"
        async with world(cluster, options=INSTALLED, store=core.view("b")) as b, egress_replica(b, "e2") as other:
            await asyncio.sleep(70)
            served = {**replica.serves, **other.serves}
            assert served.keys() == {sandbox.id}
            assert (await b.service.egress.view(OWNER, sandbox.id)).policy.name == "custom"


async def test_a_warm_sandbox_gets_the_policy_of_the_create_that_claims_it() -> None:
    async with world(options=INSTALLED) as plane, egress_replica(plane) as replica:
        await plane.service.pools.put("p", PoolSpec(template=Template(image=SPEC.image), min_warm=1, max_warm=1))
        await asyncio.sleep(30)
        (warm,) = await plane.deps.store.find(None, {}, {State.WARM})
        assert (replica.serves, warm.egress.bound) == ({}, False)
        claimed = (await plane.create(OWNER, PACKAGES)).sandbox
        assert (claimed.id, claimed.warm, claimed.egress.name, claimed.egress.in_force) == (
            warm.id,
            True,
            "packages",
            True,
        )


async def test_a_later_word_replaces_one_that_was_not_sent(plane: World) -> None:
    egress = plane.service.egress_feed
    assert egress is not None
    running = replace((await plane.create(OWNER, SPEC)).sandbox, id="sb-x")
    bound = replace(running, egress=running.egress.switched(await egress.policy_store.get(_packages(egress)), 5))
    with egress.assignments.subscribe("e1") as feed:
        assert list((await feed.next(1)).snapshot.assignments) == []
        feed.push("sb-x", None)
        feed.push("sb-x", egress.assignments._assignment(bound))
        feed.push("sb-y", None)
        delta = (await feed.next(2)).delta
        assert [one.sandbox_id for one in delta.assignments] == ["sb-x"]
        assert list(delta.withdrawn) == ["sb-y"]


def _packages(egress: object) -> str:
    known = vars(egress)["policy_store"]._known
    return str(next(digest for digest, one in known.items() if one.name == "packages"))


async def test_the_limits_of_an_owner_go_with_its_policies_also_when_they_are_changed(plane: World) -> None:
    bobs = DeclaredQuota(owner="bob", egress_connections=7, egress_bytes_per_second=2048)
    await plane.service.quotas.declare(bobs)
    async with egress_replica(plane) as replica:
        of_alice, of_bob = (await plane.create(OWNER, PACKAGES)).sandbox, (await plane.create("bob", PACKAGES)).sandbox

        def limits() -> list[tuple[int, int, int]]:
            told = [replica.policy(one.id).limits for one in (of_alice, of_bob)]
            return [(one.owner_connections, one.owner_bytes_per_second, one.owner_daily_bytes) for one in told]

        assert limits() == [(0, 0, 0), (7, 2048, 0)]
        assert [replica.policy(one.id).name for one in (of_alice, of_bob)] == ["packages", "packages"]
        await plane.service.quotas.change("bob", {"egress_connections": None, "egress_daily_bytes": 9})
        await asyncio.sleep(0.1)
        assert limits() == [(0, 0, 0), (0, 2048, 9)]
        await plane.service.quotas.take_back("bob")
        await asyncio.sleep(0.1)
        assert limits() == [(0, 0, 0), (0, 0, 0)]
        assert replica.serves[of_bob.id].revision == of_bob.egress.revision
