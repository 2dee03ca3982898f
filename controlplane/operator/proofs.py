"""Keeps sandboxes from nodes that are not proven to start some: asks the nodes' agents, and sets or lifts a taint."""

import asyncio
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final, Protocol

import structlog

from controlplane.cluster.kubernetes.api_server.client import KubernetesClient
from controlplane.cluster.kubernetes.api_server.refusals import Refused
from controlplane.cluster.kubernetes.nodes.proof import TAINT, Proof, marked, tainted, unmarked
from controlplane.errors import Problem
from controlplane.operator.notices import Notices
from controlplane.wire import node_pb2

EVERY_S: Final = 10.0
# Nodes that are asked at the same time.
ASKED_AT_ONCE: Final = 32
# A proven node is tainted at the second look that finds trouble: a part that is started anew is no trouble.
LOOKS: Final = 2
# A patch names the version that it is for: after a conflict another one is made of what the node is then, so often, and
# else at the next look. Kubelets and others write to nodes all the time.
PATCHES: Final = 5
PATCH_WITHIN_S: Final = 3.0
# Reasons of Events, by how the installer's last run has ended.
EVENTS: Final[Mapping[str, str]] = {"refused": "NodeInstallRefused", "failed": "NodeInstallFailed"}
NO_AGENT: Final = "no agent of this node has answered yet"

Node = Mapping[str, Any]


class Agents(Protocol):
    """The part of ``NodeAgents`` that is used."""

    async def describe(self, node: str) -> node_pb2.Description:
        """What a node is."""
        ...


class Proofs:
    """Looks at all nodes for sandboxes, again and again.

    Args:
        selector: of these nodes.
        lifted: takes the taints away for good, in the place of setting them.
    """

    def __init__(
        self, client: KubernetesClient, agents: Agents, notices: Notices, selector: Mapping[str, str], *, lifted: bool
    ) -> None:
        self._client = client
        self._agents = agents
        self._notices = notices
        self._selector = selector
        self._lifted = lifted
        self._troubled: dict[str, int] = {}
        self._log = structlog.get_logger("proofs")

    async def run(self) -> None:
        """ConsoleViews every ``EVERY_S`` until it is cancelled."""
        while True:
            try:
                await self.once()
            except Problem as problem:
                self._log.warning("nodes not looked at, retrying later", code=problem.code, detail=problem.detail)
            await asyncio.sleep(EVERY_S)

    async def once(self) -> None:
        """ConsoleViews once.

        Raises:
            Problem: the API server does not list the nodes.
        """
        # All of them: one that is not for sandboxes any more loses its taint.
        nodes = (await self._client.list("/api/v1/nodes", {})).items
        turns = asyncio.Semaphore(ASKED_AT_ONCE)

        async def look(node: Node) -> None:
            async with turns:
                try:
                    await self._look(node)
                except Problem as problem:
                    # The others do not wait for this one.
                    name = node["metadata"]["name"]
                    self._log.warning("node not marked", node=name, code=problem.code, detail=problem.detail)

        async with asyncio.TaskGroup() as group:
            for node in nodes:
                group.create_task(look(node))

    async def _look(self, node: Node) -> None:
        labels = node["metadata"].get("labels") or {}
        if self._lifted or any(labels.get(key) != value for key, value in self._selector.items()):
            await self._write(node, unmarked, "")
            return
        proof = await self._proof(node)
        if proof is None or not self._counts(node, proof):
            return
        if await self._write(node, lambda now: marked(now, proof), "; ".join(proof.troubles)):
            await self._tell(node, proof)

    async def _tell(self, node: Node, proof: Proof) -> None:
        """Writes an Event about what the installer could not do, also of a node that goes on with what it has."""
        before = Proof.of(node) or Proof()
        reason = EVENTS.get(proof.installer)
        if reason and (before.installer, before.detail) != (proof.installer, proof.detail):
            await self._notices.write_for_node(str(node["metadata"]["name"]), reason, f"installer: {proof.detail}")

    async def _proof(self, node: Node) -> Proof | None:
        """None: nothing new is known."""
        name = str(node["metadata"]["name"])
        try:
            told = await self._agents.describe(name)
        except Problem as problem:
            self._log.info("node not described", node=name, code=problem.code, detail=problem.detail)
            return None if Proof.of(node) else Proof(troubles=[NO_AGENT])
        if not told.HasField("health"):
            return None
        health = told.health
        programs = dict(health.programs)
        return Proof(
            list(health.troubles),
            health.installer,
            health.installer_detail,
            programs,
            health.lazy_trouble,
            list(health.low),
        )

    def _counts(self, node: Node, proof: Proof) -> bool:
        name = str(node["metadata"]["name"])
        before = Proof.of(node)
        if proof.proven or before is None or not before.proven or tainted(node):
            self._troubled.pop(name, None)
            return True
        self._troubled[name] = self._troubled.get(name, 0) + 1
        return self._troubled[name] >= LOOKS

    async def _write(self, node: Node, patch_of: Callable[[Node], Mapping[str, Any] | None], why: str) -> bool:
        """False: the node has changed all the time. What it has to have is on record otherwise."""
        name = str(node["metadata"]["name"])
        now: Node | None = node
        for _ in range(PATCHES):
            patch = patch_of(now) if now is not None else None
            if now is None or patch is None:
                return True
            if await self._patched(name, patch):
                await self._told(now, patch, why)
                return True
            now = await self._found(name)
        self._log.info("node changes all the time: it is marked at the next look", node=name)
        return False

    async def _patched(self, name: str, patch: Mapping[str, Any]) -> bool:
        """False: somebody else has changed the node, or it has gone."""
        try:
            await self._client.patch(f"/api/v1/nodes/{name}", dict(patch), within_s=PATCH_WITHIN_S)
        except Refused as refused:
            if refused.refusal.status not in (HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND):
                raise
            return False
        return True

    async def _found(self, name: str) -> Node | None:
        try:
            return await self._client.get(f"/api/v1/nodes/{name}", within_s=PATCH_WITHIN_S)
        except Refused as refused:
            if refused.refusal.status != HTTPStatus.NOT_FOUND:
                raise
            return None

    async def _told(self, before: Node, patch: Mapping[str, Any], why: str) -> None:
        name = str(before["metadata"]["name"])
        now_tainted = any(one["key"] == TAINT for one in patch["spec"]["taints"] or ())
        if now_tainted and not tainted(before):
            self._log.warning("node not proven: no sandbox starts on it", node=name, why=why)
            await self._notices.write_for_node(name, "NodeUnproven", f"no sandbox starts on this node: {why}")
        elif tainted(before) and not now_tainted:
            self._log.info("node takes sandboxes", node=name)
