"""Which agent is on which node, and what the nodes' images and pulls look like to the rest."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from controlplane.cluster.kubernetes.node_agents import NodeAgents, NodeImages
from controlplane.cluster.kubernetes.node_agents.addresses import Addresses
from controlplane.cluster.protocol import PrefetchProgress
from controlplane.errors import Problem
from controlplane.images import Credentials, Keyring
from controlplane.settings import NodeAgentSettings
from controlplane.wire import node_pb2

AWAY = Problem("upstream_timeout", "away")


def endpoint(node: str | None, address: str, *, ready: bool | None = True) -> dict[str, Any]:
    return {"nodeName": node, "addresses": [address], "conditions": {"ready": ready}}


def piece(name: str, *endpoints: dict[str, Any], port: int | None = 8443) -> dict[str, Any]:
    return {"metadata": {"name": name}, "ports": [{"port": port}], "endpoints": [*endpoints]}


def test_agents_are_known_by_node_as_far_as_they_are_ready() -> None:
    addresses = Addresses()
    addresses.replace([piece("a", endpoint("n1", "10.0.0.1"), endpoint("n2", "10.0.0.2", ready=False))])
    addresses.put(
        piece("b", endpoint("n3", "fd00::3"), endpoint(None, "10.0.0.4"), endpoint("n5", "1.1.1.1", ready=None))
    )
    assert addresses.by_node == {"n1": "10.0.0.1:8443", "n3": "[fd00::3]:8443", "n5": "1.1.1.1:8443"}
    addresses.put(piece("a", endpoint("n2", "10.0.0.2")))
    addresses.remove(piece("b"))
    assert addresses.by_node == {"n2": "10.0.0.2:8443"}
    addresses.replace([piece("c", endpoint("n1", "10.0.0.1"), port=None), {"metadata": {"name": "d"}}])
    assert addresses.by_node == {}


async def test_a_node_without_an_agent_is_named() -> None:
    agents = NodeAgents(Addresses(), NodeAgentSettings("ns", "node", "name", Path("/none")))
    with pytest.raises(Problem, match="the node n1 has no agent that is ready"):
        await agents.images("n1")


class Played(NodeAgents):
    """Agents whose answers are given, by node."""

    def __init__(
        self,
        images: Mapping[str, Sequence[node_pb2.Image] | Problem] | None = None,
        pulls: Mapping[str, Sequence[node_pb2.PrefetchProgress | Problem | asyncio.Event]] | None = None,
    ) -> None:
        self._images = images or {}
        self._pulls = pulls or {}
        self.left: list[str] = []
        self.removed: list[tuple[str, str, bool]] = []
        self.credentials: list[Credentials | None] = []

    async def images(self, node: str) -> Sequence[node_pb2.Image]:
        answer = self._images[node]
        if isinstance(answer, Problem):
            raise answer
        return answer

    async def disk_bytes(self, node: str) -> int | None:
        return {"n1": 1000}.get(node)

    async def remove(self, node: str, image: str, *, brought: bool = False) -> bool:
        self.removed.append((node, image, brought))
        return True

    async def prefetch(
        self, node: str, image: str, credentials: Credentials | None, handler: str
    ) -> AsyncGenerator[node_pb2.PrefetchProgress, None]:
        assert (image, handler) == ("hub.test/a:1", "runsc")
        self.credentials.append(credentials)
        try:
            for one in self._pulls[node]:
                if isinstance(one, Problem):
                    raise one
                if isinstance(one, asyncio.Event):
                    await one.wait()
                else:
                    yield one
        finally:
            self.left.append(node)


KEYS = Keyring({"hub.test": Credentials("me", "secret")})


async def keyring() -> Keyring:
    return KEYS


class Near:
    """Chooses all nodes, and notes nothing."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self._nodes = nodes

    def chosen(self, image: str, count: int | None, layers: Mapping[str, int]) -> Sequence[str]:
        return self._nodes

    async def noted(
        self, image: str, pulls: AsyncGenerator[PrefetchProgress, None]
    ) -> AsyncGenerator[PrefetchProgress, None]:
        async with aclosing(pulls) as told:
            async for one in told:
                yield one


def images_of(agents: NodeAgents, *nodes: str) -> NodeImages:
    return NodeImages(agents, keyring, lambda: nodes, Near(nodes), handler=lambda _: "runsc", needed="hub/sidecar:1")


async def test_images_are_told_as_the_nodes_have_them() -> None:
    whole = node_pb2.Image(names=["hub/a:1"], digests=["hub/a@sha256:d1"], size_bytes=7, lazy=True, last_used_ms=9)
    bare = node_pb2.Image(digests=["hub/b@sha256:d2"])
    agents = Played({"n1": [whole, node_pb2.Image(names=["pause"], pinned=True)], "n2": AWAY, "n3": [bare]})
    found = await images_of(agents, "n1", "n2", "n3").all()
    assert [(one.node, one.names, one.digest) for one in found] == [
        ("n1", ("hub/a:1",), "sha256:d1"),
        ("n3", ("hub/b@sha256:d2",), "sha256:d2"),
    ]
    assert [(one.size_bytes, one.lazy, one.last_used_ms) for one in found] == [(7, True, 9), (0, None, None)]


async def test_what_a_clean_up_is_told_and_what_it_may_remove() -> None:
    ours = node_pb2.Image(names=["hub/a:1"], digests=["hub/a@sha256:d1"], size_bytes=7, brought_ms=3, containers=2)
    other = node_pb2.Image(names=["hub/b:1"], size_bytes=5)
    sidecar = node_pb2.Image(names=["hub/sidecar:1"], digests=["hub/sidecar@sha256:d3"], brought_ms=3)
    pause = node_pb2.Image(names=["pause"], pinned=True)
    agents = Played({"n1": [ours, other, sidecar, pause], "n2": AWAY, "n3": []})
    first, last = await images_of(agents, "n1", "n2", "n3").stores()
    assert (first.node, first.disk_bytes, last.node, last.disk_bytes) == ("n1", 1000, "n3", None)
    told = [(one.names[0], one.brought_ms, one.containers) for one in first.images]
    assert told == [("hub/a:1", 3, 2), ("hub/b:1", None, 0)]
    assert await images_of(agents).remove(first.images[0])
    # Only what came for sandboxes alone, whatever was told before.
    assert agents.removed == [("n1", "hub/a:1", True)]


async def test_no_answer_at_all_is_a_problem_and_no_node_is_none() -> None:
    with pytest.raises(Problem, match="away"):
        await images_of(Played({"n1": AWAY, "n2": AWAY}), "n1", "n2").all()
    assert await images_of(Played()).all() == []


def step(done: int, *, here: bool = False, total: int | None = None) -> node_pb2.PrefetchProgress:
    state = node_pb2.PrefetchProgress.HERE if here else node_pb2.PrefetchProgress.PULLING
    return node_pb2.PrefetchProgress(state=state, done_bytes=done, total_bytes=total)


async def test_a_prefetch_ends_when_every_node_is_done() -> None:
    agents = Played(pulls={"n1": [step(1), step(5, here=True, total=5)], "n2": [step(1), AWAY], "n3": [AWAY]})
    last: dict[str, PrefetchProgress] = {}
    async for one in images_of(agents, "n1", "n2", "n3").prefetch("hub.test/a:1"):
        last[one.node] = one
    assert last["n1"] == PrefetchProgress("n1", "here", 5, 5)
    assert {last[node].state for node in ("n2", "n3")} == {"failed"}
    assert last["n3"].failure is AWAY
    assert agents.credentials == [Credentials("me", "secret")] * 3


async def test_one_who_leaves_a_prefetch_ends_its_calls() -> None:
    agents = Played(pulls={"n1": [step(1), asyncio.Event()], "n2": [step(2, here=True)]})
    async with aclosing(images_of(agents, "n1", "n2").prefetch("hub.test/a:1")) as told:
        async for one in told:
            if one.node == "n1":
                break
    assert sorted(agents.left) == ["n1", "n2"]


async def test_what_is_no_name_is_refused_before_any_node_is_asked() -> None:
    with pytest.raises(Problem) as caught:
        async for _ in images_of(Played(), "n1").prefetch("A B"):
            pass
    assert caught.value.code == "image_not_found"


async def test_without_nodes_a_prefetch_is_done() -> None:
    assert [one async for one in images_of(Played()).prefetch("hub.test/a:1")] == []
