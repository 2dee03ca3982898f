"""How declarations of node pools are read."""

from typing import Any

import pytest

from controlplane.scaling import node_pools

SIZE = {"cpu_millicores": 4_000, "memory_bytes": 8 << 30, "disk_bytes": 1 << 40, "gpu": 0, "pods": 110}
GOOD: dict[str, Any] = {
    "name": "general",
    "provider": "cluster-api",
    "group": "capi/workers",
    "size": SIZE,
    "labels": {"pool": "general"},
    "min": 0,
    "max": 9,
}


def test_a_declaration_is_read() -> None:
    (one,) = node_pools([{**GOOD, "price": 2, "arrives_within_s": 60}])
    assert (one.name, one.size, one.least, one.most) == ("general", (4_000, 8 << 30, 1 << 40, 0, 110), 0, 9)
    assert (one.price, one.arrives_within_s, one.labels) == (2.0, 60, {"pool": "general"})


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"name": "Big_Nodes"}, "small letters"),
        ({"zone": "a"}, "unknown field zone"),
        ({"min": 10}, "min 10 is more than max 9"),
        ({"max": 0}, "max is a whole number from 1"),
        ({"max": True}, "max is a whole number"),
        ({"provider": "magic"}, "provider is one of"),
        ({"provider": "deployment"}, "sandboxes never preempt pods, .* use capacity-buffer"),
        ({"group": ""}, "provider is one of"),
        ({"group": "workers"}, "NAMESPACE/NAME"),
        ({"group": "a/b/c"}, "NAMESPACE/NAME"),
        ({"price": 0}, "price is more than 0"),
        ({"price": float("nan")}, "price is more than 0"),
        ({"labels": {}}, "at least one"),
        ({"labels": {"a": 1}}, "each a text"),
        ({"size": {**SIZE, "pods": 0}}, "pods is a whole number from 1"),
        ({"size": {"pods": 1}}, "size has cpu_millicores"),
        ({"arrives_within_s": 1}, "arrives_within_s is a whole number from 30"),
    ],
)
def test_a_bad_one_is_refused_with_its_rule(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        node_pools([{**GOOD, **wrong}])


def test_pools_do_not_share_names_or_groups() -> None:
    with pytest.raises(ValueError, match="same name: general"):
        node_pools([GOOD, {**GOOD, "group": "capi/others"}])
    with pytest.raises(ValueError, match="same group: cluster-api capi/workers"):
        node_pools([GOOD, {**GOOD, "name": "others"}])
    with pytest.raises(ValueError, match="1 to 32"):
        node_pools([])
