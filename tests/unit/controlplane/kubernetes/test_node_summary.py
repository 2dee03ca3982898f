"""What creates ask of all nodes is worked out anew when a node has changed, and only then."""

import asyncio
from collections.abc import Iterable

import pytest

from controlplane.cluster.kubernetes.nodes.lost_nodes import Nodes
from controlplane.cluster.kubernetes.nodes.node_summary import NodeSummary
from controlplane.cluster.kubernetes.nodes.nodes import Fleet, Node, of_pool
from controlplane.errors import Problem
from controlplane.model import Range, SandboxSpec
from controlplane.scaling import NodePool
from tests.support.fake_kubernetes import node

SPEC = SandboxSpec(image="a")
LARGE = SandboxSpec(image="a", cpu_millicores=Range(request=3_000, limit=3_000))


class Counting(Fleet):
    """A fleet that counts how often it looks at nodes."""

    looks: list[int] = []  # noqa: RUF012 - one test's

    def eligible(self, nodes: Iterable[Node]) -> list[Node]:
        self.looks.append(1)
        return super().eligible(nodes)


def ignored(_: str) -> None:
    """Nobody listens to lost nodes here."""


async def test_what_follows_from_nodes_is_worked_out_once_for_each_change() -> None:
    nodes, fleet = Nodes(ignored), Counting({}, (), "runsc")
    survey = NodeSummary(fleet, lambda: nodes.all)
    with pytest.raises(Problem, match="no node for sandboxes"):
        survey.check(SPEC)
    nodes.put(node("n1"))
    nodes.put(node("n2", ready="False"))
    survey.check(SPEC)
    assert [one.name for one in survey.eligible] == ["n1", "n2"]
    assert survey.ready == 1
    looked = len(fleet.looks)
    nodes.put(node("n2", ready="False"))  # as it was: a kubelet's report
    survey.check(SPEC)
    assert survey.ready == 1
    assert len(fleet.looks) == looked
    nodes.put(node("n2"))
    assert survey.ready == 2
    nodes.remove(node("n1"))
    assert [one.name for one in survey.eligible] == ["n2"]
    nodes.close()
    await asyncio.sleep(0)


async def test_what_fits_on_a_node_that_may_come_is_not_refused() -> None:
    nodes, fleet = Nodes(ignored), Fleet({}, (), "runsc")
    coming = of_pool(NodePool("p", "provider", "g", (4_000, 8 << 30, 50 << 30, 0, 100), 0, 4), {})
    nodes.put(node("n1"))
    with pytest.raises(Problem, match="cpu_millicores.limit"):
        NodeSummary(fleet, lambda: nodes.all).check(LARGE)
    NodeSummary(fleet, lambda: nodes.all, [coming]).check(LARGE)
