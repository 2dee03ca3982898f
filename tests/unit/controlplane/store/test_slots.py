"""The bound of starts on each node, under schedulers that are free to do what they like."""

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from controlplane.store import Slot
from controlplane.store.slots import SLOW_MS, Slots

PER_NODE = 3
NODES = ("a", "b", "c", "d")
LIMIT = PER_NODE * len(NODES)
KEYS = ("small", "large")
FOR_EVER = 1 << 60


class AnyScheduler(RuleBasedStateMachine):
    """Puts what was sent on any node at all, also on one that it was asked to avoid."""

    most = 2 * PER_NODE + len(KEYS)
    nodes: tuple[str, ...] = NODES

    def __init__(self) -> None:
        super().__init__()
        self.slots = Slots()
        self.sent: dict[str, tuple[str, tuple[str, ...]]] = {}
        self.on: dict[str, str] = {}
        self.number = 0
        self.now_ms = 0

    @property
    def limit(self) -> int:
        """Of all nodes together."""
        return PER_NODE * len(self.nodes)

    def ask(self, name: str, key: str) -> Slot:
        return self.slots.take(name, self.limit, FOR_EVER, self.now_ms, per_node=PER_NODE, placement_key=key)

    def choices(self, avoid: tuple[str, ...]) -> list[str]:
        """Where the scheduler may put it."""
        return list(self.nodes)

    @rule(key=st.sampled_from(KEYS), repeated=st.booleans())
    def send(self, key: str, repeated: bool) -> None:
        name = f"sb-{self.number}"
        self.number += 1
        if slot := self.ask(name, key):
            # A replica that got no answer asks again; the second answer is the one that counts.
            slot = self.ask(name, key) if repeated else slot
            self.sent[name] = key, slot.avoid

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def schedule(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.sent)))
        key, avoid = self.sent.pop(name)
        self.on[name] = node = data.draw(st.sampled_from(self.choices(avoid)))
        self.slots.place(name, node, FOR_EVER, self.now_ms, per_node=PER_NODE, placement_key=key)

    @precondition(lambda self: self.on)
    @rule(data=st.data())
    def ready(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.on)))
        del self.on[name]
        self.slots.free(name)

    @rule()
    def time_passes(self) -> None:
        self.now_ms += SLOW_MS + 1

    @invariant()
    def no_node_has_more_than_the_rule_says(self) -> None:
        assert all(count <= self.most for count in Counter(self.on.values()).values())

    @invariant()
    def all_together_are_as_many_as_the_nodes_bear(self) -> None:
        assert len(self.on) + len(self.sent) <= self.limit

    @invariant()
    def somebody_can_always_go_on(self) -> None:
        # Whoever waits with nothing under way would wait for ever.
        if not self.on and not self.sent:
            probe = self.ask("probe", "small")
            self.slots.free("probe")
            assert probe


class RightScheduler(AnyScheduler):
    """Any node that it was not asked to avoid: no node is ever over its limit."""

    most = PER_NODE

    def choices(self, avoid: tuple[str, ...]) -> list[str]:
        open_nodes = [node for node in NODES if node not in avoid]
        assert open_nodes, "it was asked to avoid all nodes"
        return open_nodes


class OneWithRoom(AnyScheduler):
    """Only one node of several has room: it gets one start too many for each placement key."""

    most = PER_NODE + len(KEYS)

    def choices(self, avoid: tuple[str, ...]) -> list[str]:
        return ["d"]


class OneNode(AnyScheduler):
    """A cluster of one node never has more than its limit, and it is never avoided."""

    most = PER_NODE
    nodes = ("a",)

    def choices(self, avoid: tuple[str, ...]) -> list[str]:
        assert avoid == ()
        return ["a"]


TestRightScheduler = RightScheduler.TestCase
TestOneWithRoom = OneWithRoom.TestCase
TestOneNode = OneNode.TestCase
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
            slots.place(name, node, FOR_EVER, 0, per_node=PER_NODE, placement_key="k")
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


def test_a_start_on_a_node_that_it_should_avoid_counts_those_that_may_follow_there() -> None:
    slots, now_ms = Slots(), 0

    def send(name: str) -> Slot:
        return slots.take(name, LIMIT, FOR_EVER, now_ms, per_node=PER_NODE, placement_key="k")

    def place(name: str) -> None:
        slots.place(name, "d", FOR_EVER, now_ms, per_node=PER_NODE, placement_key="k")

    for name in ("sb-0", "sb-1"):
        assert send(name)
        place(name)
    assert send("sb-2").avoid == ()
    now_ms += SLOW_MS + 1
    assert send("sb-3").avoid == ("d",)
    place("sb-3")
    # The node is only at its limit, but sb-2 avoids no node and may follow.
    assert send("sb-4") == Slot(taken=False, held_by="d")
    place("sb-2")
    for name in ("sb-0", "sb-1"):
        slots.free(name)
    assert send("sb-4")


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
    slots.place("sb-1", "a", 10, 0, per_node=1)
    assert not slots.take("sb-2", 1, 20, 5, per_node=1)
    assert slots.take("sb-2", 1, 20, 10, per_node=1).avoid == ()
