"""Agents tell what has changed of their images; the catalogue is what the nodes have, whatever is lost on the way."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from controlplane.cluster.kubernetes.node_agents import CatalogueUpkeep, NodeAgents
from controlplane.cluster.kubernetes.node_agents.addresses import Addresses
from controlplane.cluster.kubernetes.nodes.preference import Catalogue, HeldImage, ReportedImages, version_of
from controlplane.errors import Problem
from controlplane.settings import NodeAgentSettings
from controlplane.wire import node_pb2
from tests.unit.controlplane.kubernetes.test_preference import Now

VECTORS = Path(__file__).parents[4] / "contract/vectors/image_list.json"
NODES = ("n1", "n2")


def digest(number: int) -> str:
    return f"sha256:{number:064x}"


def image(number: int, *, lazy: bool) -> node_pb2.Image:
    """The image with a number, in one of two states."""
    layers = [node_pb2.Layer(digest=digest(100 + number), size_bytes=7)]
    return node_pb2.Image(
        digests=[f"hub.test/a@{digest(number)}"],
        layers=layers,
        lazy=lazy,
        mark=number * 2 + lazy + 1,
    )


@dataclass
class PlayedNode:
    """What a node has, and had: as ``node-go/internal/images/history.go`` tells it."""

    has: dict[int, bool] = field(default_factory=dict)
    earlier: dict[str, dict[int, node_pb2.Image]] = field(default_factory=dict)
    wholes: int = 0

    def images(self) -> dict[int, node_pb2.Image]:
        return {one.mark: one for one in (image(number, lazy=lazy) for number, lazy in self.has.items())}

    def tell(self, known: str) -> node_pb2.ImageList:
        now = self.images()
        version = version_of(now)
        before = self.earlier.get(known)
        self.earlier[version] = now
        if version == known:
            return node_pb2.ImageList(version=version, unchanged=True)
        if before is None:
            self.wholes += 1
            return node_pb2.ImageList(version=version, images=now.values())
        came = [one for mark, one in now.items() if mark not in before]
        return node_pb2.ImageList(version=version, changes=True, images=came, gone=before.keys() - now.keys())


class PlayedAgents(NodeAgents):
    """Agents of nodes; ``lost`` are those whose answers do not arrive."""

    def __init__(self, nodes: Mapping[str, PlayedNode]) -> None:
        super().__init__(Addresses(), NodeAgentSettings("ns", "node", "name", Path("/none")))
        self.of = nodes
        self.lost: set[str] = set()

    async def images_since(self, node: str, known: str) -> node_pb2.ImageList:
        told = self.of[node].tell(known)
        if node in self.lost:
            raise Problem("upstream_timeout", "lost")
        return told


def state(catalogue: Catalogue) -> Mapping[str, object]:
    """All that can be asked of it."""
    keys = [digest(number) for number in range(6)]
    return {
        f"{key} {lazily}": (
            dict(catalogue.shares(key, {}, NODES, lazily=lazily)),
            dict(catalogue.shares(key, {digest(100): 7, digest(101): 9}, NODES, lazily=lazily)),
            dict(catalogue.layers(key)),
        )
        for key in keys
        for lazily in (False, True)
    } | {"length": len(catalogue), "nodes": {*catalogue.nodes}}


steps = st.one_of(
    st.tuples(st.just("has"), st.sampled_from(NODES), st.integers(0, 5), st.booleans()),
    st.tuples(st.just("lacks"), st.sampled_from(NODES), st.integers(0, 5), st.just(False)),
    st.tuples(st.sampled_from(("restarts", "mistakes")), st.sampled_from(NODES), st.just(0), st.just(False)),
    st.tuples(st.just("look"), st.sampled_from((*NODES, "")), st.just(0), st.just(False)),
)


@given(st.lists(steps, max_size=40))
async def test_any_changes_and_losses_end_in_the_catalogue_of_what_nodes_have(
    story: list[tuple[str, str, int, bool]],
) -> None:
    nodes = {name: PlayedNode() for name in NODES}
    agents, catalogue = PlayedAgents(nodes), Catalogue()
    upkeep = CatalogueUpkeep(agents, catalogue, lambda: NODES, Now())
    for step, name, number, lazy in story:
        match step:
            case "has":
                nodes[name].has[number] = lazy
            case "lacks":
                nodes[name].has.pop(number, None)
            case "restarts":
                nodes[name].earlier.clear()
            case "mistakes":  # it takes what it has now for what it had
                nodes[name].earlier = dict.fromkeys(nodes[name].earlier, nodes[name].images())
            case _:
                agents.lost = {name}
                await upkeep.turn()
    agents.lost = set()
    await upkeep.turn()
    fresh = Catalogue()
    await CatalogueUpkeep(PlayedAgents(nodes), fresh, lambda: NODES, Now()).turn()
    assert state(catalogue) == state(fresh)


async def test_after_the_first_list_changes_alone_are_told() -> None:
    nodes = {name: PlayedNode(dict.fromkeys(range(5), False)) for name in NODES}
    catalogue = Catalogue()
    upkeep = CatalogueUpkeep(PlayedAgents(nodes), catalogue, lambda: NODES, Now())
    for number in range(5):
        await upkeep.turn()
        nodes["n1"].has[number] = True
    await upkeep.turn()
    assert [one.wholes for one in nodes.values()] == [1, 1]
    assert {name: dict(catalogue.shares(digest(4), {}, [name], lazily=True)) for name in NODES} == {
        "n1": {"n1": 1.0},
        "n2": {"n2": 1.0},
    }


def test_versions_are_those_of_the_contract() -> None:
    cases = json.loads(VECTORS.read_text())
    assert cases
    for case in cases:
        assert version_of({int(mark, 16) for mark in case["marks"]}) == case["version"]


def test_the_same_image_of_many_nodes_is_kept_once() -> None:
    told = ReportedImages()
    for name in NODES:
        told.replace(name, version_of([7]), {7: HeldImage((digest(7),))})
    first, second = ([*told.images(name)] for name in NODES)
    assert first[0] is second[0]
    # What has no mark is no image that is known by it.
    for number, name in enumerate(NODES):
        told.replace(name, "", {-1: HeldImage((digest(number),))})
    assert [one.digests for name in NODES for one in told.images(name)] == [(digest(0),), (digest(1),)]
