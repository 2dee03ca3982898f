"""The route board: snapshots, deltas, slow gateways, old ends."""

import asyncio
from dataclasses import replace

import pytest

from controlplane.lifecycle import RouteBoard, SigningKey
from controlplane.lifecycle.routes import ENDS_PER_MESSAGE, MAX_BEHIND
from controlplane.model import EndCause, Sandbox, State
from tests.support.virtual_time import EPOCH_MS, VirtualClock
from tests.support.world import PRIVATE, SPEC

RUNNING = Sandbox("sb-1", "alice", SPEC, 0, 1, "f", state=State.RUNNING, address="unix:/a")
END = EndCause("oom_killed", "the kernel killed it", EPOCH_MS, "engine")


def new_board() -> RouteBoard:
    clock = VirtualClock()
    return RouteBoard(clock, SigningKey(PRIVATE, clock))


async def test_a_subscription_begins_with_what_is_true() -> None:
    board = new_board()
    board.publish(RUNNING)
    board.publish(replace(RUNNING, id="sb-2"))
    board.withdraw(replace(RUNNING, id="sb-2", end=END))
    with board.subscribe() as subscription:
        first = await subscription.next()
        assert [route.sandbox_id for route in first.snapshot.routes] == ["sb-1"]
        assert [(end.sandbox_id, end.cause) for end in first.snapshot.ends] == [("sb-2", "oom_killed")]
        assert first.version == 3


async def test_changes_follow_in_order_with_growing_versions() -> None:
    board = new_board()
    with board.subscribe() as one, board.subscribe() as two:
        board.publish(RUNNING)
        board.withdraw(replace(RUNNING, end=END))
        for subscription in (one, two):
            updates = [await subscription.next() for _ in range(3)]
            assert [update.WhichOneof("body") for update in updates] == ["snapshot", "delta", "delta"]
            assert [update.version for update in updates] == [0, 1, 2]
            assert updates[1].delta.routes[0].address == "unix:/a"
            assert updates[2].delta.ends[0].detail == "the kernel killed it"
    assert board.subscribers == 0


async def test_a_gateway_that_is_too_far_behind_is_cut_off() -> None:
    board = new_board()
    with board.subscribe() as subscription:
        for number in range(MAX_BEHIND + 1):
            board.publish(replace(RUNNING, generation=number))
        assert subscription.cut


async def test_many_ends_come_in_several_messages() -> None:
    board = new_board()
    for number in range(ENDS_PER_MESSAGE + 10):
        board.withdraw(replace(RUNNING, id=f"sb-{number}", end=replace(END, detail="x" * 5_000)))
    with board.subscribe() as subscription:
        first, second = await subscription.next(), await subscription.next()
        assert (len(first.snapshot.ends), len(second.delta.ends)) == (ENDS_PER_MESSAGE, 10)
        assert first.ByteSize() < 4 << 20


async def test_ends_are_forgotten_after_a_day() -> None:
    board = new_board()
    board.withdraw(replace(RUNNING, end=END))
    await asyncio.sleep(24 * 3600 + 1)
    with board.subscribe() as subscription:
        assert not (await subscription.next()).snapshot.ends


async def test_a_sandbox_without_an_end_is_not_withdrawn() -> None:
    with pytest.raises(ValueError, match="sb-1 has no end"):
        new_board().withdraw(RUNNING)
