"""The week in virtual time: nothing is lost or counted twice, starts keep to their bounds, the same seed repeats."""

from tests.scale.simulate.traffic import DAY_S, Run
from tests.scale.simulate.world import Policy, Told, World


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
