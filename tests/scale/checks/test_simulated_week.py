"""The week in virtual time: nothing is lost or counted twice, starts keep to their bounds, the same seed repeats."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.scale.simulate import tables
from tests.scale.simulate.fleet import placed
from tests.scale.simulate.traffic import DAY_S, GROUP, Run, week
from tests.scale.simulate.world import Policy, Told, World

COUNTS = st.lists(st.integers(0, 9), min_size=1, max_size=6)


@given(COUNTS, COUNTS, st.integers(0, 60), st.integers(1, 9), st.booleans())
def test_starts_come_where_there_is_room_and_all_that_fit_do(
    free: list[int], full: list[int], count: int, per_node: int, packs: bool
) -> None:
    size = min(len(free), len(full))
    room, weight = np.array(free[:size]), np.array(full[:size])
    found = placed(room, weight, count, per_node, packs=packs)
    most = np.minimum(room, per_node)
    assert (found >= 0).all()
    assert (found <= most).all()
    assert found.sum() == min(count, most.sum())


def test_packing_fills_the_fullest_node_and_spreading_the_emptiest() -> None:
    room, weight = np.array([4, 4, 4]), np.array([1, 3, 0])
    assert placed(room, weight, 3, 9, packs=True).tolist() == [0, 3, 0]
    assert placed(room, weight, 3, 9, packs=False).tolist() == [1, 0, 2]


def test_an_async_run_refills_what_ended_and_a_sync_run_asks_at_its_steps_alone() -> None:
    steady = Run("async", 0, 100, 32, 10.0, 1)
    assert steady.wanted(10, 20, 30) == (0, 2)
    assert steady.wanted(90, 100, 30) == (30, 0)
    stepped = Run("sync", 0, 100, 32, 10.0, 1, step_s=40)
    assert stepped.wanted(20, 30, 5) == (0, 0)
    assert stepped.wanted(30, 40, 5) == (5, 32)
    once = Run("evaluation", 10, 100, 32, 10.0, 1)
    assert once.wanted(0, 10, 0) == (0, 32)
    assert once.wanted(10, 20, 3) == (0, 0)


def test_a_week_has_whole_groups_in_order_and_repeats_with_its_seed() -> None:
    runs = week(100, 256, seed=3)
    assert runs == week(100, 256, seed=3) != week(100, 256, seed=4)
    assert all(one.at_once % GROUP == 0 for one in runs)
    assert [one.began_s for one in runs] == sorted(one.began_s for one in runs)


def simulated(policy: Policy) -> Told:
    runs = [
        Run("async", 600, 6000, 320, 200.0, 8, pruned=0.3),
        Run("sync", 1200, 7000, 480, 200.0, 8, step_s=600),
        Run("evaluation", 3000, 5000, 640, 100.0, 8),
    ]
    world = World(runs, policy, most=8, slots=128, starts_per_s=20, arrival_s=90, seed=1)
    return world.run(DAY_S // 8)


def test_every_policy_serves_the_same_runs_to_their_end() -> None:
    policies = (
        Policy("all", scales=False),
        Policy("spread", packs=False),
        Policy("packed"),
        Policy("pool", warm=200, headroom=0.1),
    )
    told = {one.name: simulated(one) for one in policies}
    for one in told.values():
        assert sum(one.waits_s.values()) == one.creates > 1500
        at_s, _, busy, _, waiting = one.curve[-1]
        assert (at_s, busy, waiting) == (DAY_S // 8, 0, 0)
    # Nodes that come and go cost less than nodes that stay, and make callers wait longer.
    assert told["packed"].node_s < told["all"].node_s
    assert told["packed"].wait_s(1.0) > told["all"].wait_s(1.0)
    assert told["packed"].removed_nodes > 0
    assert told["pool"].warm > 0 == told["packed"].warm
    assert told["pool"].wait_s(0.5) < told["packed"].wait_s(0.5)


def test_the_same_seed_tells_the_same_figures() -> None:
    first, second = (tables.figures({"one": simulated(Policy("packed"))}) for _ in range(2))
    assert first == second
    assert "| one |" in tables.page({"one": simulated(Policy("packed"))}, {"seed": 1})
