"""A change that the store has made though its answer was lost: it is heard of where it was made, too."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from controlplane.egress import EgressOptions
from controlplane.errors import Problem
from controlplane.lifecycle import Options
from controlplane.model import Sandbox, SandboxSpec
from controlplane.wire import egress_pb2 as wire
from tests.support.egress_replica import egress_replica
from tests.support.fake_cluster import FakeCluster
from tests.support.shared_store import SharedMemory
from tests.support.virtual_time import VirtualClock
from tests.support.world import OWNER, SPEC, World, world

PACKAGES = SandboxSpec(image="python:3.12", egress="packages")


class Lossy:
    """Makes every change of a store, and loses so many answers from the next one on.

    Attributes:
        hangs: the answers do not come at all, until their caller has gone.
    """

    def __init__(self, plane: World) -> None:
        self.losses = 0
        self.hangs = False
        self._replace = plane.deps.store.replace
        vars(plane.deps.store)["replace"] = self._replaced

    async def _replaced(self, sandbox: Sandbox, expected_version: int) -> bool:
        done = await self._replace(sandbox, expected_version)
        if self.losses:
            self.losses -= 1
            if self.hangs:
                await asyncio.Event().wait()
            raise Problem("upstream_timeout", "no answer", retry_after_ms=1000)
        return done


@pytest.fixture
async def plane() -> AsyncIterator[World]:
    core, cluster = SharedMemory(VirtualClock()), FakeCluster(annotates_behind=True)
    async with world(cluster, options=Options(egress=EgressOptions(3128)), store=core.view("a")) as made:
        yield made


async def test_a_switch_is_answered_though_the_report_of_it_lost_its_answer(plane: World) -> None:
    async with egress_replica(plane, silent=True) as replica:
        sandbox = (await plane.create(OWNER, SPEC)).sandbox
        store = Lossy(plane)
        switching = asyncio.create_task(plane.service.egress.switch(OWNER, sandbox.id, "packages"))
        await asyncio.sleep(0.1)
        store.losses = 1
        await replica.report(applied=[_applied(replica.serves[sandbox.id].revision, sandbox.id)])
        assert (await switching).sandbox.egress.in_force


async def test_a_switch_is_answered_though_a_report_was_broken_off_and_sent_again(plane: World) -> None:
    async with egress_replica(plane, silent=True) as replica:
        sandbox = (await plane.create(OWNER, SPEC)).sandbox
        store = Lossy(plane)
        switching = asyncio.create_task(plane.service.egress.switch(OWNER, sandbox.id, "packages"))
        await asyncio.sleep(0.1)
        store.losses, store.hangs = 1, True
        applied = [_applied(replica.serves[sandbox.id].revision, sandbox.id)]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(replica.report(applied=applied), 0.05)
        assert not switching.done()
        await replica.report(applied=applied)
        assert (await switching).sandbox.egress.in_force


async def test_a_policy_is_put_in_force_though_its_switch_has_failed(plane: World) -> None:
    async with egress_replica(plane) as replica:
        sandbox = (await plane.create(OWNER, PACKAGES)).sandbox
        store = Lossy(plane)
        store.losses = 1
        with pytest.raises(Problem, match="no answer"):
            await plane.service.egress.switch(OWNER, sandbox.id, "offline")
        # Nobody asks again, and what is on record is put in force all the same.
        await asyncio.sleep(3)
        assert replica.policy(sandbox.id).name == "offline"
        view = await plane.service.egress.view(OWNER, sandbox.id)
        assert (view.sandbox.egress.name, view.sandbox.egress.in_force) == ("offline", True)


def _applied(revision: int, sandbox_id: str) -> wire.Applied:
    return wire.Applied(sandbox_id=sandbox_id, revision=revision)
