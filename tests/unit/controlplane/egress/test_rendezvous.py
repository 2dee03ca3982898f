"""Which replica serves a sandbox."""

from collections import Counter

from controlplane.egress import chosen

SANDBOXES = [f"sb-{number}" for number in range(3000)]
REPLICAS = ["a", "b", "c"]


def test_all_are_served_and_evenly() -> None:
    found = Counter(chosen(one, REPLICAS) for one in SANDBOXES)
    assert sorted(str(one) for one in found) == REPLICAS
    assert min(found.values()) > 800


def test_the_order_of_the_replicas_changes_nothing() -> None:
    for one in SANDBOXES[:100]:
        assert chosen(one, REPLICAS) == chosen(one, [*reversed(REPLICAS)])


def test_only_the_sandboxes_of_one_that_goes_move() -> None:
    for one in SANDBOXES:
        before, after = chosen(one, REPLICAS), chosen(one, ["a", "c"])
        assert before in {after, "b"}


def test_where_nobody_is_nobody_serves() -> None:
    assert chosen("sb-1", []) is None
