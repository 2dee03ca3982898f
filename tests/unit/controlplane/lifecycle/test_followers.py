"""What follows from a change: a defect in one follower is neither the caller's nor the other followers'."""

import asyncio

from structlog.typing import EventDict

from controlplane.cluster import Placement
from controlplane.lifecycle.record.transition import Transition
from controlplane.model import State
from tests.support.fake_cluster import FakeCluster
from tests.support.world import OWNER, SPEC, World, world


def broken(_: Transition) -> None:
    raise ZeroDivisionError("a defect")


async def test_the_change_is_made_all_others_hear_of_it_and_the_log_names_the_one_that_failed(
    plane: World, said: list[EventDict]
) -> None:
    heard: list[State] = []
    ledger = plane.service._core.ledger
    ledger.subscribe(broken)
    ledger.subscribe(lambda transition: heard.append(transition.after.state))
    made = (await plane.create(OWNER, SPEC)).sandbox
    assert made.state is State.RUNNING
    await plane.service.delete(OWNER, made.id, wait_s=60)
    assert heard[-1] is State.ENDED
    failed = [one for one in said if one["log_level"] == "error"]
    assert {one["follower"] for one in failed} == {"broken"}


async def test_what_fails_as_a_placement_is_heard_of_ends_neither_the_next_one_nor_the_replica(
    said: list[EventDict],
) -> None:
    async with world(FakeCluster()) as plane:
        core = plane.service._core

        async def fails(_: Placement) -> None:
            raise ZeroDivisionError("a defect")

        core.starter.replaced_pods.again = fails  # type: ignore[assignment,method-assign]
        await asyncio.sleep(0.1)
        for number in range(2):
            plane.cluster.turn_away(f"sb-{number}", "n1")
            await asyncio.sleep(0.1)
        assert [one["event"] for one in said if one["log_level"] == "error"] == [
            "what follows from a placement failed"
        ] * 2
        assert (await plane.create(OWNER, SPEC)).sandbox.state is State.RUNNING
