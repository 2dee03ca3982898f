"""``Names``: writes what has changed since its last turn, at the one replica whose turn it is."""

import asyncio
import secrets
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import structlog

from controlplane.cluster.kubernetes.api_server.client import KubernetesClient
from controlplane.cluster.kubernetes.api_server.refusals import Refused
from controlplane.cluster.kubernetes.marks import LABEL_INSTALLATION
from controlplane.cluster.kubernetes.names.slices import OURS, THEIRS, Slices, endpoints, managed_by, read
from controlplane.cluster.kubernetes.pods.shard import shard_of

Json = dict[str, Any]
# So many changes since the last turn are a herd: it is written every so many seconds, which changes every Service once,
# whatever its size. Gateways ask several times for a name that is not there yet.
HERD: Final = 16
HERD_EVERY_S: Final = 3.0
# Somebody else may have changed what is there.
LOOK_EVERY_S: Final = 600.0
# Where there are no Services, for somebody may switch names on.
LOOK_FOR_SERVICES_S: Final = 60.0
# A turn that comes later than this follows turns of another replica.
MISSED_S: Final = 15.0
# A replica that has no turn does not remember changes without end.
MOST_CHANGES: Final = 20_000


class Names:
    """The names of an installation's sandboxes; ``turn`` is one turn.

    Args:
        client: of the API server.
        namespace: of the sandboxes and their Services.
        installation: the value of their label.
        shards: how many Services there are.
    """

    def __init__(self, client: KubernetesClient, namespace: str, installation: str, shards: int) -> None:
        self._client = client
        self._base = f"/api/v1/namespaces/{namespace}"
        self._path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        self._installation = installation
        self._shards = shards
        self._addresses: dict[str, str] = {}
        self._changes: set[str] = set()
        self._services: Mapping[str, Mapping[str, str]] = {}
        self._slices: Slices | None = None
        self._looked_s = self._turned_s = self._wrote_s = float("-inf")
        self._log = structlog.get_logger("names")

    def see(self, sandbox_id: str, address: str) -> None:
        """Takes in the address of a sandbox's pod; empty: it has none any more. Cost: no call."""
        if address == self._addresses.get(sandbox_id, ""):
            return
        if address:
            self._addresses[sandbox_id] = address
        else:
            del self._addresses[sandbox_id]
        if self._slices is not None:
            self._changes.add(sandbox_id)
            if len(self._changes) > MOST_CHANGES:
                self._slices = None

    async def turn(self) -> None:
        """Writes the slices of what has changed since the last turn; of a herd not in every turn.

        Cost: a write for each Service whose sandboxes have changed; lists when another replica has had the turn.

        Raises:
            Problem: the API server does not answer, or refuses.
        """
        now_s = asyncio.get_running_loop().time()
        if self._slices is None or now_s - self._turned_s > MISSED_S or now_s - self._looked_s > LOOK_EVERY_S:
            if not self._services and self._slices is None and now_s - self._looked_s < LOOK_FOR_SERVICES_S:
                return  # this installation has no names
            await self._look(now_s)
        self._turned_s = now_s
        if (slices := self._slices) is None:
            return
        if len(self._changes) > HERD and now_s - self._wrote_s < HERD_EVERY_S and not slices.changed:
            return
        self._wrote_s = now_s
        changes, self._changes = self._changes, set()
        for sandbox_id in changes:
            slices.put(sandbox_id, self._addresses.get(sandbox_id, ""))
        try:
            for name in [*slices.changed]:
                await self._write(slices, name)
        except BaseException:
            # What is there is not known any more.
            self._slices = None
            raise

    async def _look(self, now_s: float) -> None:
        self._slices, self._looked_s = None, now_s
        query = {"labelSelector": f"{LABEL_INSTALLATION}={self._installation}"}
        services = (await self._client.list(f"{self._base}/services", query)).items
        self._services = {str(one["metadata"]["name"]): one["metadata"] for one in services}
        if not self._services:
            return
        ours = []
        for one in (await self._client.list(self._path, query)).items:
            if managed_by(one) == OURS and read(one).service in self._services:
                ours.append(read(one))
            elif managed_by(one) in THEIRS:
                await self._removed(f"{self._path}/{one['metadata']['name']}")
        for one in (await self._client.list(f"{self._base}/endpoints", query)).items:
            # Of before the Services had no selector; slices would be made of it.
            await self._removed(f"{self._base}/endpoints/{one['metadata']['name']}")
        slices = Slices(self._installation, self._service_of, _fresh, ours)
        self._changes.clear()
        for sandbox_id in {*slices.held, *self._addresses}:
            slices.put(sandbox_id, self._addresses.get(sandbox_id, ""))
        self._slices = slices

    def _service_of(self, sandbox_id: str) -> str:
        service = f"shard-{shard_of(sandbox_id, self._shards)}"
        return service if service in self._services else ""

    async def _write(self, slices: Slices, name: str) -> None:
        one = slices[name]
        if one.version:
            # With the version: of two replicas that take themselves for the one, the second looks again.
            patch = {"metadata": {"resourceVersion": one.version}, "endpoints": endpoints(one)}
            written = await self._client.patch(f"{self._path}/{name}", patch)
        else:
            written = await self._client.create(self._path, slices.manifest(one, self._services[one.service]))
        one.version = str(written["metadata"]["resourceVersion"])
        slices.changed.discard(name)

    async def _removed(self, path: str) -> None:
        try:
            await self._client.delete(path, {})
        except Refused as refused:
            if refused.refusal.status != HTTPStatus.NOT_FOUND:
                raise


def _fresh(service: str) -> str:
    return f"{service}-rollbox-{secrets.token_hex(4)}"
