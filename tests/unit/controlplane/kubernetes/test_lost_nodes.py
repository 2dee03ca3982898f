"""Which nodes are lost, and when."""

from typing import Any

import pytest

from controlplane.cluster.kubernetes.nodes.lost_nodes import SHUT_DOWN, Nodes
from tests.support.fake_kubernetes import node


def tainted(key: str, ready: str = "Unknown") -> dict[str, Any]:
    return {**node(ready=ready), "spec": {"taints": [{"key": key, "effect": "NoExecute"}]}}


@pytest.mark.parametrize("key", SHUT_DOWN)
async def test_a_node_that_is_shut_down_for_certain_is_lost_at_once(key: str) -> None:
    lost: list[str] = []
    nodes = Nodes(lost.append)
    # It has been silent for a moment when that is said.
    nodes.put(node(ready="Unknown"))
    assert (lost, nodes.trouble("n1")) == ([], None)
    nodes.put(tainted(key))
    nodes.put(tainted(key))
    assert lost == ["n1"]
    assert nodes.trouble("n1") == f"node n1 is shut down: it has the taint {key}"
    nodes.put(node())
    assert nodes.trouble("n1") is None
    nodes.close()


async def test_no_taint_speaks_against_a_node_that_is_ready() -> None:
    lost: list[str] = []
    nodes = Nodes(lost.append)
    nodes.put(tainted(SHUT_DOWN[0], ready="True"))
    nodes.put(tainted("other"))
    assert lost == []
    nodes.close()
