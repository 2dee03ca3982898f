"""Packing: every request has its place or is told, within five percent of the least number of nodes."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.capacity import NOTHING, Amounts
from controlplane.capacity.amounts import fits, plus
from controlplane.scaling.kinds import MOST_KINDS, Kind, bounded, scaled
from controlplane.scaling.node_pool import NodePool
from controlplane.scaling.packing import Bin, Opening, pack
from tests.support.examples import EXAMPLES

GIB = 1 << 30
SIZE: Amounts = (32_000, 128 * GIB, 1000 * GIB, 0, 256)


def pool(name: str = "a", size: Amounts = SIZE, price: float = 1.0, most: int = 5_000, **labels: str) -> NodePool:
    return NodePool(name, "grpc", name, size, 0, most, {"pool": name, **labels}, price)


def opening(of: NodePool) -> Opening:
    return Opening(of, of.size, of.most)


def kind(cpu: int, memory_gib: float = 1, gpu: int = 0, **selector: str) -> Kind:
    return Kind((cpu, int(memory_gib * GIB), GIB, gpu, 1), tuple(selector.items()))


def bound(wanted: dict[Kind, int]) -> int:
    """No packing takes fewer nodes: what is requested of one resource alone fills so many."""
    total = NOTHING
    for one, count in wanted.items():
        total = plus(total, scaled(one.request, count))
    return max(-(-all_of // of_one) for all_of, of_one in zip(total, SIZE, strict=True) if of_one)


# Up to a sixteenth of a node each, of any proportion.
SMALL = st.builds(kind, st.integers(50, 2_000), st.floats(0.05, 8).map(lambda one: round(one, 2)))


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.dictionaries(SMALL, st.integers(1, 3_000), min_size=1, max_size=12))
def test_the_worst_mix_is_within_ten_percent_of_the_bound(wanted: dict[Kind, int]) -> None:
    packed = pack(wanted, [], [opening(pool())])
    assert not packed.left
    assert packed.put == {"a": sum(wanted.values())}
    assert bound(wanted) <= packed.opened["a"] <= math.ceil(1.1 * bound(wanted)) + 1


def test_mixes_are_within_five_percent_of_the_bound() -> None:
    chance = random.Random(19)
    over: list[float] = []
    for _ in range(200):
        kinds = [kind(chance.randint(50, 2_000), chance.randint(1, 80) / 10) for _ in range(chance.randint(1, 12))]
        wanted = {one: chance.randint(1, 3_000) for one in kinds}
        over.append(pack(wanted, [], [opening(pool())]).opened["a"] / bound(wanted) - 1)
    over.sort()
    assert over[100] < 0.02
    assert over[190] < 0.05


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    st.dictionaries(st.builds(kind, st.integers(100, 40_000), st.integers(1, 160)), st.integers(1, 60), max_size=6),
    st.lists(st.tuples(st.integers(0, 32_000), st.integers(0, 128), st.integers(1, 5)), max_size=8),
    st.integers(0, 5),
)
def test_nothing_is_put_where_it_does_not_fit_and_nothing_is_lost(
    wanted: dict[Kind, int], free: list[tuple[int, int, int]], most: int
) -> None:
    bins = [
        Bin(f"n{at}", {}, (cpu, memory * GIB, 500 * GIB, 0, 100), nodes) for at, (cpu, memory, nodes) in enumerate(free)
    ]
    before = sum(one.free[4] * one.nodes for one in bins)
    packed = pack(wanted, bins, [Opening(pool(), SIZE, most)] if most else [])
    assert all(part >= 0 for one in bins for part in one.free)
    opened = packed.opened.get("a", 0)
    assert opened <= most
    assert sum(one.nodes for one in bins) == sum(nodes for _, _, nodes in free) + opened
    # A place for a pod was taken for each that is not left: the last nodes of a mix may have more.
    taken = before + opened * SIZE[4] - sum(one.free[4] * one.nodes for one in bins)
    assert taken >= sum(wanted.values()) - sum(packed.left.values())
    for one in packed.left:
        assert not any(fits(there.free, one.request) for there in bins)
        assert opened == most or not fits(SIZE, one.request)


def test_the_cheapest_pool_that_fits_comes_first_and_then_the_next() -> None:
    pools = [pool("dear", price=3), pool("cheap", price=1, most=2), pool("small", (1_000, 4 * GIB, GIB, 0, 9), 0.01)]
    packed = pack({kind(16_000, 8): 8}, [], [opening(one) for one in pools])
    assert packed.opened == {"cheap": 2, "dear": 2}


def test_a_larger_node_is_cheaper_where_its_price_for_each_sandbox_is_less() -> None:
    pools = [pool("small", price=1), pool("large", (128_000, 512 * GIB, 4000 * GIB, 0, 256), 3)]
    assert pack({kind(1_000, 1): 100}, [], [opening(one) for one in pools]).opened == {"large": 1}


def test_nodes_with_devices_are_for_what_needs_them() -> None:
    gpus = pool("gpus", (32_000, 128 * GIB, 1000 * GIB, 8, 256), 0.5)
    packed = pack({kind(1_000): 8, kind(1_000, gpu=2): 5}, [], [opening(pool()), opening(gpus)])
    # What needs none uses what such a node has left, and opens none.
    assert packed.opened == {"gpus": 2}
    assert pack({kind(1_000): 8}, [], [opening(pool()), opening(gpus)]).opened == {"a": 1}


def test_labels_decide_about_pools_and_nodes() -> None:
    zones = [pool(zone, zone=zone) for zone in ("east", "west")]
    bins = [Bin("n", {"zone": "east"}, SIZE)]
    packed = pack(
        {kind(20_000, zone="west"): 1, kind(20_000, zone="east"): 1, kind(1, zone="moon"): 3},
        bins,
        [opening(one) for one in zones],
    )
    assert packed.opened == {"west": 1}
    assert packed.left == {kind(1, zone="moon"): 3}
    assert bins[0].used


def test_equal_nodes_are_split_where_they_are_filled_differently() -> None:
    bins = [Bin("coming", {}, SIZE, 4)]
    pack({kind(16_000): 3}, bins, [])
    assert [(one.nodes, one.free[0], one.used) for one in bins] == [(1, 0, True), (1, 16_000, True), (2, 32_000, False)]


def test_many_kinds_are_bounded_and_rounded_up() -> None:
    many = {kind(1_001 + at, 1): 1 for at in range(1_000)}
    few = bounded(many)
    assert few == {Kind((1_024, GIB, GIB, 0, 1)): 24, Kind((2_048, GIB, GIB, 0, 1)): 976}
    odd = {kind(1, 1, zone=str(at)): at + 1 for at in range(2 * MOST_KINDS)}
    assert len(bounded(odd)) == MOST_KINDS
    assert min(bounded(odd).values()) == MOST_KINDS + 1


@pytest.mark.parametrize("count", [0, 3])
def test_a_request_scales(count: int) -> None:
    assert scaled((1, 2, 3, 4, 5), count) == (count, 2 * count, 3 * count, 4 * count, 5 * count)
