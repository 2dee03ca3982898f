"""``LazyPulling``: sandboxes that read their image while their node fetches it."""

from collections.abc import Awaitable, Callable, Sequence

from controlplane.cluster.kubernetes.node_agents.agents import NodeAgents
from controlplane.cluster.kubernetes.node_agents.lazy_nodes import LazyNodes
from controlplane.cluster.kubernetes.nodes import lazy
from controlplane.cluster.kubernetes.nodes.lazy import Json, LazyImages
from controlplane.cluster.kubernetes.nodes.nodes import Node
from controlplane.cluster.protocol import OpenedFiles
from controlplane.errors import Problem
from controlplane.model import SandboxSpec


class LazyPulling:
    """See ``cluster.protocol.LazyNodes``; as the nodes' agents have told last.

    Args:
        images: what nodes mount lazily.
        told: what the agents tell.
        nodes: those that sandboxes may run on, now.
        node_of: the node of a sandbox; empty: not known.
        agents: of the nodes; None: there are none, so nothing is recorded.
    """

    def __init__(
        self,
        images: LazyImages,
        told: LazyNodes,
        nodes: Callable[[], Sequence[Node]],
        node_of: Callable[[str], str],
        agents: NodeAgents | None,
    ) -> None:
        self._images = images
        self._told = told
        self._nodes = nodes
        self._node_of = node_of
        self._agents = agents

    def chosen(self, spec: SandboxSpec) -> LazyImages | None:
        """See ``lazy.chosen``."""
        return lazy.chosen(self._images, spec, self._nodes(), self._told.troubled)

    def confined(self, sandbox_id: str, spec: SandboxSpec) -> Json | None:
        """See ``lazy.confined``."""
        return lazy.confined(self._images, sandbox_id, spec, self._nodes(), self._told.troubled)

    def takes(self, spec: SandboxSpec) -> bool:
        """See ``LazyNodes.takes``."""
        return self.chosen(spec) is not None

    def kept_off(self, spec: SandboxSpec) -> frozenset[str]:
        """See ``LazyNodes.kept_off``."""
        return lazy.unable(self._images, spec, self._nodes(), self._told.troubled)

    @property
    def trouble(self) -> str:
        """See ``LazyNodes.trouble``."""
        return self._told.trouble

    def broken(self, digest: str) -> str:
        """See ``LazyNodes.broken``."""
        return self._told.broken.get(digest, "")

    @property
    def records(self) -> bool:
        """See ``LazyNodes.records``."""
        return self._agents is not None

    async def opened(self, sandbox_id: str, during: Callable[[], Awaitable[None]]) -> OpenedFiles:
        """See ``LazyNodes.opened``; the agent of the sandbox's node tells it."""
        node = self._node_of(sandbox_id)
        if self._agents is None or not node:
            raise Problem("sandbox_lost", f"{sandbox_id} is on no node that has an agent")
        return await self._agents.opened(node, sandbox_id, during)
