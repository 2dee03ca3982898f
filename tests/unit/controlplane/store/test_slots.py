"""The bound of starts on each node, under schedulers that are free to do what they like."""

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from controlplane.store.slots import Slots

PER_NODE = 3
NODES = ("a", "b", "c", "d")
LIMIT = PER_NODE * len(NODES)
KEYS = ("small", "large")
FOR_EVER = 1 << 60


class AnyScheduler(RuleBasedStateMachine):
    """Puts what was sent on any node at all, also on one that it was asked to avoid."""

    def __init__(self) -> None:
        super().__init__()
        self.slots = Slots()
        self.sent: dict[str, str] = {}
        self.on: dict[str, str] = {}
        self.number = 0

    @rule(key=st.sampled_from(KEYS))
    def send(self, key: str) -> None:
        name = f"sb-{self.number}"
        self.number += 1
        if self.slots.take(name, LIMIT, FOR_EVER, 0, per_node=PER_NODE, placement_key=key):
            self.sent[name] = key

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), node=st.sampled_from(NODES))
    def schedule(self, data: st.DataObject, node: str) -> None:
        name = data.draw(st.sampled_from(sorted(self.sent)))
        key = self.sent.pop(name)
        self.on[name] = node
        self.slots.place(name, node, FOR_EVER, per_node=PER_NODE, placement_key=key)

    @precondition(lambda self: self.on)
    @rule(data=st.data())
    def ready(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.on)))
        del self.on[name]
        self.slots.free(name)

    @invariant()
    def no_node_has_more_than_one_start_too_many_for_each_key(self) -> None:
        assert all(count <= PER_NODE + len(KEYS) for count in Counter(self.on.values()).values())

    @invariant()
    def all_together_are_as_many_as_the_nodes_bear(self) -> None:
        assert len(self.on) + len(self.sent) <= LIMIT

    @invariant()
    def somebody_can_always_go_on(self) -> None:
        # Whoever waits with nothing under way would wait for ever.
        if not self.on and not self.sent:
            probe = self.slots.take("probe", LIMIT, FOR_EVER, 0, per_node=PER_NODE, placement_key="small")
            self.slots.free("probe")
            assert probe


TestAnyScheduler = AnyScheduler.TestCase


@dataclass
class Cluster:
    """Nodes with so much room each, and a scheduler that honours wishes where it can; starts take `slow` steps."""

    room: dict[str, int]
    packs: bool = False
    slow: dict[str, int] = field(default_factory=dict)
    starting: dict[str, tuple[str, int]] = field(default_factory=dict)

    def schedule(self, avoid: tuple[str, ...]) -> str | None:
        free = [node for node, room in self.room.items() if room > 0]
        if not free:
            return None
        # As kube-scheduler sums scores: the wish weighs more than how full a node is.
        fullest = sorted(free, key=lambda node: (node in avoid, self.room[node] if self.packs else -self.room[node]))
        return fullest[0]


def run(cluster: Cluster, count: int, steps: int = 10_000) -> tuple[int, int]:
    """Sends so many starts that are alike; how many were on one node at most, and after how many steps all were up."""
    slots, waiting, most = Slots(), [f"sb-{number}" for number in range(count)], 0
    for step in range(steps):
        while waiting:
            name = waiting[0]
            slot = slots.take(name, LIMIT, FOR_EVER, 0, per_node=PER_NODE, placement_key="k")
            if not slot:
                break
            node = cluster.schedule(slot.avoid)
            assert node is not None
            waiting.pop(0)
            cluster.room[node] -= 1
            cluster.starting[name] = (node, step + cluster.slow.get(node, 4))
            slots.place(name, node, FOR_EVER, per_node=PER_NODE, placement_key="k")
        most = max([most, *Counter(node for node, _ in cluster.starting.values()).values()])
        for name in [name for name, (_, until) in cluster.starting.items() if until <= step]:
            del cluster.starting[name]
            slots.free(name)
        if not waiting and not cluster.starting:
            return most, step
    raise AssertionError(f"{len(waiting)} still wait after {steps} steps")


@pytest.mark.parametrize("packs", [False, True])
def test_starts_spread_over_the_nodes_however_the_scheduler_packs(packs: bool) -> None:
    most, steps = run(Cluster(dict.fromkeys(NODES, 100), packs=packs), 240)
    assert most == PER_NODE
    # Four nodes with three starts of five steps each: all of them are busy all the time.
    assert steps <= 240 / LIMIT * 5 + 5


def test_where_only_one_node_has_room_it_gets_no_more_than_it_bears_and_one() -> None:
    cluster = Cluster({**dict.fromkeys(NODES, 0), "d": 200})
    most, steps = run(cluster, 200)
    assert most <= PER_NODE + 1
    assert steps <= 200 / PER_NODE * 5 + 5


def test_a_node_whose_starts_take_for_ever_stops_nobody() -> None:
    cluster = Cluster(dict.fromkeys(NODES, 100), packs=True, slow={"a": 1_000})
    most, steps = run(cluster, 200)
    assert most == PER_NODE
    assert steps <= 1_005
    assert cluster.room["a"] == 100 - PER_NODE


@given(st.integers(1, 5), st.lists(st.booleans(), max_size=30))
def test_without_nodes_only_the_limit_counts(limit: int, frees: list[bool]) -> None:
    slots, held = Slots(), list[str]()
    for number, free in enumerate(frees):
        if free and held:
            slots.free(held.pop())
        taken = slots.take(f"sb-{number}", limit, FOR_EVER, 0)
        assert bool(taken) == (len(held) < limit)
        held += [f"sb-{number}"] if taken else []


def test_a_slot_that_lapses_leaves_its_node() -> None:
    slots = Slots()
    assert slots.take("sb-1", 1, 10, 0, per_node=1)
    slots.place("sb-1", "a", 10, per_node=1)
    assert not slots.take("sb-2", 1, 20, 5, per_node=1)
    assert slots.take("sb-2", 1, 20, 10, per_node=1).avoid == ()
