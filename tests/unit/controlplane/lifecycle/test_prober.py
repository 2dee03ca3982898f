"""Proofs of life: one sandbox that answers nobody ends, and a control plane or a node that is cut off ends nothing."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from controlplane.cluster import Health
from controlplane.errors import Problem
from controlplane.lifecycle import Options
from controlplane.lifecycle.health.silence import GAP_MS
from controlplane.lifecycle.health.silence_notes import MOST, SilenceNotes
from controlplane.model import Sandbox, State
from tests.support.fake_cluster import FakeCluster, FakeSidecars
from tests.support.refilled import refilled
from tests.support.shared_store import SharedMemory
from tests.support.virtual_time import VirtualClock
from tests.support.world import OWNER, SPEC, World, world

EVERY = Options(starts_in_flight=100, probe_every_ms=20_000)


class Asked(FakeSidecars):
    """Counts who is asked, and at most how many at once; silent ones take a second to fail."""

    asked = 0
    at_once = 0
    most_at_once = 0

    async def health(self, address: str, token: str) -> Health:
        self.asked += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(0.01)
            return await super().health(address, token)
        finally:
            self.at_once -= 1


@asynccontextmanager
async def running(sidecars: FakeSidecars, number: int) -> AsyncIterator[tuple[World, list[Sandbox]]]:
    async with world(FakeCluster(), sidecars, EVERY) as plane:
        creates = await asyncio.gather(*(plane.create(OWNER, SPEC) for _ in range(number)))
        yield plane, [created.sandbox for created in creates]


def hang(plane: World, *sandboxes: Sandbox) -> None:
    """Neither the control plane nor a gateway reaches them any more."""
    plane.sidecars.dead.update(one.address or "" for one in sandboxes)
    plane.gateways.unreached.update(one.id for one in sandboxes)


async def all_run(plane: World, sandboxes: Iterable[Sandbox]) -> bool:
    states = [(await plane.service.get(OWNER, one.id)).state for one in sandboxes]
    return set(states) <= {State.RUNNING}


async def test_one_that_alone_of_its_node_answers_nobody_is_lost() -> None:
    async with running(Asked(), 5) as (plane, (silent, *others)):
        hang(plane, silent)
        await asyncio.sleep(59)
        assert await all_run(plane, [silent])
        await asyncio.sleep(61)
        words = (
            "its node n1 says that it runs, but for [0-9]+ s it has answered neither the control plane nor a gateway"
        )
        with pytest.raises(Problem, match=f"sandbox_lost: {words}; the node is ready, and 4 of 4 others there answer"):
            await plane.service.alive(OWNER, silent.id)
        assert await all_run(plane, others)
        assert {*plane.gateways.asked} == {silent.id}, "gateways are asked about those that are silent, and no others"


async def test_what_a_gateway_reaches_or_no_gateway_can_tell_is_not_lost() -> None:
    async with running(Asked(), 5) as (plane, (silent, *_)):
        plane.sidecars.dead.add(silent.address or "")
        await asyncio.sleep(600)
        assert await all_run(plane, [silent])
        plane.gateways.unreached.add(silent.id)
        plane.gateways.away = True
        await asyncio.sleep(600)
        assert await all_run(plane, [silent])


async def test_an_answer_between_begins_it_anew() -> None:
    async with running(Asked(), 2) as (plane, (silent, _)):
        for _ in range(5):
            hang(plane, silent)
            await asyncio.sleep(50)
            plane.sidecars.dead.clear()
            await asyncio.sleep(25)
        assert await all_run(plane, [silent])


async def test_a_partition_of_one_node_ends_nobody() -> None:
    async with running(Asked(), 12) as (plane, sandboxes):
        cut_off = sandboxes[:3]
        plane.cluster.nodes.update((one.id, "n2") for one in cut_off)
        hang(plane, *cut_off)
        await asyncio.sleep(900)
        assert await all_run(plane, sandboxes)
        assert plane.gateways.asked == []


async def test_on_a_node_that_is_not_ready_it_is_the_nodes_matter() -> None:
    async with running(Asked(), 5) as (plane, (silent, *_)):
        hang(plane, silent)
        plane.cluster.not_ready.add("n1")
        await asyncio.sleep(900)
        assert await all_run(plane, [silent])
        plane.cluster.not_ready.clear()
        await asyncio.sleep(121)
        assert not await all_run(plane, [silent])


async def test_one_without_neighbours_is_given_five_minutes() -> None:
    async with running(Asked(), 1) as (plane, (silent,)):
        hang(plane, silent)
        await asyncio.sleep(290)
        assert await all_run(plane, [silent])
        await asyncio.sleep(70)
        assert not await all_run(plane, [silent])


async def test_rounds_are_bounded_and_paced() -> None:
    sidecars = Asked()
    async with running(sidecars, 100):
        sidecars.asked = 0
        await asyncio.sleep(60)
        assert sidecars.asked == pytest.approx(300, abs=100)
        assert sidecars.most_at_once == 16


async def test_those_that_answer_do_not_wait_for_those_that_do_not() -> None:
    sidecars = Asked()
    async with running(sidecars, 60) as (_, sandboxes):
        sidecars.dead.update(sandbox.address or "" for sandbox in sandboxes[:25])
        sidecars.asked = 0
        await asyncio.sleep(21)
        assert sidecars.asked == 60


async def test_nobody_is_asked_when_it_is_switched_off() -> None:
    sidecars = Asked()
    async with world(FakeCluster(), sidecars) as plane:
        await plane.create(OWNER, SPEC)
        await asyncio.sleep(100)
    assert sidecars.asked == 0


async def test_one_that_does_not_answer_is_told_so_while_it_is_on_record_as_running() -> None:
    async with running(FakeSidecars(), 2) as (plane, (silent, answering)):
        plane.sidecars.dead.add(silent.address or "")
        told = {}
        for one in (silent, answering):
            answer = await plane.api("GET", f"/v1/sandboxes/{one.id}/timeline")
            told[one.id] = (answer.json["state"], answer.json["summary"])
        assert told[answering.id] == ("running", "It runs.")
        state, summary = told[silent.id]
        assert state == "running"
        assert summary.startswith("It does not answer (")
        assert "it ends as sandbox_lost: after a minute, or five where its node has no other sandbox." in summary
        page = await plane.api("GET", f"/v1/console/sandboxes/{silent.id}")
        assert "It does not answer (" in page.body.decode()


async def listed(plane: World, sandbox: Sandbox) -> int | None:
    """Since when the list says that this one is silent; the console's list and its record say the same."""
    (told,) = [one for one in (await plane.api("GET", "/v1/sandboxes")).json["sandboxes"] if one["id"] == sandbox.id]
    since_ms: int | None = told["silent_since_ms"]
    record = (await plane.api("GET", f"/v1/sandboxes/{sandbox.id}")).json
    assert record["silent_since_ms"] == since_ms
    page = (await plane.api("GET", "/v1/console")).body.decode()
    assert ("no answer for " in page) == ('class="state running bad"' in page) == (since_ms is not None)
    return since_ms


async def test_every_replica_tells_it_in_lists_until_it_answers_again() -> None:
    memory, cluster, sidecars, clock = SharedMemory(VirtualClock()), FakeCluster(), FakeSidecars(), VirtualClock()
    await refilled(memory.view("r0"))
    async with AsyncExitStack() as stack:
        planes = [
            await stack.enter_async_context(world(cluster, sidecars, EVERY, store=memory.view(name)))
            for name in ("r1", "r2")
        ]
        silent, answering = [(await planes[1].create(OWNER, SPEC)).sandbox for _ in range(2)]
        assert [await listed(plane, silent) for plane in planes] == [None, None]
        began_ms = clock.now_ms()
        sidecars.dead.add(silent.address or "")
        await asyncio.sleep(50)
        (since_ms,) = {await listed(plane, silent) for plane in planes}
        assert since_ms is not None
        assert began_ms <= since_ms <= began_ms + 21_000
        for plane in planes:
            told = (await plane.api("GET", f"/v1/sandboxes/{answering.id}")).json
            assert told["silent_since_ms"] is None
        sidecars.dead.clear()
        await asyncio.sleep(25)
        assert [await listed(plane, silent) for plane in planes] == [None, None]


async def test_what_is_told_of_silence_is_bounded() -> None:
    async with world() as plane:
        notes = SilenceNotes(plane.service._core.store, plane.deps.clock)
        await notes.write({f"sb-{number}": number for number in range(MOST + 5)})
        told = await notes.since_ms()
        assert (len(told), max(told.values())) == (MOST, MOST - 1)
        await asyncio.sleep(GAP_MS / 1000 + 1)
        assert await notes.since_ms() == {}, "nobody probes any more"
