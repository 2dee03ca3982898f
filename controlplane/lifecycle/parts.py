"""What the lifecycle is put together from, and its bounds."""

from dataclasses import dataclass

from controlplane.clock import Clock
from controlplane.cluster import Cluster, Gateways, Sidecars
from controlplane.cluster.documents import Documents
from controlplane.lifecycle.routes import RouteBoard
from controlplane.lifecycle.tokens import SigningKey
from controlplane.store import Store
from controlplane.telemetry import Metrics


@dataclass(frozen=True, slots=True)
class Options:
    """Bounds and paces.

    Attributes:
        starts_in_flight: how many starts at once, over all replicas.
        max_sandboxes: in all; 0 = no limit.
        probe_every_ms: how often every running sandbox is asked for a proof of life; 0 = never.
        idle_timeout_ms: of sandboxes that ask for none; 0 = never.
    """

    starts_in_flight: int = 4
    max_sandboxes: int = 0
    probe_every_ms: int = 0
    idle_timeout_ms: int = 0


@dataclass(frozen=True, slots=True)
class Parts:
    """What the service is put together from.

    Attributes:
        gateways: the other way to a sandbox than its sidecar's address.
        documents: where pools and quotas are declared.
    """

    store: Store
    cluster: Cluster
    sidecars: Sidecars
    gateways: Gateways
    key: SigningKey
    clock: Clock
    metrics: Metrics
    board: RouteBoard
    documents: Documents
