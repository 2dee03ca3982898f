"""Declared objects on Kubernetes: custom resources in the sandboxes' namespace, one per document.

A document's version is the object's uid and generation. The API server increments the generation when the spec changes
and not when the status does, so a status update does not cause conflicts for writers of the spec.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final, Self

import structlog

from controlplane.cluster.documents import KINDS, WORDS, Body, Document, Kind, conflict
from controlplane.cluster.kubernetes.api_server.client import JSON_PATCH, Changes, KubernetesClient
from controlplane.cluster.kubernetes.api_server.refusals import Refused
from controlplane.cluster.kubernetes.api_server.watch import Reflector
from controlplane.cluster.kubernetes.declared.adopting import Adopting
from controlplane.cluster.kubernetes.declared.document_cache import AgentSandboxPools, DocumentCache, document
from controlplane.errors import Problem

GROUP: Final = "rollbox.dev"
VERSION: Final = "v1alpha1"
PLURALS: Final[dict[Kind, str]] = {
    "pools": "sandboxpools",
    "quotas": "sandboxquotas",
    "egress": "egresspresets",
    "datasets": "datasets",
    "keys": "apikeys",
}
NAMES: Final[dict[Kind, str]] = {
    "pools": "SandboxPool",
    "quotas": "SandboxQuota",
    "egress": "EgressPreset",
    "datasets": "Dataset",
    "keys": "ApiKey",
}
# Attempts of a write that conflicts with other writers; after more conflicts than this in a row it is refused.
TRIES: Final = 5
# Deadline for writing a status: one that is written late has no use.
STATUS_WITHIN_S: Final = 5.0


class KubernetesDocuments:
    """See ``Documents``. Reads and writes are calls to the API server; changes come from watches that ``open`` owns.

    Args:
        adopted: pools that are declared as objects of agent-sandbox; they can only be read, and a ``SandboxPool`` with
            the same name has priority.
    """

    def __init__(self, client: KubernetesClient, namespace: str, adopted: AgentSandboxPools | None = None) -> None:
        self._client = client
        self._namespace = namespace
        self._base = f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}"
        self._adopted = adopted
        self._caches: dict[Kind, DocumentCache] = {
            kind: DocumentCache(self._adopted) if kind == "pools" else DocumentCache() for kind in KINDS
        }
        self._log = structlog.get_logger("documents")

    @classmethod
    @asynccontextmanager
    async def open(
        cls, client: KubernetesClient, namespace: str, *, adopt: bool = False, kinds: Sequence[Kind] = KINDS
    ) -> AsyncIterator[Self]:
        """The documents in a namespace, watched while the block runs; does not wait for the first list.

        Args:
            client: the client of the API server.
            namespace: the sandboxes' namespace.
            kinds: which are watched; of another one, ``watch`` yields nothing.
            adopt: whether each ``SandboxWarmPool`` of kubernetes-sigs/agent-sandbox is a pool too.
        """
        documents = cls(client, namespace, AgentSandboxPools() if adopt else None)
        async with asyncio.TaskGroup() as group:
            watches = [group.create_task(one.run()) for one in documents._watches(kinds)]
            try:
                yield documents
            finally:
                for watch in watches:
                    watch.cancel()

    async def put(self, kind: Kind, name: str, body: Body, expected: str | None = None) -> str:
        """See ``Documents.put``; also a conflict if an agent-sandbox object declares a pool of this name."""
        for _ in range(TRIES):
            before = await self._ours(kind, name)
            if before is None and name in self._caches[kind].adopted:
                raise _others(name)
            found = None if before is None else before.version
            if expected is not None and expected != (found or ""):
                raise conflict(kind, name, expected, found)
            try:
                return await (self._create(kind, name, body) if before is None else self._change(kind, before, body))
            except Refused as refused:
                # Either an earlier attempt succeeded and its answer was lost, or another writer was faster.
                now = await self._ours(kind, name)
                if now is not None and now.body == body:
                    return now.version
                if (None if now is None else now.version) == found:
                    raise _without_resource(kind, refused) from refused
        raise Problem("conflict", f"{WORDS[kind]} {name!r} changes faster than it can be written", name=name)

    async def get(self, kind: Kind, name: str) -> Document | None:
        """See ``Documents.get``."""
        return await self._ours(kind, name) or self._caches[kind].adopted.get(name)

    async def list(self, kind: Kind) -> Sequence[Document]:
        """See ``Documents.list``."""
        try:
            found = await self._client.list(self._of(kind), {})
        except Refused as refused:
            raise _without_resource(kind, refused) from refused
        ours = {one.name: one for one in map(document, found.items)}
        return [one for _, one in sorted((self._caches[kind].adopted | ours).items())]

    async def remove(self, kind: Kind, name: str) -> bool:
        """See ``Documents.remove``."""
        try:
            await self._client.delete(f"{self._of(kind)}/{name}", {})
        except Refused as refused:
            if refused.refusal.status != HTTPStatus.NOT_FOUND:
                raise
            if name in self._caches[kind].adopted:
                raise _others(name) from refused
            return False
        return True

    def watch(self, kind: Kind) -> AsyncIterator[Sequence[Document]]:
        """See ``Documents.watch``."""
        return self._caches[kind].watch()

    async def status(self, kind: Kind, name: str, body: Body) -> None:
        """See ``Documents.status``."""
        path = f"{self._of(kind)}/{name}/status"
        try:
            await self._client.patch(path, {"status": dict(body)}, within_s=STATUS_WITHIN_S)
        except Problem as problem:
            self._log.debug("status not written, skipped", path=path, code=problem.code, detail=problem.detail)

    def _watches(self, kinds: Sequence[Kind]) -> Sequence[Reflector | Adopting]:
        ours = [Reflector(self._client, self._of(kind), {}, self._caches[kind].ours) for kind in kinds]
        if self._adopted is None:
            return ours
        return [*ours, Adopting(self._client, self._namespace, self._adopted)]

    async def _ours(self, kind: Kind, name: str) -> Document | None:
        try:
            return document(await self._client.get(f"{self._of(kind)}/{name}"))
        except Refused as refused:
            if refused.refusal.status != HTTPStatus.NOT_FOUND:
                raise
        return None

    async def _create(self, kind: Kind, name: str, body: Body) -> str:
        thing = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": NAMES[kind],
            "metadata": {"name": name},
            "spec": json.loads(json.dumps(body)),
        }
        return document(await self._client.create(self._of(kind), thing)).version

    async def _change(self, kind: Kind, before: Document, body: Body) -> str:
        uid, _, generation = before.version.rpartition(".")
        changes: Changes = [
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "test", "path": "/metadata/generation", "value": int(generation)},
            {"op": "add", "path": "/spec", "value": json.loads(json.dumps(body))},
        ]
        changed = await self._client.patch(f"{self._of(kind)}/{before.name}", changes, JSON_PATCH)
        return document(changed).version

    def _of(self, kind: Kind) -> str:
        return f"{self._base}/{PLURALS[kind]}"


def _others(name: str) -> Problem:
    detail = f"the pool {name!r} is declared by the SandboxWarmPool of that name: change it there"
    return Problem("conflict", detail, name=name)


def _without_resource(kind: Kind, refused: Refused) -> Problem:
    """The error for a cluster without the resource definition; other refusals unchanged."""
    if refused.refusal.status != HTTPStatus.NOT_FOUND:
        return refused
    detail = f"this cluster has no {NAMES[kind]}; {remedy(kind)}"
    return Problem("unsupported", detail, resource=resource(kind))


def resource(kind: Kind) -> str:
    """The name of a kind's CustomResourceDefinition."""
    return f"{PLURALS[kind]}.{GROUP}"


def remedy(kind: Kind) -> str:
    """What the user should do if the CustomResourceDefinition of a kind is missing or outdated."""
    command = f"kubectl apply --server-side --force-conflicts -f files/crds/{resource(kind)}.yaml"
    return f"run in the folder of this version's chart: {command}"
