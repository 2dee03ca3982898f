"""What is done turn by turn: never above the maximum, never a claimed sandbox's node, to the end, and then nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from controlplane.scaling.decisions import told
from controlplane.scaling.planner import Demand
from controlplane.scaling.seen import Ask, Cordon, Empty, Group, Machine, Remove, SeenNode, Uncordon
from tests.support.examples import EXAMPLES
from tests.unit.controlplane.scaling.played import DOWN_AFTER_MS, TURN_MS, Played
from tests.unit.controlplane.scaling.test_packing import SIZE, kind, pool

SMALL, BIG = kind(2_000, 8), kind(16_000, 16)
LONG = DOWN_AFTER_MS // TURN_MS + 2


def turns(world: Played, count: int) -> list[str]:
    """What was done in so many turns, in words."""
    return [told(step) for _ in range(count) for step in world.turn().steps]


def until_one_leaves(world: Played) -> None:
    for _ in range(3 * LONG):
        if any(isinstance(step, Cordon) for step in world.turn().steps):
            return
    raise AssertionError("no node was cordoned")


def test_a_herd_has_its_nodes_asked_for_at_once_and_keeps_them() -> None:
    world = Played([pool()])
    world.create(BIG, 8)
    assert turns(world, 1) == ["asks for 4 nodes: 4 more for 8 that wait"]
    # While they come, and once they are there, nothing more is asked for.
    assert turns(world, 60) == []
    assert all(one.node for one in world.boxes.values())


def test_what_nothing_needs_goes_emptied_and_one_by_one() -> None:
    world = Played([pool()])
    world.create(BIG, 8)
    turns(world, 25)
    world.pools_want[SMALL] = 1
    world.end(8)
    done = turns(world, 5 * LONG)
    assert len(world.machines) == 1
    assert sum(one.startswith("removes") for one in done) == 3
    assert world.targets["a"] == 1
    # One of them held the pool's idle sandbox, or could: it has its place on what is left.
    assert [one.idle and bool(one.node) for one in world.boxes.values()] == [True]
    assert turns(world, 3 * LONG) == []


def test_a_node_whose_idle_sandbox_is_claimed_is_opened_again() -> None:
    world = Played([pool(), pool("b", price=9)])
    world.create(BIG, 2)
    world.create(SMALL, 1, idle=True)
    turns(world, 25)
    world.end(2)
    until_one_leaves(world)
    left = next(name for name, one in world.machines.items() if one.cordoned)
    for box in world.boxes.values():
        box.node, box.idle = left, False
    assert f"opens {left}: a sandbox there was claimed" in turns(world, 1)
    turns(world, 5 * LONG)
    assert left in world.machines


def test_what_is_needed_again_is_opened_before_another_is_asked_for() -> None:
    world = Played([pool()])
    world.create(BIG, 2)
    turns(world, 25)
    world.end(2)
    until_one_leaves(world)
    world.create(BIG, 2)
    (name,) = world.machines
    assert turns(world, 1) == [f"opens {name}: it is needed again"]


@pytest.mark.parametrize("by_ms", [6 * 3_600_000, -6 * 3_600_000])
def test_a_turn_whose_time_jumps_takes_no_node_in_use_and_goes_on_in_the_new_time(by_ms: int) -> None:
    world = Played([pool()])
    world.create(BIG, 8)
    turns(world, 25)
    world.now_ms += by_ms
    assert turns(world, LONG) == [], "all of its nodes are in use"
    world.end(8)
    turns(world, 2)
    world.now_ms += by_ms
    turns(world, 5 * LONG)
    assert not world.machines
    world.create(BIG, 8)
    world.now_ms -= by_ms
    assert turns(world, 1) == ["asks for 4 nodes: 4 more for 8 that wait"]
    turns(world, 25)
    assert all(one.node for one in world.boxes.values())


def test_nodes_that_do_not_come_are_given_up_and_another_pool_is_asked() -> None:
    world = Played([pool("cheap"), pool("dear", price=5)], arrives_ms=None)
    world.create(BIG, 2)
    assert turns(world, 1) == ["asks for 1 nodes: 1 more for 2 that wait"]
    world.arrives_ms = 60_000
    done = turns(world, 600_000 // TURN_MS + 1)
    assert done == [
        "removes cheap-3: not there within 600 s",
        "asks for 1 nodes: 1 more for 2 that wait",
    ]
    assert world.targets == {"cheap": 0, "dear": 1}
    assert turns(world, 20) == []


def test_a_machine_that_failed_is_removed_and_its_pool_pauses() -> None:
    world = Played([pool("cheap"), pool("dear", price=5)])
    world.create(BIG, 2)
    turns(world, 1)
    (machine,) = world.machines.values()
    machine.failed = "no stock of this type"
    decided = world.turn()
    assert [told(step) for step in decided.steps] == [
        "removes cheap-3: failed",
        "asks for 1 nodes: 1 more for 2 that wait",
    ]
    report = decided.reports[0]
    assert report.why.startswith("pauses: cheap-3: no stock of this type")
    assert report.paused_until_ms > world.now_ms


def test_a_provider_that_tells_nothing_is_left_alone_and_its_nodes_stay() -> None:
    world = Played([pool("cheap"), pool("dear", price=5)])
    world.create(BIG, 2)
    turns(world, 25)
    world.silent = {"cheap"}
    world.create(BIG, 2)
    assert turns(world, 1) == ["asks for 1 nodes: 1 more for 2 that wait"]
    assert world.targets == {"cheap": 1, "dear": 1}
    world.end(4)
    turns(world, 3 * LONG)
    assert [one.pool.name for one in world.machines.values()] == ["cheap"]


def test_what_was_asked_for_and_is_not_needed_any_more_is_taken_back() -> None:
    world = Played([pool()], arrives_ms=300_000)
    world.create(BIG, 6)
    turns(world, 1)
    world.end(6)
    done = turns(world, LONG)
    assert done[-1].startswith("removes a-7, a-8, a-9: not needed for 60 s")
    assert not world.machines


def test_a_provider_that_names_nodes_of_others_gets_none_of_them() -> None:
    theirs = SeenNode("theirs", SIZE, {"pool": "b"})
    world = Played([pool(), pool("b")])
    groups: dict[str, Group | str] = {"a": Group(1, [Machine("m", "theirs")]), "b": Group(1, [Machine("n", "theirs")])}
    for at in range(2 * LONG):
        decided = world.decisions.turn([], [theirs], groups, 1_000 + TURN_MS * at)
        assert not any(step.pool == "a" and not isinstance(step, Ask) for step in decided.steps)
        assert decided.reports[0].ready == 0


def test_a_leaving_node_that_would_take_no_start_is_not_opened_for_one() -> None:
    world = Played([pool()])
    node = SeenNode("n", SIZE, {"pool": "a"}, open=False, leaving=True, opens=False)
    groups: dict[str, Group | str] = {"a": Group(1, [Machine("n", "n")])}
    (step,) = world.decisions.turn([Demand(BIG, 2, "waiting")], [node], groups, 1_000).steps
    assert told(step) == "asks for 2 nodes: 1 more for 2 that wait"


LATE = 600_000 // TURN_MS


def test_a_machine_whose_node_is_gone_is_not_waited_for_and_pauses_nothing() -> None:
    world = Played([pool(most=2)])
    group, there = Group(2, [Machine("m", "m"), Machine("n", "n")]), SeenNode("n", SIZE, {"pool": "a"}, busy=1)
    world.decisions.turn([], [SeenNode("m", SIZE, {"pool": "a"}, busy=1), there], {"a": group}, 1_000)
    for at in range(1, 3 * LATE):
        decided = world.decisions.turn([], [there], {"a": group}, 1_000 + TURN_MS * at)
        (report,) = decided.reports
        assert (decided.steps, report.coming, report.paused_until_ms) == ([], 0, 0)
        assert report.why == "1 machines, as m, have lost their nodes, and count to the maximum"
    # The maximum is one of machines.
    wish = [Demand(BIG, 2, "waiting")]
    full = SeenNode("n", (0, *SIZE[1:]), {"pool": "a"}, busy=4)
    assert not world.decisions.turn(wish, [full], {"a": group}, 10_000_000).steps
    gone = Group(1, group.machines[1:])
    (step,) = world.decisions.turn(wish, [full], {"a": gone}, 10_005_000).steps
    assert told(step) == "asks for 2 nodes: 1 more for 2 that wait"


def test_a_scaler_that_begins_with_lost_machines_waits_once_and_goes_on() -> None:
    world = Played([pool(most=9)])
    # Of one the node is gone, of the other not Ready with a sandbox on it; and one has failed after its node went.
    dead = SeenNode("d", SIZE, {"pool": "a"}, busy=1, ready=False, open=False)
    group = Group(3, [Machine("m", "m"), Machine("d", "d"), Machine("f", "f", "the machine is gone")])
    pauses = set()
    for at in range(4 * LATE):
        decided = world.decisions.turn([], [dead], {"a": group}, 1_000 + TURN_MS * at)
        assert decided.steps == []
        pauses.add(decided.reports[0].paused_until_ms)
    assert decided.reports[0].coming == 0
    assert len(pauses) == 3  # none, for what failed, and for what was late
    (step,) = world.decisions.turn([Demand(BIG, 2, "waiting")], [dead], {"a": group}, 10_000_000).steps
    assert told(step) == "asks for 4 nodes: 1 more for 2 that wait"


def test_a_minimum_is_of_nodes_and_not_of_machines_that_have_lost_theirs() -> None:
    world = Played([replace(pool(most=3), least=2)])
    both = [SeenNode(name, SIZE, {"pool": "a"}) for name in ("n", "m")]
    group = Group(2, [Machine("n", "n"), Machine("m", "m")])
    assert not world.decisions.turn([], both, {"a": group}, 1_000).steps
    # One node is gone. Its machine stays at the provider.
    (step,) = world.decisions.turn([], both[:1], {"a": group}, 6_000).steps
    assert told(step) == "asks for 3 nodes: 1 more for its minimum"
    asked = Group(3, [*group.machines, Machine("o")])
    assert not world.decisions.turn([], both[:1], {"a": asked}, 11_000).steps
    # The maximum is one of machines: with both lost there is no room for a second one.
    assert not world.decisions.turn([], [], {"a": asked}, 16_000).steps


def test_a_machine_whose_node_is_there_and_empty_and_never_ready_is_removed() -> None:
    world = Played([pool(most=9)])
    dead, wish = SeenNode("d", SIZE, {"pool": "a"}, ready=False, open=False), [Demand(BIG, 2, "waiting")]
    groups: dict[str, Group | str] = {"a": Group(1, [Machine("d", "d")])}
    steps = [
        told(step)
        for at in range(LATE + 2)
        for step in world.decisions.turn(wish, [dead], groups, 1_000 + TURN_MS * at).steps
    ]
    # Again as long as it is there.
    assert steps == 2 * ["removes d: not there within 600 s"]


def test_a_machine_that_names_no_node_is_not_removed_while_a_node_may_be_its_own() -> None:
    world = Played([pool()])
    node, unnamed = SeenNode("n", SIZE, {"pool": "a"}, busy=1), Group(1, [Machine("m")])
    for at in range(2 * 600_000 // TURN_MS):
        decided = world.decisions.turn([], [node], {"a": unnamed}, 1_000 + TURN_MS * at)
        assert decided.steps == []
        assert decided.reports[0].why.endswith("no machine names n: none of the 1 without a node's name is removed")
    # Nor is a provider that lists no machines asked for fewer.
    for at in range(2 * 600_000 // TURN_MS):
        assert world.decisions.turn([], [node], {"a": Group(1)}, 2_000_000 + TURN_MS * at).steps == []
    gone = world.decisions.turn([], [], {"a": unnamed}, 4_000_000)
    assert [told(step) for step in gone.steps] == ["removes m: not there within 600 s"]


def test_more_machines_than_were_asked_for_are_told_and_used_and_go_when_idle() -> None:
    world = Played([pool(most=2)])
    world.create(BIG, 1)
    turns(world, 20)
    for name in ("x", "y", "z"):
        world.machines[name] = type(world.machines[next(iter(world.machines))])(world.pools[0], 0)
    decided = world.turn()
    assert "4 machines are there, and 1 were asked for" in decided.reports[0].why
    turns(world, 6 * LONG)
    assert len(world.machines) == 1


def test_a_new_node_is_taken_for_no_larger_than_an_empty_one_is() -> None:
    lies = SeenNode("n", (8_000, *SIZE[1:]), {"pool": "a"})
    world = Played([pool()])
    for at in range(30):
        decided = world.decisions.turn(
            [Demand(BIG, 1, "waiting")], [lies], {"a": Group(1, [Machine("n", "n")])}, 1_000 + TURN_MS * at
        )
        assert not any(isinstance(step, Ask) for step in decided.steps)
    assert decided.plan.unplaced[0].why == "it needs 16 cpu, and a node of a has 8 cpu"


class World(RuleBasedStateMachine):
    """Random histories."""

    def __init__(self) -> None:
        super().__init__()
        self.world = Played([pool("a", most=4), pool("b", price=2, most=6)])
        self.world.pools_want[SMALL] = 3

    @rule(of=st.sampled_from([SMALL, BIG]), count=st.integers(1, 20))
    def create(self, of: object, count: int) -> None:
        self.world.create(of, count)  # type: ignore[arg-type]

    @rule(count=st.integers(1, 30))
    def end(self, count: int) -> None:
        self.world.end(count)

    @rule()
    def claim(self) -> None:
        self.world.claim()

    @rule(count=st.integers(1, 40))
    def time(self, count: int) -> None:
        turns(self.world, count)

    @rule(arrives_ms=st.sampled_from([10_000, 90_000, None]))
    def arrivals(self, arrives_ms: int | None) -> None:
        self.world.arrives_ms = arrives_ms

    @rule(name=st.sampled_from(["a", "b"]))
    def fails(self, name: str) -> None:
        for one in self.world.machines.values():
            if one.pool.name == name and not one.ready:
                one.failed = "no stock"

    @rule(names=st.sets(st.sampled_from(["a", "b"])))
    def silence(self, names: set[str]) -> None:
        self.world.silent = names

    @invariant()
    def never_above_the_maximum(self) -> None:
        for one in self.world.pools:
            assert self.world.targets[one.name] <= one.most
            assert sum(machine.pool == one for machine in self.world.machines.values()) <= one.most

    def teardown(self) -> None:
        """Once all is well, what fits has its place, and nothing is done any more."""
        world = self.world
        world.silent, world.arrives_ms = set(), 20_000
        for machine in world.machines.values():
            machine.comes_ms = min(machine.comes_ms, world.now_ms)
        turns(world, 3 * 1_800_000 // TURN_MS)
        assert turns(world, 2 * LONG) == []
        full = all(world.targets[one.name] == one.most for one in world.pools)
        assert full or all(one.node for one in world.boxes.values())
        # Without anybody's sandboxes only what the pools need is left.
        world.end(len(world.boxes))
        turns(world, 12 * LONG)
        assert len(world.machines) == 1


def test_random_histories() -> None:
    run_state_machine_as_test(
        World, settings=settings(max_examples=max(10, EXAMPLES // 5), stateful_step_count=20, deadline=None)
    )


def test_words_of_steps() -> None:
    many = tuple(Machine(f"m{at}") for at in range(5))
    assert told(Remove("a", many, "late")) == "removes m0, m1, m2 and 2 more: late"
    assert told(Empty("a", "n", "why")) == "empties n: why"
    assert told(Uncordon("a", "n", "why")) == "opens n: why"
