"""Idle sandboxes make room: as few as needed, on one node, and none in vain."""

from hypothesis import given
from hypothesis import strategies as st

from controlplane.capacity import Amounts, NodeRoom, Room, Short, rivals, to_end
from controlplane.capacity.amounts import fits, plus

ONE: Amounts = (1, 1, 0, 0, 1)


def room(sizes: dict[str, int], pods: dict[str, tuple[str, Amounts]], closed: str = "") -> Room:
    made = Room()
    for name, cpu in sizes.items():
        made.set_node(NodeRoom(name, (cpu, 1000, 0, 0, 1000), {"name": name}, "is cordoned" if name == closed else ""))
    made.replace((pod, *at) for pod, at in pods.items())
    return made


def short(cpu: int, **selector: str) -> Short:
    return Short((cpu, 0, 0, 0, 1), selector, frozenset())


def test_the_least_needed_of_the_node_that_has_to_give_fewest_goes() -> None:
    pods = {"w1": ("a", ONE), "w2": ("a", ONE), "w3": ("b", (3, 1, 0, 0, 1)), "x": ("b", ONE)}
    there = room({"a": 2, "b": 4}, pods)
    idle = ["w1", "w2", "w3"]
    assert to_end([short(1)], there, (), idle, 9) == ["w1"]
    assert to_end([short(2)], there, (), idle, 9) == ["w3"]
    assert to_end([short(1)], there, (), ["w3", "w2", "w1"], 9) == ["w3"]
    assert to_end([short(2, name="a")], there, (), idle, 9) == ["w1", "w2"]
    assert to_end([short(4)], there, (), idle, 9) == []


def test_what_one_start_gets_is_not_given_to_the_next() -> None:
    there = room({"a": 3}, {"w1": ("a", (2, 1, 0, 0, 1)), "w2": ("a", ONE)})
    assert to_end([short(1), short(1), short(1), short(1)], there, (), ["w1", "w2"], 9) == ["w1", "w2"]


def test_what_is_not_needed_beside_the_last_one_stays() -> None:
    there = room({"a": 6}, {"w1": ("a", ONE), "w2": ("a", (5, 1, 0, 0, 1))})
    assert to_end([short(5)], there, (), ["w1", "w2"], 9) == ["w2"]


def test_what_leaves_anyway_is_waited_for_and_closed_nodes_give_nothing() -> None:
    there = room({"a": 1, "b": 1}, {"w1": ("a", ONE), "gone": ("b", ONE)})
    assert to_end([short(1)], there, ["gone"], ["w1"], 9) == []
    assert to_end([short(1), short(1)], there, ["gone"], ["w1"], 9) == ["w1"]
    assert to_end([short(1)], room({"a": 1}, {"w1": ("a", ONE)}, closed="a"), (), ["w1"], 9) == []
    assert to_end([short(1)], there, (), ["elsewhere", "w1"], 9) == ["w1"]


def test_a_turn_ends_a_bounded_number() -> None:
    there = room({"a": 4}, {f"w{number}": ("a", ONE) for number in range(4)})
    idle = [f"w{number}" for number in range(4)]
    assert to_end([short(1)] * 4, there, (), idle, 3) == idle[:3]
    # But for the first start, which would never get room by less.
    assert to_end([short(4), short(1)], there, (), idle, 3) == idle


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 4)), max_size=8), st.integers(1, 12))
def test_exactly_what_is_needed_ends(idle: list[tuple[str, int]], wish: int) -> None:
    pods = {f"w{number}": (node, (cpu, 0, 0, 0, 1)) for number, (node, cpu) in enumerate(idle)}
    there = room({"a": 12, "b": 9}, pods)
    ended = to_end([short(wish)], there, (), list(pods), 99)
    assert _fits_without(there, pods, ended, wish)  # when all are idle there is always an answer
    assert not any(_fits_without(there, pods, [one for one in ended if one != kept], wish) for kept in ended)


def _fits_without(there: Room, pods: dict[str, tuple[str, Amounts]], ended: list[str], wish: int) -> bool:
    free = {one.node.name: one.free for one in there.free()}
    for pod in ended:
        free[pods[pod][0]] = plus(free[pods[pod][0]], pods[pod][1])
    return any(fits(one, (wish, 0, 0, 0, 1)) for one in free.values())


@given(
    st.dictionaries(st.sampled_from("abc"), st.lists(st.integers(1, 5), max_size=30), min_size=1),
    st.integers(1, 100),
    st.integers(1, 5),
)
def test_whatever_warm_ones_can_make_room_for_gets_it_in_one_turn(
    warm: dict[str, list[int]], wanted: int, most: int
) -> None:
    """However many small ones have to go for a large one, and however few at a time go for several."""
    pods = {
        f"{node}{number}": (node, (cpu, 0, 0, 0, 1)) for node, sizes in warm.items() for number, cpu in enumerate(sizes)
    }
    full = {node: sum(sizes) for node, sizes in warm.items()}
    there = room(full, pods)
    ended = to_end([short(wanted)], there, (), [*pods], most)
    assert bool(ended) == (wanted <= max(full.values()))
    for one in ended:
        there.remove(one)
    assert not ended or there.fit((wanted, 0, 0, 0, 1), {})
    assert to_end([short(wanted)], there, (), [one for one in pods if one not in ended], most) == []


def test_what_is_on_no_node_goes_first_where_it_may_come_to_the_same_nodes() -> None:
    there = room({"a": 1, "b": 1}, {"w1": ("a", ONE)})
    idle = {"w1": {}, "w2": {}, "w3": {"name": "a"}, "w4": {"name": "b"}}
    assert rivals([short(1, name="a")], there, idle) == ["w2", "w3"]
    assert rivals([short(1, name="a"), short(1, name="b")], there, idle) == ["w2", "w3", "w4"]
    assert rivals([], there, idle) == []
