"""One plan: what is urgent first, what is there before what is asked for, and what has no place is told."""

from dataclasses import replace

from controlplane.scaling.kinds import Kind
from controlplane.scaling.planner import Demand, PoolNode, PoolState, plan
from tests.unit.controlplane.scaling.test_packing import GIB, SIZE, kind, pool

BIG = kind(16_000, 1)


def state(name: str = "a", least: int = 0, most: int = 10, **more: object) -> PoolState:
    declared = replace(pool(name, most=most), least=least)
    return replace(PoolState(declared, declared.size), **more)  # type: ignore[arg-type]


def node(name: str, free: int = 32_000, of: str = "a", **more: object) -> PoolNode:
    whole = (free, 128 * GIB, 1000 * GIB, 0, 256)
    return replace(PoolNode(name, of, whole, {"pool": of}), **more)  # type: ignore[arg-type]


def test_what_waits_is_put_on_nodes_that_are_there_then_on_coming_ones_then_on_new_ones() -> None:
    found = plan([Demand(BIG, 7, "waiting")], [node("n", 16_000)], [state(target=3, coming=2)])
    assert found.pools["a"].more == 1
    assert found.pools["a"].needs == {"waiting": 2}
    assert (found.pools["a"].spare_coming, found.unplaced) == (0, [])


def test_what_waits_has_the_last_nodes_and_headroom_is_told() -> None:
    demands = [Demand(BIG, 4, "headroom"), Demand(BIG, 3, "waiting"), Demand(BIG, 1, "pool")]
    found = plan(demands, [], [state(most=2)])
    assert found.pools["a"].more == 2
    assert [(one.need, one.count) for one in found.unplaced] == [("headroom", 4)]
    assert found.unplaced[0].why == "a has its maximum of 2 nodes"


def test_the_emptiest_nodes_are_spare_and_idle_sandboxes_go_to_the_fuller_ones() -> None:
    idle = kind(1_000, 1)
    nodes = [
        node("c", 30_000, may_go=False, sandboxes=2),
        node("b", may_go=True, sandboxes=3),
        node("d", may_go=True, sandboxes=1),
        node("e", may_go=True),
    ]
    found = plan([Demand(idle, 4, "idle")], nodes, [state(target=4)])
    # All four fit beside the claimed ones.
    assert found.pools["a"].spare == ("e", "d", "b")
    found = plan([Demand(idle, 4, "idle"), Demand(BIG, 2, "headroom")], nodes, [state(target=4)])
    assert found.pools["a"].spare == ("e", "d")


def test_a_minimum_is_kept_and_asked_for() -> None:
    found = plan([], [node("n", may_go=True), node("m", may_go=True)], [state(least=1, target=2, coming=0)])
    assert found.pools["a"].spare == ("m",)
    assert plan([], [], [state(least=3)]).pools["a"].more == 3
    assert plan([], [], [state(least=3, closed="pauses: no stock")]).pools["a"].more == 0
    # What leaves comes back before another one is asked for, and what is coming goes before what is there.
    found = plan([], [node("n", may_go=True, leaving=True)], [state(least=2, target=1)])
    assert (found.pools["a"].back, found.pools["a"].more) == (("n",), 1)
    found = plan([], [node("n", may_go=True)], [state(least=1, target=3, coming=2)])
    assert (found.pools["a"].spare, found.pools["a"].spare_coming) == ((), 2)


def test_machines_without_their_nodes_are_no_part_of_a_minimum_and_are_one_of_the_maximum() -> None:
    found = plan([], [node("n", may_go=True)], [state(least=2, target=2, gone=1)])
    assert (found.pools["a"].spare, found.pools["a"].more) == ((), 1)
    assert plan([], [], [state(least=2, most=3, target=2, gone=2)]).pools["a"].more == 1
    # What sandboxes need is counted once for both.
    found = plan([Demand(BIG, 2, "waiting")], [node("n", 0, sandboxes=2)], [state(least=2, target=2, gone=1)])
    assert found.pools["a"].more == 1


def test_a_leaving_node_that_is_needed_comes_back_before_one_is_asked_for() -> None:
    nodes = [node("n", 0, sandboxes=9), node("l", may_go=True, leaving=True)]
    found = plan([Demand(BIG, 2, "waiting")], nodes, [state(target=2)])
    assert (found.pools["a"].back, found.pools["a"].more) == (("l",), 0)


def test_what_has_no_place_is_told_with_the_reason() -> None:
    demands = [
        Demand(kind(64_000, 1), 1, "waiting"),
        Demand(kind(100, 1, zone="moon"), 2, "waiting"),
        Demand(kind(100, 1, gpu=1), 1, "waiting"),
    ]
    found = plan(demands, [], [state(), state("b", closed="pauses: no stock")])
    assert {one.why for one in found.unplaced} == {
        "it needs 64 cpu, and a node of a has 32 cpu",
        "no node pool has the labels that it asks for",
        "it needs 1 GPUs, and a node of a has 0 GPUs",
    }
    full = plan([Demand(BIG, 9, "waiting")], [], [state(most=2, target=2), state("b", closed="pauses: no stock")])
    assert full.unplaced[0].why == "a has its maximum of 2 nodes; b pauses: no stock"


def test_another_pool_takes_over_from_one_that_pauses() -> None:
    cheap, dear = state("a", closed="pauses: no stock"), state("b")
    found = plan([Demand(BIG, 2, "waiting")], [], [cheap, dear])
    assert {name: one.more for name, one in found.pools.items()} == {"a": 0, "b": 1}


def test_a_node_that_has_nothing_free_costs_no_step_and_takes_nothing() -> None:
    found = plan([Demand(Kind((0, 0, 0, 0, 1)), 1, "waiting")], [node("full", 0)], [state(target=1)])
    assert found.pools["a"].more == 1
    assert SIZE[0] == 32_000
