"""``NodeCommits``: images that the agents of nodes make of sandboxes, in the private registry."""

import asyncio
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from http import HTTPStatus
from typing import Final

from controlplane.clock import Clock
from controlplane.cluster.kubernetes.api_server.client import Json, KubernetesClient
from controlplane.cluster.kubernetes.api_server.refusals import Refused
from controlplane.cluster.kubernetes.marks import TARGET
from controlplane.cluster.kubernetes.node_agents.agents import NodeAgents
from controlplane.cluster.kubernetes.node_agents.kept import KeptImages
from controlplane.cluster.kubernetes.node_agents.tokens import minted
from controlplane.cluster.protocol import Committed
from controlplane.errors import Problem
from controlplane.images import PrivateRegistry, Reference, parse
from controlplane.settings import CommitSettings, PushSettings
from controlplane.wire import node_pb2

# A sandbox that stands still for a minute is taken for one that hangs.
STILL_MS: Final = 45_000
# An upgrade replaces the agent of a node within about so long.
RETRY_MS: Final = 30_000


class NodeCommits:
    """Has sandboxes committed by the agents of their nodes.

    Args:
        client: reads what a sandbox was started from.
        agents: of the nodes.
        registry: the private registry, by the name that images have.
        push: the address and the account with which what was made is listed and removed.
        commits: where agents put what they make.
        pods: the path of the sandboxes' pods at the API server.
        node_of: the node of a sandbox; empty: not known.

    Attributes:
        kept: what was made.
    """

    def __init__(
        self,
        client: KubernetesClient,
        agents: NodeAgents,
        registry: PrivateRegistry,
        push: PushSettings,
        commits: CommitSettings,
        *,
        pods: str,
        node_of: Callable[[str], str],
        clock: Clock,
    ) -> None:
        self._client = client
        self._agents = agents
        self._registry = registry
        self._commits = commits
        self._authority_file = commits.authority_file or push.authority_file
        self._pods = pods
        self._node_of = node_of
        self._clock = clock
        self.kept = KeptImages(registry, push)

    @property
    def place(self) -> str:
        """See ``Commits.place``."""
        return self._registry.commits

    async def commit(self, sandbox_id: str, target: str, max_bytes: int, *, squash: bool = False) -> Committed:
        """See ``Commits.commit``; the agent of the sandbox's node does it."""
        node = self._node_of(sandbox_id)
        if not node:
            raise Problem("sandbox_lost", f"{sandbox_id} cannot be made an image: it is on no node")
        base = self._own(sandbox_id, await self._image(sandbox_id))
        reference = parse(target)
        request = node_pb2.CommitRequest(
            sandbox_id=sandbox_id,
            container=TARGET,
            registry=await self._place_of(base.repository, reference.repository),
            base=f"{base.repository}@{base.digest}",
            target=f"{reference.repository}:{reference.tag}",
            max_bytes=max_bytes,
            still_ms=STILL_MS,
            squash=squash,
        )
        with _understood(node):
            async with aclosing(self._agents.commit(node, request)) as told:
                async for one in told:
                    if one.HasField("committed"):
                        made = one.committed
                        return Committed(target, made.digest, made.size_bytes, _skipped(made))
        raise Problem("internal", f"the agent of node {node} did not say what it has made of {sandbox_id}")

    async def _image(self, sandbox_id: str) -> str:
        try:
            found: Json = await self._client.get(f"{self._pods}/{sandbox_id}")
        except Refused as refused:
            if refused.refusal.status != HTTPStatus.NOT_FOUND:
                raise
            detail = f"{sandbox_id} cannot be made an image: {refused.detail}"
            raise Problem("sandbox_lost", detail) from refused
        return next(str(one["image"]) for one in found["spec"]["containers"] if one["name"] == TARGET)

    def _own(self, sandbox_id: str, image: str) -> Reference:
        """The name of an image of the private registry."""
        reference = parse(image)
        if not self._registry.holds(reference) or not reference.digest:
            detail = f"{sandbox_id} was started from {image}, not from the private registry {self._registry.host}"
            raise Problem("unsupported", detail, value="a sandbox that was created since there is a private registry")
        return reference

    async def _place_of(self, base: str, target: str) -> node_pb2.Registry:
        """The registry for one call: agents keep no credentials, and resolve no names.

        Never its account: a node that has it could put its own content in the place of every image.
        """
        # Read each time: the Secrets may have been renewed.
        trusted, place = self._authority_file, self._commits
        authority = await asyncio.to_thread(trusted.read_text) if trusted else ""
        rights = {base: ("pull",)} | {target: ("pull", "push", "delete")}
        token = await asyncio.to_thread(minted, place.tokens, rights, self._clock.now_ms() // 1000)
        return node_pb2.Registry(
            address=place.address,
            credentials=node_pb2.Credentials(identity_token=token),
            authority=authority,
            connect=await _resolved(place.address),
        )


@contextmanager
def _understood(node: str) -> Iterator[None]:
    """An agent that does not understand what it is asked is of another version: no caller has written the request."""
    try:
        yield
    except Problem as problem:
        if problem.code not in ("invalid_argument", "unauthenticated", "permission_denied"):
            raise
        detail = (
            f"the agent of node {node} refuses the commit: {problem.detail}. Agents, mirror and control plane have "
            "different versions while an upgrade is under way: try again once it is over"
        )
        raise Problem("upstream_timeout", detail, retry_after_ms=RETRY_MS, node=node) from problem


async def _resolved(address: str) -> str:
    host, _, port = address.rpartition(":") if ":" in address else (address, "", "443")
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except OSError as error:
        raise Problem("upstream_timeout", f"the private registry {address} has no address: {error}") from error
    ip, number = str(found[0][4][0]), int(found[0][4][1])
    return f"[{ip}]:{number}" if ":" in ip else f"{ip}:{number}"


def _skipped(made: node_pb2.Committed) -> Sequence[str]:
    more = [f"and {made.skipped_more} more"] if made.skipped_more else []
    return (*made.skipped, *more)
