"""What the lifecycle is given: its dependencies (``Dependencies``) and its limits (``Options``)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from controlplane.access import AuditOptions
from controlplane.clock import Clock
from controlplane.cluster import Cluster, Gateways, Sidecars
from controlplane.cluster.documents import Documents
from controlplane.cluster.node_pools import NodePools
from controlplane.egress import NO_NETWORKS, DirectNetworks, EgressOptions
from controlplane.images import Collector, ImageOptions, Keyrings, Mirror, RecordedList, Registry, StoreLimit
from controlplane.lifecycle.tokens import SigningKey
from controlplane.model import Overcommit
from controlplane.model.dataset import DatasetSpec
from controlplane.scaling import ScalingOptions
from controlplane.store import Store
from controlplane.telemetry import Metrics
from controlplane.webhooks import Poster, WebhookOptions


@dataclass(frozen=True, slots=True)
class Options:
    """Limits and intervals.

    Attributes:
        starts_in_flight: the most starts at once, over all replicas.
        max_sandboxes: the most sandboxes of all owners together; 0 = no limit.
        probe_every_ms: how often the health of every running sandbox is probed; 0 = never.
        images: how images' names are resolved.
        idle_timeout_ms: the idle timeout of sandboxes whose spec has none; 0 = they have none.
        commit_bytes: the most bytes of committed images for an owner whose quota does not say it; 0 = no limit.
        node_images: the most that sandboxes' images may take on each node.
        pending_pods: how many starts of each replica may have pods that fit on no node, for which nodes are added;
            0: no node can be added.
        overcommit: what is set aside for sandboxes whose create gives limits alone.
        scaling: how nodes are added and removed; None: the control plane does not.
        egress: how sandboxes reach the network; None: they reach nothing, and no policy is taken.
        networks: direct ones, past egress, that sandboxes may have.
        datasets: data sets of the settings, by name.
        audit: where audit entries go.
        webhooks: where events are posted.
    """

    starts_in_flight: int = 4
    max_sandboxes: int = 0
    probe_every_ms: int = 0
    idle_timeout_ms: int = 0
    commit_bytes: int = 0
    node_images: StoreLimit = field(default_factory=StoreLimit)
    images: ImageOptions = field(default_factory=ImageOptions)
    pending_pods: int = 0
    overcommit: Overcommit = field(default_factory=Overcommit)
    scaling: ScalingOptions | None = None
    egress: EgressOptions | None = None
    networks: DirectNetworks = NO_NETWORKS
    datasets: Mapping[str, DatasetSpec] = field(default_factory=dict)
    audit: AuditOptions = field(default_factory=AuditOptions)
    webhooks: WebhookOptions = field(default_factory=WebhookOptions)


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The dependencies of the lifecycle service.

    Attributes:
        gateways: reach a sandbox through a gateway, as clients do, instead of at its sidecar's address.
        documents: where pools and quotas are declared.
        registry: asks image registries; None where ``Options.images`` says that none is asked.
        mirror: copies images into the private registry; None where ``Options.images`` names none.
        keyrings: the credentials of owners for registries; None: no owner has any of its own.
        collector: sees the private registry's files; None: somebody else looks after it, or there is none.
        recorded: the recorded copies of a registry that somebody else looks after; None: nobody removes them there.
        node_pools: adds and removes nodes; None where ``Options.scaling`` is.
        poster: sends webhooks; None where ``Options.webhooks`` names none.
    """

    store: Store
    cluster: Cluster
    sidecars: Sidecars
    gateways: Gateways
    key: SigningKey
    clock: Clock
    metrics: Metrics
    documents: Documents
    registry: Registry | None = None
    mirror: Mirror | None = None
    keyrings: Keyrings | None = None
    collector: Collector | None = None
    recorded: RecordedList | None = None
    node_pools: NodePools | None = None
    poster: Poster | None = None
