"""What a control plane relies on of an egress replica: `rollbox-egress` and the fake of the unit tests pass these.

The sandboxes of this world have no sidecar, so no link ever comes up: what needs one is asked of the whole product.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest

from controlplane.egress import EgressPolicy
from controlplane.errors import Problem
from controlplane.lifecycle import Egress
from controlplane.model import Sandbox
from tests.support.waiting import until
from tests.support.world import OWNER, SPEC, World

# One that is connected under this name while the block runs, and stops as it is told to at its end.
Replica = Callable[[str], AbstractAsyncContextManager[None]]
OPEN = EgressPolicy(mode="open")


async def when(look: Callable[[], bool]) -> None:
    """Waits until it is so."""

    async def looked() -> bool:
        return look()

    await until(looked)


def egress(plane: World) -> Egress:
    """The control plane's part."""
    found = plane.service.egress_feed
    assert found is not None
    return found


async def bound(plane: World, policy: str | EgressPolicy = OPEN) -> Sandbox:
    """A sandbox with a policy that nobody has put in force yet."""
    sandbox = (await plane.create(OWNER, SPEC)).sandbox
    with pytest.raises(Problem, match="egress_unavailable"):
        await plane.service.egress.switch(OWNER, sandbox.id, policy, 0.001)
    return sandbox


class EgressReplicaSuite:
    """Subclasses have the fixtures `plane`, a world with egress, and `replica`."""

    async def test_a_switch_to_offline_is_in_force_without_a_link(self, plane: World, replica: Replica) -> None:
        async with replica("e1"):
            sandbox = await bound(plane)
            view = await plane.service.egress.switch(OWNER, sandbox.id, "offline", 60)
            assert (view.sandbox.egress.in_force, view.sandbox.egress.cut) == (True, 0)

    async def test_what_allows_something_is_not_said_to_be_in_force_without_one(
        self, plane: World, replica: Replica
    ) -> None:
        async with replica("e1"):
            sandbox = await bound(plane)
            await when(lambda: egress(plane).reports.link(sandbox.id) is not None)
            with pytest.raises(Problem, match="no link to it: ."):
                await plane.service.egress.switch(OWNER, sandbox.id, "packages", 1)

    async def test_what_was_switched_before_it_came_is_answered_from_its_snapshot(
        self, plane: World, replica: Replica
    ) -> None:
        boxes = [await bound(plane) for _ in range(3)]
        for box in boxes:
            with pytest.raises(Problem, match="no egress replica is connected"):
                await plane.service.egress.switch(OWNER, box.id, "offline", 0.001)
        async with replica("e1"):
            for box in boxes:
                view = await plane.service.egress.switch(OWNER, box.id, "offline", 60)
                assert view.sandbox.egress.in_force

    async def test_of_two_each_answers_for_its_own_and_the_one_that_stays_for_all(
        self, plane: World, replica: Replica
    ) -> None:
        board = egress(plane).assignments
        async with replica("e1"):
            async with replica("e2"):
                boxes = [await bound(plane) for _ in range(12)]
                assert {board.replica(box.id) for box in boxes} == {"e1", "e2"}
                for box in boxes[:6]:
                    await plane.service.egress.switch(OWNER, box.id, "offline", 60)
            await when(lambda: board.live == {"e1"})
            for box in boxes[6:]:
                await plane.service.egress.switch(OWNER, box.id, "offline", 60)
        await when(lambda: not board.live)
