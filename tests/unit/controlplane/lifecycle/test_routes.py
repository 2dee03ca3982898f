"""The route board: snapshots, deltas, slow gateways, old ends."""

import asyncio
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.lifecycle import RouteBoard, SigningKey
from controlplane.lifecycle.routes import MAX_BEHIND, TOGETHER, Subscription
from controlplane.model import EndCause, Sandbox, State
from controlplane.wire import routes_pb2 as wire
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
        assert [(await each.next()).WhichOneof("body") for each in (one, two)] == ["snapshot"] * 2
        board.publish(RUNNING)
        updates = [await each.next() for each in (one, two)]
        assert [update.version for update in updates] == [1, 1]
        assert updates[0].delta.routes[0].address == "unix:/a"
        board.withdraw(replace(RUNNING, end=END))
        updates = [await each.next() for each in (one, two)]
        assert [update.version for update in updates] == [2, 2]
        assert updates[0].delta.ends[0].detail == "the kernel killed it"
    assert board.subscribers == 0


async def test_changes_that_wait_go_together_behind_the_snapshot() -> None:
    board = new_board()
    with board.subscribe() as subscription:
        board.publish(RUNNING)
        board.publish(replace(RUNNING, id="sb-2"))
        board.publish(replace(RUNNING, generation=2))
        board.withdraw(replace(RUNNING, id="sb-2", end=END))
        first, then = await subscription.next(), await subscription.next()
        assert (first.WhichOneof("body"), first.version) == ("snapshot", 0)
        assert then.version == board.version == 4
        told = [(route.sandbox_id, route.generation) for route in then.delta.routes]
        assert told == [("sb-1", 1), ("sb-2", 1), ("sb-1", 2)]
        assert [end.sandbox_id for end in then.delta.ends] == ["sb-2"]


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=40), st.integers(1, 12))
def test_whatever_goes_together_a_gateway_knows_the_same(changes: list[tuple[int, bool]], every: int) -> None:
    async def run() -> None:
        board = new_board()
        with board.subscribe() as prompt, board.subscribe() as late:
            promptly, lately = Received(), Received()
            for number, (which, over) in enumerate(changes, start=1):
                sandbox = replace(RUNNING, id=f"sb-{which}", generation=number)
                board.withdraw(replace(sandbox, end=END)) if over else board.publish(sandbox)
                await promptly.receive(prompt, board.version)
                if not number % every:
                    await lately.receive(late, board.version)
            await promptly.receive(prompt, board.version)
            await lately.receive(late, board.version)
            assert promptly == lately

    asyncio.run(run())


@dataclass
class Received:
    """What a gateway knows by its feed."""

    routes: dict[str, int] = field(default_factory=dict)
    ends: set[str] = field(default_factory=set)
    version: int = -1

    async def receive(self, subscription: Subscription, version: int) -> None:
        """Takes in all that waits; routes of a message before its ends, as the gateway does."""
        while self.version < version:
            update = await subscription.next()
            self.version = update.version
            self.routes |= {one.sandbox_id: one.generation for one in update.delta.routes}
            self.ends |= {one.sandbox_id for one in update.delta.ends}
            self.routes = {one: at for one, at in self.routes.items() if one not in self.ends}


async def test_a_gateway_that_is_too_far_behind_is_cut_off() -> None:
    board = new_board()
    with board.subscribe() as subscription:
        for number in range(MAX_BEHIND + 1):
            board.publish(replace(RUNNING, generation=number))
        assert subscription.cut


async def test_a_large_snapshot_comes_in_several_messages_within_the_default_limit() -> None:
    board = new_board()
    routes, ends = [f"sb-{number}" for number in range(7_000)], [f"gone-{number}" for number in range(7_000)]
    for sandbox_id in routes:
        board.publish(replace(RUNNING, id=sandbox_id, owner="o" * 500))
    for sandbox_id in ends:
        board.withdraw(replace(RUNNING, id=sandbox_id, end=replace(END, detail="x" * 5_000)))
    parts: list[wire.Update] = []
    with board.subscribe() as subscription:
        while not parts or parts[-1].snapshot.more:
            parts.append(await subscription.next())
        board.publish(RUNNING)
        assert (await subscription.next()).delta.routes
    assert len(parts) > 2
    assert max(part.ByteSize() for part in parts) < 4 << 20
    assert [one.sandbox_id for part in parts for one in part.snapshot.routes] == routes
    assert [one.sandbox_id for part in parts for one in part.snapshot.ends] == ends


async def test_what_goes_together_is_bounded() -> None:
    board = new_board()
    with board.subscribe() as subscription:
        await subscription.next()
        for number in range(TOGETHER + 10):
            board.publish(replace(RUNNING, id=f"sb-{number}"))
        assert [len((await subscription.next()).delta.routes) for _ in range(2)] == [TOGETHER, 10]


async def test_ends_are_forgotten_after_a_day() -> None:
    board = new_board()
    board.withdraw(replace(RUNNING, end=END))
    await asyncio.sleep(24 * 3600 + 1)
    with board.subscribe() as subscription:
        assert not (await subscription.next()).snapshot.ends


async def test_a_sandbox_without_an_end_is_not_withdrawn() -> None:
    with pytest.raises(ValueError, match="sb-1 has no end"):
        new_board().withdraw(RUNNING)


async def test_an_end_is_told_with_its_reason_and_no_more_of_its_details_than_gateways_keep() -> None:
    details = {**{f"a{number}": "v" * 200 for number in range(8)}, "reason": "user_not_found", "z": "last"}
    board = new_board()
    with board.subscribe() as subscription:
        await subscription.next()
        board.withdraw(replace(RUNNING, end=replace(END, cause="invalid_argument", details=details)))
        (end,) = (await subscription.next()).delta.ends
    told = {"reason": "user_not_found", "by": "engine", "z": "last", "a0": "v" * 200, "a1": "v" * 200}
    assert dict(end.details) == told
