"""What is known of lazy pulling on nodes, as their agents tell it."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from controlplane.cluster.kubernetes.node_agents.lazy_nodes import EVERY_S, LazyNodes
from controlplane.errors import Problem
from controlplane.wire import node_pb2


@dataclass
class Played:
    """Agents that tell what a test says; None: one does not answer."""

    told: dict[str, node_pb2.Health | None] = field(default_factory=dict)
    bug: Exception | None = None

    @property
    def nodes(self) -> Sequence[str]:
        return [*self.told]

    async def describe(self, node: str) -> node_pb2.Description:
        bug, self.bug = self.bug, None
        if bug is not None:
            raise bug
        health = self.told[node]
        if health is None:
            raise Problem("upstream_timeout", f"the agent of {node} does not answer")
        return node_pb2.Description(node=node, health=health)


async def test_a_node_is_marked_as_long_as_its_agent_says_so() -> None:
    lazy, agents = LazyNodes(), Played({"n1": node_pb2.Health(), "n2": node_pb2.Health(lazy_trouble="it hangs")})
    await lazy.look(agents)
    assert lazy.troubled == {"n2"}
    assert lazy.trouble == "1 nodes mount no images now, n2 among them: it hangs"
    # One that does not answer is as it was: its agent may be replaced.
    agents.told["n2"] = None
    await lazy.look(agents)
    assert lazy.troubled == {"n2"}
    agents.told["n2"] = node_pb2.Health()
    await lazy.look(agents)
    assert (lazy.troubled, lazy.trouble) == (frozenset(), "")


async def test_a_broken_image_is_known_from_any_node_until_none_tells_it() -> None:
    broken = [node_pb2.Broken(digest="sha256:1", why="invalid chunk")]
    lazy, agents = LazyNodes(), Played({"n1": node_pb2.Health(), "n2": node_pb2.Health(broken=broken)})
    await lazy.look(agents)
    assert lazy.broken == {"sha256:1": "on node n2: invalid chunk"}
    # The node has gone, or has removed the image.
    del agents.told["n2"]
    await lazy.look(agents)
    assert lazy.broken == {}


async def test_a_failure_that_nobody_foresaw_ends_one_look_alone() -> None:
    lazy = LazyNodes()
    agents = Played({"n1": node_pb2.Health(lazy_trouble="it hangs")}, bug=RuntimeError("a bug"))
    following = asyncio.create_task(lazy.follow(agents))
    await asyncio.sleep(1.5 * EVERY_S)
    assert lazy.troubled == {"n1"}
    following.cancel()
    with suppress(asyncio.CancelledError):
        await following
