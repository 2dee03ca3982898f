"""What is free on nodes, against counting everything anew after each change."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from controlplane.capacity import Amounts, NodeRoom, Room, words
from controlplane.capacity.amounts import fits, minus, plus

MIB = 1 << 20
REQUEST: Amounts = (500, 256 * MIB, 0, 0, 1)
NAMES = st.sampled_from(["a", "b", "c"])
PODS = st.sampled_from(["sb-1", "sb-2", "sb-3", "sb-4", "kube-system/x", "kube-system/y"])
IDS = st.sampled_from(["sb-1", "sb-2", "sb-3", "sb-4"])
AMOUNTS = st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 1), st.integers(0, 1), st.just(1))


def node(name: str, cpu: int = 2000, pods: int = 110, **more: str) -> NodeRoom:
    labels = {key: value for key, value in more.items() if key != "closed"}
    return NodeRoom(name, (cpu, 8 << 30, 1 << 40, 0, pods), labels, more.get("closed", ""))


def room(*nodes: NodeRoom) -> Room:
    made = Room()
    for one in nodes:
        made.set_node(one)
    made.replace(())
    return made


def test_what_other_pods_request_is_not_free() -> None:
    one = room(node("a"), node("b"))
    assert (one.fit(REQUEST, {}), one.fit_alone(REQUEST, {})) == (8, 8)
    one.put("kube-system/big", "a", (1700, 0, 0, 0, 1))
    one.put("sb-1", "b", REQUEST)
    assert (one.fit(REQUEST, {}), one.fit_alone(REQUEST, {})) == (3, 4)
    one.remove("kube-system/big")
    assert one.fit(REQUEST, {}) == 7


def test_a_node_takes_no_more_pods_than_it_says() -> None:
    one = room(node("a", pods=3))
    one.put("kube-system/x", "a", (0, 0, 0, 0, 1))
    assert one.fit((1, 0, 0, 0, 1), {}) == 2


@pytest.mark.parametrize("closed", ["is cordoned", "is not ready: it has never reported"])
def test_nodes_that_take_no_start_count_none(closed: str) -> None:
    one = room(node("a", closed=closed))
    assert one.fit(REQUEST, {}) == 0
    assert not one.reserve("sb-1", REQUEST, {})
    assert one.tell(REQUEST, {}) == f"none of 1 nodes takes sandboxes now: a {closed}"


def test_a_selector_chooses_nodes() -> None:
    one = room(node("a", zone="x"), node("b"))
    assert (one.fit(REQUEST, {"zone": "x"}), one.fit(REQUEST, {"zone": "y"})) == (4, 0)
    assert one.tell(REQUEST, {"zone": "y"}) == "no node for sandboxes has the labels that it asks for"


def test_a_reservation_counts_until_its_pod_is_seen_and_never_twice() -> None:
    one = room(node("a", cpu=600))
    assert one.reserve("sb-1", REQUEST, {})
    assert not one.reserve("sb-2", REQUEST, {})
    one.put("sb-1", "a", REQUEST)
    assert [(free.free[0], free.reserved[0], free.sandboxes) for free in one.free()] == [(100, 0, 1)]
    # What comes late changes nothing: the pod counts.
    assert one.reserve("sb-1", REQUEST, {})
    one.release("sb-1")
    assert one.free()[0].free[0] == 100


def test_a_start_whose_pod_came_elsewhere_takes_its_reservation_along() -> None:
    one = room(node("a", cpu=600), node("b", cpu=599))
    assert one.reserve("sb-1", REQUEST, {})
    one.put("sb-1", "b", REQUEST)
    assert [(free.node.name, free.free[0]) for free in one.free()] == [("a", 600), ("b", 99)]


def test_a_reservation_moves_when_others_have_taken_its_room() -> None:
    one = room(node("a", cpu=1000), node("b", cpu=900))
    assert one.reserve("sb-1", REQUEST, {})
    one.put("default/x", "a", (600, 0, 0, 0, 1))
    assert one.kept("sb-1")
    assert one.free()[1].reserved == REQUEST
    one.put("default/y", "b", (600, 0, 0, 0, 1))
    assert not one.kept("sb-1")
    assert [free.reserved[0] for free in one.free()] == [0, 0]
    assert not one.kept("sb-2")


def test_what_comes_where_no_room_was_seen_is_told_once() -> None:
    told: list[None] = []
    one = Room(lambda: told.append(None))
    one.set_node(node("a", cpu=600))
    one.replace([("sb-0", "a", REQUEST), ("sb-1", "a", REQUEST)])
    assert not told  # what was there before is no news
    one.put("kube-system/x", "a", REQUEST)
    assert not told  # daemons of the node come in any case
    one.put("sb-2", "a", REQUEST)
    one.put("sb-2", "a", REQUEST)
    assert len(told) == 1


def test_listeners_hear_of_more_room_and_of_nothing_else() -> None:
    heard: list[None] = []
    one = room(node("a"))
    one.listen(lambda: heard.append(None))
    one.put("default/x", "a", REQUEST)
    one.reserve("sb-1", REQUEST, {})
    assert not heard
    one.put("sb-1", "a", REQUEST)
    one.set_node(node("a"))
    one.remove("default/none")
    assert not heard
    one.remove("default/x")
    one.set_node(node("b"))
    one.reserve("sb-2", REQUEST, {})
    one.release("sb-2")
    assert len(heard) == 3


def test_listeners_hear_of_room_that_a_pod_gives_back_by_coming_elsewhere_or_smaller() -> None:
    heard: list[None] = []
    one = room(node("a"), node("b", cpu=1000))
    assert one.reserve("sb-1", REQUEST, {})
    assert one.reserve("sb-2", REQUEST, {})
    one.listen(lambda: heard.append(None))
    one.put("sb-1", "b", REQUEST)
    assert len(heard) == 1
    one.put("sb-2", "a", (100, 256 * MIB, 0, 0, 1))
    assert len(heard) == 2


def test_what_starts_in_any_case_takes_the_room_that_another_one_has_only_reserved() -> None:
    one = room(node("a", cpu=600), node("b", cpu=600))
    one.put("default/x", "b", (600, 0, 0, 0, 1))
    assert one.reserve("sb-1", REQUEST, {})
    assert not one.reserve("sb-2", REQUEST, {}, anyway=True)
    assert [(free.free[0], free.reserved[0]) for free in one.free()] == [(-400, 1000), (0, 0)]
    assert not one.kept("sb-1")
    assert [(free.free[0], free.reserved[0]) for free in one.free()] == [(100, 500), (0, 0)]
    one.put("sb-2", "a", REQUEST)
    assert one.free()[0].free[0] == 100


def test_the_reservations_of_a_node_that_goes_move_to_others() -> None:
    one = room(node("a", cpu=1000), node("b", cpu=600))
    assert one.reserve("sb-1", REQUEST, {})
    assert one.reserve("sb-2", REQUEST, {})
    one.drop_node("a")
    assert one.fit(REQUEST, {}) == 0
    assert not one.reserve("sb-3", REQUEST, {}, anyway=True)
    one.set_node(node("c", cpu=1500))
    one.set_node(node("b", cpu=600, closed="is cordoned"))
    assert [(free.node.name, free.reserved[0]) for free in one.free()] == [("b", 0), ("c", 1000)]


def test_a_pod_that_makes_place_for_another_one_of_its_sandbox_leaves_that_place_to_nobody() -> None:
    one = room(node("a", cpu=600))
    one.put("sb-1", "a", REQUEST)
    found: list[bool] = []
    one.listen(lambda: found.append(one.reserve("sb-2", REQUEST, {})))
    one.again("sb-1", REQUEST, {})
    one.remove("sb-1")
    assert found == [False]
    assert one.free()[0].reserved == REQUEST
    one.put("sb-1", "a", REQUEST)
    assert one.free()[0].reserved[0] == 0
    # Once it is over nothing is kept for it.
    one.again("sb-1", REQUEST, {})
    one.release("sb-1")
    one.remove("sb-1")
    assert found[-1]


def test_nodes_that_a_start_may_not_come_to_have_no_room_for_it() -> None:
    one = room(node("a", cpu=5000), node("b", cpu=600))
    off = frozenset({"a"})
    assert (one.fit(REQUEST, {}), one.fit(REQUEST, {}, off)) == (11, 1)
    assert one.reserve("sb-1", REQUEST, {}, off)
    assert one.free()[1].reserved == REQUEST
    assert not one.reserve("sb-2", REQUEST, {}, off)
    assert not one.reserve("sb-2", REQUEST, {}, off, anyway=True)
    assert one.free()[0].reserved[0] == 0
    assert one.tell(REQUEST, {}, frozenset({"a", "b"})) == "none of 2 nodes mounts images lazily now"


def test_a_node_takes_no_more_sandboxes_than_it_has_slots_whatever_else_is_there() -> None:
    told: list[None] = []
    one = Room(lambda: told.append(None))
    one.set_node(replace(node("a", pods=20), slots=3))
    one.replace([("default/x", "a", (0, 0, 0, 0, 1)), ("sb-0", "a", REQUEST)])
    small = (1, 0, 0, 0, 1)
    assert (one.fit(small, {}), one.fit_alone(small, {})) == (2, 3)
    assert one.reserve("sb-1", small, {})
    one.put("sb-2", "a", small)
    assert one.fit(small, {}) == 0
    assert "0 places for pods left" in one.tell(small, {})
    assert not one.without_slots()
    one.put("sb-1", "a", small)
    assert one.without_slots() == ["a"]
    one.put("default/y", "a", (0, 0, 0, 0, 1))
    assert not told
    one.put("sb-3", "a", small)
    assert len(told) == 1
    # Where pods are what is scarce the scheduler knows of it.
    one.set_node(replace(node("a", pods=3), slots=3))
    assert not one.without_slots()


@pytest.mark.parametrize(("packs", "likely"), [(False, "b"), (True, "a")])
def test_a_reservation_is_where_the_scheduler_puts_the_pod(*, packs: bool, likely: str) -> None:
    one = Room(packs=packs)
    one.set_node(node("a"))
    one.set_node(node("b"))
    one.replace([("default/x", "a", REQUEST)])
    assert one.reserve("sb-1", REQUEST, {})
    assert [free.node.name for free in one.free() if free.reserved[-1]] == [likely]


def test_a_node_that_is_over_committed_takes_what_requests_nothing_of_that() -> None:
    one = room(node("a"))
    one.put("default/x", "a", (0, 30 << 30, 0, 0, 1))
    assert one.reserve("sb-1", (100, 0, 0, 0, 1), {})


def test_it_tells_what_starts_under_way_have_reserved() -> None:
    one = room(node("a", cpu=500))
    assert one.reserve("sb-1", REQUEST, {})
    told = "node a has 0 cpu left beside 0.5 cpu reserved for starts under way; each needs 0.5 cpu"
    assert one.tell(REQUEST, {}) == told


@pytest.mark.parametrize(
    ("mib", "free", "needed"),
    [
        (1010.0, "1010 MiB", "1010 MiB"),
        (287.7, "287 MiB", "288 MiB"),
        (95.55, "95.5 MiB", "95.6 MiB"),
        (96.0, "96 MiB", "96 MiB"),
        (1500 * 1024.0, "1500 GiB", "1500 GiB"),
        (1.25 * 1024, "1.2 GiB", "1.3 GiB"),
        (-3.0, "0 MiB", "0 MiB"),
    ],
)
def test_amounts_are_told_in_plain_numbers_and_never_more_than_is_free(mib: float, free: str, needed: str) -> None:
    amount = int(mib * MIB)
    assert words("memory", amount) == f"{free} of memory"
    assert words("memory", amount, up=True) == f"{needed} of memory"


def test_it_tells_what_is_left_of_what_is_scarcest() -> None:
    one = room(node("a"), node("b"), node("c"))
    one.put("default/x", "a", (1700, 0, 0, 0, 1))
    one.put("default/y", "b", (0, (8 << 30) - 96 * MIB, 0, 0, 1))
    one.put("default/z", "c", (2100, 0, 0, 0, 1))
    assert one.tell(REQUEST, {}) == (
        "node a has 0.3 cpu left, node b has 96 MiB of memory left, 1 more has no more; "
        "each needs 0.5 cpu and 256 MiB of memory"
    )


@given(st.lists(AMOUNTS, max_size=6), AMOUNTS)
def test_as_many_fit_as_can_be_put_one_after_the_other(taken: list[Amounts], request: Amounts) -> None:
    one = Room()
    one.set_node(NodeRoom("a", (9, 9, 3, 2, 7)))
    one.replace((f"default/{number}", "a", requests) for number, requests in enumerate(taken))
    expected = one.fit(request, {})
    for number in range(expected):
        assert one.reserve(f"sb-{number}", request, {})
    assert not one.reserve("sb-more", request, {})


@dataclass
class Plain:
    """The same without any sums: everything is counted when it is asked for."""

    nodes: dict[str, NodeRoom] = field(default_factory=dict)
    pods: dict[str, tuple[str, Amounts]] = field(default_factory=dict)
    reserved: dict[str, Amounts] = field(default_factory=dict)

    def free(self, name: str) -> Amounts:
        free = self.nodes[name].allocatable
        for at, requests in self.pods.values():
            free = minus(free, requests) if at == name else free
        return free


class AnyOrder(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.room, self.plain = Room(), Plain()
        self.room.replace(())

    @rule(name=NAMES, size=AMOUNTS, closed=st.sampled_from(["", "is cordoned"]))
    def a_node_changes(self, name: str, size: Amounts, closed: str) -> None:
        made = NodeRoom(name, plus(size, (2, 2, 1, 0, 3)), {}, closed)
        self.room.set_node(made)
        self.plain.nodes[name] = made
        self.ended()

    @rule(name=NAMES)
    def a_node_goes(self, name: str) -> None:
        self.room.drop_node(name)
        self.plain.nodes.pop(name, None)
        self.ended()

    @rule(pod=PODS, name=NAMES, requests=AMOUNTS)
    def a_pod_is_seen(self, pod: str, name: str, requests: Amounts) -> None:
        self.room.put(pod, name, requests)
        self.plain.pods[pod] = (name, requests)
        self.plain.reserved.pop(pod, None)

    @rule(pod=PODS)
    def a_pod_goes(self, pod: str) -> None:
        self.room.remove(pod)
        self.plain.pods.pop(pod, None)

    @rule(keep=st.sets(PODS))
    def all_are_listed(self, keep: set[str]) -> None:
        self.plain.pods = {pod: at for pod, at in self.plain.pods.items() if pod in keep}
        self.room.replace([(pod, *at) for pod, at in self.plain.pods.items()])

    @rule(sandbox=IDS, request=AMOUNTS)
    def a_start_asks(self, sandbox: str, request: Amounts) -> None:
        there = sandbox in self.plain.pods
        fitted = (
            any(fits(self.left(name), request) for name, one in self.plain.nodes.items() if not one.closed)
            if sandbox not in self.plain.reserved
            else None
        )
        got = self.room.reserve(sandbox, request, {})
        if there:
            assert got
            return
        assert fitted is None or got == fitted
        self.plain.reserved.pop(sandbox, None)
        if got:
            self.plain.reserved[sandbox] = request

    @precondition(lambda self: self.plain.reserved)
    @rule(sandbox=IDS)
    def a_start_looks_again(self, sandbox: str) -> None:
        if not self.room.kept(sandbox):
            self.plain.reserved.pop(sandbox, None)

    @rule(sandbox=IDS)
    def a_start_is_over(self, sandbox: str) -> None:
        self.room.release(sandbox)
        self.plain.reserved.pop(sandbox, None)

    def ended(self) -> None:
        """Reservations end with their node where no other one has room for them."""
        for sandbox in [one for one in self.plain.reserved if one not in self.room._reserved]:
            request = self.plain.reserved.pop(sandbox)
            assert not any(fits(self.left(name), request) for name, one in self.plain.nodes.items() if not one.closed)

    def left(self, name: str) -> Amounts:
        found = next(one for one in self.room.free() if one.node.name == name)
        return found.free

    @invariant()
    def each_counts_once(self) -> None:
        found = {one.node.name: one for one in self.room.free()}
        assert found.keys() == self.plain.nodes.keys()
        for name, one in found.items():
            assert plus(one.free, one.reserved) == self.plain.free(name)
            assert one.pods == sum(at == name for at, _ in self.plain.pods.values())
        # Where no start comes none is expected.
        assert all(not found[node].node.closed for node, _ in self.room._reserved.values())
        # No reservation is on two nodes, and none of one that is over is left anywhere.
        held = [one.request for _, one in self.room._reserved.values()]
        assert sorted(held) == sorted(self.plain.reserved.values())


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
