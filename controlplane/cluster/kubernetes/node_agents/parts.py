"""What a cluster does by the agents of its nodes."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from controlplane.clock import SystemClock
from controlplane.cluster.kubernetes.api_server.client import KubernetesClient
from controlplane.cluster.kubernetes.node_agents.agents import NodeAgents
from controlplane.cluster.kubernetes.node_agents.commits import NodeCommits
from controlplane.cluster.kubernetes.node_agents.images import NodeImages
from controlplane.cluster.kubernetes.node_agents.lazy_nodes import LazyNodes
from controlplane.cluster.kubernetes.node_agents.pull_secrets import PullSecrets
from controlplane.images import Keyring, PrivateRegistry
from controlplane.settings import NodeAgentSettings, RegistrySettings


@dataclass(frozen=True, slots=True)
class NodeParts:
    """None: it is not offered.

    Attributes:
        lazy: what is known of lazy pulling on the nodes; without agents nothing is.
    """

    agents: NodeAgents | None = None
    images: NodeImages | None = None
    commits: NodeCommits | None = None
    lazy: LazyNodes = field(default_factory=LazyNodes)


@asynccontextmanager
async def node_parts(
    client: KubernetesClient,
    settings: NodeAgentSettings | None,
    registry: RegistrySettings | None,
    namespace: str,
    pull_secrets: Sequence[str],
    *,
    lazily: bool = False,
) -> AsyncIterator[NodeParts]:
    """Follows where the agents are while the block runs.

    Args:
        client: of the cluster.
        settings: None: there are no agents, so that nothing is offered.
        registry: the private registry; None, or one that takes no commits: no images are made of sandboxes.
        namespace: that of the pull secrets.
        pull_secrets: those that all sandboxes have.
        lazily: nodes mount images lazily, and are asked whether they do.

    Raises:
        Problem: internal, if the API server does not answer or refuses.
    """
    if settings is None:
        yield NodeParts()
        return
    secrets = PullSecrets(client, namespace, pull_secrets, {}, SystemClock())

    async def of_all_pods() -> Keyring:
        return await secrets.of("")

    async with NodeAgents.open(client, settings) as agents:
        commits = None
        if registry is not None and (push := registry.push) is not None and push.commits is not None:
            commits = NodeCommits(client, agents, PrivateRegistry(registry.host), push, push.commits)
        lazy = LazyNodes()
        async with asyncio.TaskGroup() as group:
            looking = group.create_task(lazy.follow(agents), name="lazy pulling of nodes") if lazily else None
            try:
                yield NodeParts(agents, NodeImages(agents, of_all_pods), commits, lazy)
            finally:
                if looking is not None:
                    looking.cancel()
