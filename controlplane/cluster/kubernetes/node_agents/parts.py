"""What a cluster does by the agents of its nodes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from controlplane.clock import SystemClock
from controlplane.cluster.kubernetes.api_server.client import KubernetesClient
from controlplane.cluster.kubernetes.node_agents.agents import NodeAgents
from controlplane.cluster.kubernetes.node_agents.lazy_nodes import LazyNodes
from controlplane.cluster.kubernetes.node_agents.pull_secrets import PullSecrets
from controlplane.images import Keyring
from controlplane.settings import NodeAgentSettings


@dataclass(frozen=True, slots=True)
class NodeParts:
    """What is there before the cluster's watches are.

    Attributes:
        keyring: the credentials with which nodes pull: those of the pull secrets that all sandboxes have.
        lazy: what is known of lazy pulling on the nodes.
    """

    agents: NodeAgents
    keyring: Callable[[], Awaitable[Keyring]]
    lazy: LazyNodes


@asynccontextmanager
async def node_parts(
    client: KubernetesClient,
    settings: NodeAgentSettings | None,
    namespace: str,
    pull_secrets: Sequence[str],
    *,
    lazily: bool = False,
) -> AsyncIterator[NodeParts | None]:
    """Follows where the agents are while the block runs.

    Args:
        client: of the cluster.
        settings: None: there are no agents.
        namespace: that of the pull secrets.
        pull_secrets: those that all sandboxes have.
        lazily: nodes mount images lazily, and are asked whether they do.

    Raises:
        Problem: internal, if the API server does not answer or refuses.
    """
    if settings is None:
        yield None
        return
    secrets = PullSecrets(client, namespace, pull_secrets, {}, SystemClock())

    async def of_all_pods() -> Keyring:
        return await secrets.of("")

    async with NodeAgents.open(client, settings) as agents:
        lazy = LazyNodes()
        async with asyncio.TaskGroup() as group:
            looking = group.create_task(lazy.follow(agents), name="lazy pulling of nodes") if lazily else None
            try:
                yield NodeParts(agents, of_all_pods, lazy)
            finally:
                if looking is not None:
                    looking.cancel()
