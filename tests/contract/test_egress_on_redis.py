"""Two control planes on one Redis, and egress replicas at either: switches, moves, and a store that is emptied."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from redis.asyncio import Redis

from controlplane.clock import SystemClock
from controlplane.cluster.engine.documents import FileDocuments
from controlplane.egress import EgressOptions, EgressPolicy
from controlplane.lifecycle import Options
from controlplane.model import SandboxSpec
from controlplane.store import RedisStore
from controlplane.wire import egress_pb2 as wire
from tests.support.egress_replica import egress_replica
from tests.support.fake_cluster import FakeCluster
from tests.support.redis_server import redis_server
from tests.support.waiting import until
from tests.support.world import OWNER, World, world

TRAINER = EgressPolicy.model_validate({"mode": "allow", "allow": ["trainer.example"]})
SPEC = SandboxSpec(image="a", start_timeout_ms=600_000)
ASKING = SandboxSpec(image="a", start_timeout_ms=600_000, egress=TRAINER)


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with redis_server(tmp_path) as url:
        yield url


@asynccontextmanager
async def planes(url: str) -> AsyncIterator[tuple[World, World]]:
    """Two control planes with egress."""
    cluster, clock = FakeCluster(start_s=0.01, annotates_behind=True), SystemClock()
    options, documents = Options(egress=EgressOptions(3128)), FileDocuments()
    async with (
        RedisStore.open(url, installation="t", clock=clock, replica="a") as one,
        RedisStore.open(url, installation="t", clock=clock, replica="b") as two,
        world(cluster, options=options, clock=clock, store=one, documents=documents) as a,
        world(cluster, options=options, clock=clock, store=two, documents=documents) as b,
    ):
        yield a, b


async def when(look: Callable[[], bool]) -> None:
    """Waits until it is so."""

    async def looked() -> bool:
        return look()

    await until(looked)


async def test_what_one_control_plane_is_asked_for_an_egress_replica_of_the_other_does(url: str) -> None:
    async with planes(url) as (a, b), egress_replica(b, "e1", cut=2) as one:
        assert a.service.egress_feed is not None
        board = a.service.egress_feed.assignments
        await when(lambda: "e1" in board.live)
        sandbox = (await a.create(OWNER, ASKING)).sandbox
        assert sandbox.egress.in_force
        assert [rule.host for rule in one.policy(sandbox.id).allow] == ["trainer.example"]
        view = await a.service.egress.switch(OWNER, sandbox.id, "offline")
        assert (view.sandbox.egress.cut, one.policy(sandbox.id).mode) == (2, wire.OFFLINE)
        await one.report(attempts=[wire.Attempt(sandbox_id=sandbox.id, host="h", verdict=wire.CUT)])
        assert [told.host for told in await a.service.egress.log(OWNER, sandbox.id, 9)] == ["h"]
        async with egress_replica(a, "e2") as two:
            made = {sandbox.id, *[(await b.create(OWNER, ASKING)).sandbox.id for _ in range(8)]}
            await when(lambda: {*one.serves} | {*two.serves} == made and not {*one.serves} & {*two.serves})
        await when(lambda: {*one.serves} == made)


async def test_a_redis_that_is_emptied_takes_no_policy_with_it(url: str) -> None:
    async with planes(url) as (a, b), egress_replica(b, "e1") as one:
        assert a.service.egress_feed is not None
        board = a.service.egress_feed.assignments
        await when(lambda: "e1" in board.live)
        sandbox = (await a.create(OWNER, ASKING)).sandbox
        held = a.cluster.held
        await when(lambda: "egress" in held[sandbox.id].facts)
        async with Redis.from_url(url) as redis:
            await redis.flushall()
        view = await b.service.egress.view(OWNER, sandbox.id)
        assert [rule.host for rule in view.policy.allow] == ["trainer.example"]
        assert view.sandbox.egress.revision == sandbox.egress.revision
        switched = await b.service.egress.switch(OWNER, sandbox.id, "packages")
        assert switched.sandbox.egress.revision > sandbox.egress.revision
        assert one.policy(sandbox.id).name == "packages"
        again = await asyncio.gather(*(a.service.egress.switch(OWNER, sandbox.id, "offline") for _ in range(3)))
        assert {one.sandbox.egress.name for one in again} == {"offline"}


async def test_what_another_control_plane_confirms_is_known_there_as_a_whole(url: str) -> None:
    promised = SandboxSpec(image="a", start_timeout_ms=600_000, egress=TRAINER, settings_digest="d" * 64)
    async with planes(url) as (a, b), egress_replica(b, "e1"):
        assert a.service.egress_feed is not None
        assert b.service.egress_feed is not None
        board, there = a.service.egress_feed.assignments, b.service.egress_feed.assignments
        await when(lambda: "e1" in board.live)
        made = [(await a.create(OWNER, spec)).sandbox for spec in (ASKING, promised)]
        for sandbox, digest in zip(made, ("", "d" * 64), strict=True):
            view = await a.service.egress.switch(OWNER, sandbox.id, "packages")
            assert view.sandbox.egress.in_force
            record = await b.service.get(OWNER, sandbox.id)
            assert (record.settings_digest, record.egress.name) == (digest, "packages")
        assert all(there.sandboxes[one.id].egress.in_force for one in made)
