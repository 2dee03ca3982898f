"""A control plane without network and engine: real service, store and tokens, fake cluster, virtual time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from controlplane.api.app import create_app
from controlplane.api.auth import ApiKeys
from controlplane.api.context import Context
from controlplane.api.ready import create_ready_app
from controlplane.clock import Clock
from controlplane.cluster.documents import Documents
from controlplane.cluster.engine.documents import FileDocuments
from controlplane.cluster.node_pools import NodePools
from controlplane.console import Pages
from controlplane.images import Collector, Keyrings, Mirror, RecordedList, Registry
from controlplane.lifecycle import Dependencies, Options, Sandboxes, SigningKey
from controlplane.lifecycle.record.callers import new_caller
from controlplane.lifecycle.service.creates import Created
from controlplane.model import Sandbox, SandboxSpec
from controlplane.store import MemoryStore, Store
from controlplane.telemetry import Metrics
from controlplane.webhooks import Poster
from tests.support.asgi import Caller
from tests.support.fake_cluster import FakeCluster, FakeGateways, FakeSidecars
from tests.support.virtual_time import VirtualClock

OWNER = "alice"
KEY = "rbx_alice_0123456789"
OTHER_KEY = "rbx_bob_0123456789ab"
SPEC = SandboxSpec(image="python:3.12")
PAGES = Pages()
PRIVATE = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))


@dataclass
class World:
    """One control plane and everything around it."""

    service: Sandboxes
    deps: Dependencies
    cluster: FakeCluster
    sidecars: FakeSidecars
    gateways: FakeGateways
    api: Caller
    door: Caller

    async def create(self, owner: str, spec: SandboxSpec, key: str | None = None) -> Created:
        """A create as the API makes it, of a caller that stays."""
        by_ms, caller = self.service.deadline_ms(spec), new_caller()
        return await self.service.create(owner, spec, key, by_ms=by_ms, caller=caller, begun=[])

    async def request(self, owner: str, spec: SandboxSpec, key: str | None = None) -> Sandbox:
        """The first half of a create: there is a record, and nobody waits for it, as if this replica had died."""
        caller, creates = new_caller(), self.service._core.creates
        return (await creates.request(owner, spec, key, self.service.deadline_ms(spec), caller=caller))[0]


@asynccontextmanager
async def world(
    cluster: FakeCluster | None = None,
    sidecars: FakeSidecars | None = None,
    options: Options | None = None,
    clock: Clock | None = None,
    store: Store | None = None,
    *,
    documents: Documents | None = None,
    registry: Registry | None = None,
    mirror: Mirror | None = None,
    keyrings: Keyrings | None = None,
    collector: Collector | None = None,
    recorded: RecordedList | None = None,
    node_pools: NodePools | None = None,
    poster: Poster | None = None,
) -> AsyncIterator[World]:
    """A running control plane; pass a cluster that another world has left to rebuild from it.

    With a store that another world uses too, both are replicas: pushes land at the one that was opened last.
    """
    cluster = cluster or FakeCluster()
    sidecars = sidecars or FakeSidecars()
    clock = clock or VirtualClock()
    gateways = FakeGateways()
    key = SigningKey(PRIVATE, clock)
    deps = Dependencies(
        store=store or MemoryStore(clock),
        cluster=cluster,
        sidecars=sidecars,
        gateways=gateways,
        key=key,
        clock=clock,
        metrics=Metrics(),
        documents=documents or FileDocuments(),
        registry=registry,
        mirror=mirror,
        keyrings=keyrings,
        collector=collector,
        recorded=recorded,
        node_pools=node_pools,
        poster=poster,
    )
    async with Sandboxes.running(deps, options or Options()) as service:
        cluster.push = service.accept_push
        operators = frozenset({OWNER})
        keys = ApiKeys({KEY: OWNER, OTHER_KEY: "bob"}, operators, service.keys, key, clock)
        app = create_app(Context(service, deps, keys, {"max_sandboxes": 0}, operators=operators, console=PAGES))
        api, door = Caller(app, KEY), Caller(create_ready_app(service), None)
        yield World(service, deps, cluster, sidecars, gateways, api, door)
        await cluster.settle()
