"""A pool of which the cluster's autoscaler adds and removes the nodes, by pods that keep room."""

from dataclasses import dataclass, field

from controlplane.scaling.decisions import Decisions
from controlplane.scaling.planner import Demand
from controlplane.scaling.seen import Ask, Group, SeenNode
from tests.unit.controlplane.scaling.played import DOWN_AFTER_MS, TURN_MS
from tests.unit.controlplane.scaling.test_packing import SIZE, kind, pool

BIG = kind(16_000, 16)
LONG = DOWN_AFTER_MS // TURN_MS + 2


@dataclass
class Autoscaled:
    """A cluster whose autoscaler adds a node for each placeholder that has none, and removes what nothing is on.

    Attributes:
        boxes: how many sandboxes there are, two to a node.
        nodes: how many there are; sandboxes are on the first ones, placeholders on the others.
        adds: whether it finds any.
    """

    boxes: int = 0
    nodes: int = 0
    placeholders: int = 0
    adds: bool = True
    now_ms: int = 1_000_000
    asked: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.decisions = Decisions([pool(most=5)], DOWN_AFTER_MS)

    @property
    def held(self) -> int:
        return min(self.nodes, -(-self.boxes // 2))

    def turns(self, count: int) -> None:
        for turn in range(count):
            self.now_ms += TURN_MS
            if turn % 4 == 3:
                wanted = self.held + self.placeholders
                self.nodes = max(self.nodes, wanted) if self.adds and wanted > self.nodes else min(self.nodes, wanted)
            seen = [self._seen(at) for at in range(self.nodes)]
            waiting = max(0, self.boxes - 2 * self.nodes)
            group = Group(self.held + self.placeholders, (), "", names=False)
            decided = self.decisions.turn([Demand(BIG, waiting, "waiting")], seen, {"a": group}, self.now_ms)
            for step in decided.steps:
                assert isinstance(step, Ask)
                assert step.target <= 5
                self.placeholders = max(0, step.target - step.held)
                self.decisions.asked(step)
                self.asked.append(step.target)

    def _seen(self, at: int) -> SeenNode:
        busy = max(0, min(2, self.boxes - 2 * at))
        return SeenNode(f"n{at}", (SIZE[0] - 16_000 * busy, *SIZE[1:]), {"pool": "a"}, busy=busy)


def test_placeholders_bring_the_nodes_and_are_as_many_as_hold_no_sandbox() -> None:
    cluster = Autoscaled()
    cluster.boxes = 4
    cluster.turns(1)
    assert (cluster.asked, cluster.placeholders) == ([2], 2)
    cluster.turns(20)
    # What sandboxes have displaced asks for no further node.
    assert (cluster.nodes, cluster.placeholders) == (2, 0)
    cluster.boxes = 5
    cluster.turns(20)
    assert (cluster.nodes, cluster.placeholders) == (3, 0)


def test_nodes_are_kept_for_a_while_and_then_let_go() -> None:
    cluster = Autoscaled()
    cluster.boxes = 4
    cluster.turns(20)
    cluster.boxes = 2
    cluster.turns(LONG - 4)
    assert (cluster.nodes, cluster.placeholders) == (2, 1)
    cluster.turns(LONG)
    assert (cluster.nodes, cluster.placeholders) == (1, 0)
    # It comes to rest.
    before = [*cluster.asked]
    cluster.turns(3 * LONG)
    assert cluster.asked == before


def test_an_autoscaler_that_adds_none_is_given_up_and_asked_again_later() -> None:
    cluster = Autoscaled(adds=False)
    cluster.boxes = 2
    cluster.turns(1)
    assert cluster.placeholders == 1
    cluster.turns(600_000 // TURN_MS + 1)
    assert cluster.placeholders == 0
    cluster.adds = True
    cluster.turns(60)
    assert cluster.nodes == 1
