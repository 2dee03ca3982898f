"""Watches the objects of kubernetes-sigs/agent-sandbox, in the API version that the cluster serves."""

import asyncio
from http import HTTPStatus
from typing import Final

import structlog

from controlplane.cluster.kubernetes.api_server.client import KubernetesClient
from controlplane.cluster.kubernetes.api_server.refusals import Refused
from controlplane.cluster.kubernetes.api_server.watch import Reflector
from controlplane.cluster.kubernetes.declared.agent_sandbox import GROUP, TEMPLATES, VERSIONS, WARM_POOLS, serves
from controlplane.cluster.kubernetes.declared.document_cache import AgentSandboxPools
from controlplane.errors import Problem

# How often the served API version is checked: it changes only with an upgrade of agent-sandbox, and without an event.
LOOK_S: Final = 30.0


class Adopting:
    """Keeps ``adopted`` in sync with the objects of a namespace."""

    def __init__(self, client: KubernetesClient, namespace: str, adopted: AgentSandboxPools) -> None:
        self._client = client
        self._namespace = namespace
        self._adopted = adopted
        self._log = structlog.get_logger("documents")

    async def run(self) -> None:
        """Runs until it is cancelled; checks the served API version every ``LOOK_S`` seconds."""
        followed, watches = "", list[asyncio.Task[None]]()
        async with asyncio.TaskGroup() as group:
            while True:
                # Where no version is served, the watches fail and log what is missing.
                version = await self._served() or followed or VERSIONS[0]
                if version != followed:
                    self._log.info("watching agent-sandbox", group=GROUP, version=version, instead_of=followed or None)
                    for watch in watches:
                        watch.cancel()
                    watches = [group.create_task(one.run()) for one in self._reflectors(version)]
                    followed = version
                await asyncio.sleep(LOOK_S)

    async def _served(self) -> str | None:
        """The first of ``VERSIONS`` that is served; None: none is, or the API server does not answer."""
        for version in VERSIONS:
            try:
                if serves(await self._client.get(f"/apis/{GROUP}/{version}")):
                    return version
            except Problem as problem:
                if not (isinstance(problem, Refused) and problem.refusal.status == HTTPStatus.NOT_FOUND):
                    return None
        return None

    def _reflectors(self, version: str) -> list[Reflector]:
        base = f"/apis/{GROUP}/{version}/namespaces/{self._namespace}"
        return [
            Reflector(self._client, f"{base}/{TEMPLATES}", {}, self._adopted.templates),
            Reflector(self._client, f"{base}/{WARM_POOLS}", {}, self._adopted.warm_pools),
        ]
