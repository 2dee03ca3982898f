"""The catalogue of images is kept what agents tell, and starts and prefetches prefer nodes by it."""

from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

from controlplane.cluster.kubernetes.node_agents import CatalogueUpkeep, NodeAgents
from controlplane.cluster.kubernetes.node_agents.addresses import Addresses
from controlplane.cluster.kubernetes.node_agents.catalogue import FORGET_MS
from controlplane.cluster.kubernetes.node_agents.near_nodes import NearNodes
from controlplane.cluster.kubernetes.nodes.preference import Catalogue
from controlplane.cluster.kubernetes.pods.pods import Pods
from controlplane.cluster.protocol import PrefetchProgress
from controlplane.errors import Problem
from controlplane.model import SandboxSpec
from controlplane.settings import NodeAgentSettings
from controlplane.wire import node_pb2
from tests.unit.controlplane.kubernetes.test_preference import DIGEST, IMAGE, NODES, Now, pod

SWE = node_pb2.Image(
    names=["hub.test/swe:1"],
    digests=[f"hub.test/swe@{DIGEST}", "bare"],
    layers=[node_pb2.Layer(digest="sha256:l", size_bytes=7)],
)


class Told(NodeAgents):
    """Agents whose lists are given by node, with a version each."""

    def __init__(self, lists: Mapping[str, node_pb2.ImageList | Problem]) -> None:
        super().__init__(Addresses(), NodeAgentSettings("ns", "node", "name", Path("/none")))
        self.lists = {**lists}
        self.asked: list[tuple[str, str]] = []

    async def images_since(self, node: str, known: str) -> node_pb2.ImageList:
        self.asked.append((node, known))
        answer = self.lists[node]
        if isinstance(answer, Problem):
            raise answer
        if answer.version and answer.version == known:
            return node_pb2.ImageList(version=known, unchanged=True)
        return answer


def names(shares: Mapping[str, float]) -> set[str]:
    return {node for node, share in shares.items() if share == 1.0}


def having(catalogue: Catalogue) -> set[str]:
    return names(catalogue.shares(DIGEST, {}, ["n1", "n2", "n3"], lazily=False))


async def test_every_look_asks_for_what_is_new_and_takes_it() -> None:
    agents = Told({"n1": node_pb2.ImageList(images=[SWE], version="v1"), "n2": node_pb2.ImageList(version="v1")})
    catalogue, nodes, clock = Catalogue(), ["n1", "n2"], Now()
    upkeep = CatalogueUpkeep(agents, catalogue, lambda: nodes, clock)
    await upkeep.turn()
    assert having(catalogue) == {"n1"}
    assert catalogue.layers(DIGEST) == {"sha256:l": 7}
    agents.lists["n2"] = node_pb2.ImageList(images=[SWE], version="v2")
    await upkeep.turn()
    assert having(catalogue) == {"n1", "n2"}
    assert {*agents.asked[2:]} == {("n1", "v1"), ("n2", "v1")}
    # A node that has gone is forgotten, and asked for everything when it is back.
    nodes.remove("n1")
    await upkeep.turn()
    assert having(catalogue) == {"n2"}
    nodes.append("n1")
    await upkeep.turn()
    assert having(catalogue) == {"n1", "n2"}


async def test_an_agent_that_is_away_is_believed_for_a_while() -> None:
    agents = Told({"n1": node_pb2.ImageList(images=[SWE])})
    catalogue, clock = Catalogue(), Now()
    upkeep = CatalogueUpkeep(agents, catalogue, lambda: ["n1"], clock)
    await upkeep.turn()
    agents.lists["n1"] = Problem("upstream_timeout", "away")
    clock.now += FORGET_MS
    await upkeep.turn()
    assert having(catalogue) == {"n1"}
    clock.now += 1
    await upkeep.turn()
    assert having(catalogue) == set()


async def test_an_agent_of_an_older_version_tells_everything_each_time() -> None:
    agents = Told({"n1": node_pb2.ImageList(images=[SWE])})
    catalogue = Catalogue()
    upkeep = CatalogueUpkeep(agents, catalogue, lambda: ["n1"], Now())
    await upkeep.turn()
    agents.lists["n1"] = node_pb2.ImageList()
    await upkeep.turn()
    assert having(catalogue) == set()


async def pulls(*progress: PrefetchProgress) -> AsyncGenerator[PrefetchProgress, None]:
    for one in progress:
        yield one


async def test_starts_prefer_where_a_prefetch_or_another_start_has_brought_the_image() -> None:
    near = NearNodes(Told({}), lambda: NODES, Now())
    spec = SandboxSpec(image=IMAGE)
    first = near.wishes("sb-1", spec, {}, lazily=False)[0]
    # From its beginning on: starts that come meanwhile join its pull.
    assert near.chosen(IMAGE, 1, {}) == [first[0]]
    assert near.wishes("sb-1", spec, {}, lazily=False)[0] == (first[0], 100)
    failing = PrefetchProgress(first[0], "failed")
    assert [one async for one in near.noted(IMAGE, pulls(failing))] == [failing]
    assert first[0] not in dict(near.wishes("sb-1", spec, {}, lazily=False))
    done = PrefetchProgress("n4", "here"), PrefetchProgress("n5", "failed"), PrefetchProgress("n6", "pulling")
    assert [one async for one in near.noted(IMAGE, pulls(*done))] == [*done]
    assert near.wishes("sb-1", spec, {}, lazily=False)[0] == ("n4", 100)
    near.beside(Pods(Now(), lambda _: None)).put(pod("sb-2", "n8"))
    assert {*near.wishes("sb-1", spec, {}, lazily=False)[:2]} == {("n4", 100), ("n8", 100)}
    assert near.chosen(IMAGE, None, {}) == [one.name for one in NODES]


async def test_without_agents_nothing_is_preferred_and_nothing_is_kept() -> None:
    near, pods = NearNodes(None, lambda: NODES, Now()), Pods(Now(), lambda _: None)
    assert near.beside(pods) is pods
    assert near.wishes("sb-1", SandboxSpec(image=IMAGE), {}, lazily=False) == ()
    await near.run()
