"""Opens the backends of a control plane as its settings say: cluster, store, gateways, declared pools and quotas."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from controlplane.clock import Clock
from controlplane.cluster import Cluster, Gateways
from controlplane.cluster.by_gateway import HttpGateways, NoGateways
from controlplane.cluster.documents import KINDS, Documents
from controlplane.cluster.engine import EngineCluster
from controlplane.cluster.engine.documents import FILE, FileDocuments
from controlplane.cluster.node_pools import NodePools
from controlplane.images import Keyring, Keyrings, RecordedList, Reference
from controlplane.registry import CollectorClient, MirrorClient, Registries
from controlplane.scaling import NodePool
from controlplane.settings import (
    PREFIX,
    EngineSettings,
    KubernetesSettings,
    RegistrySettings,
    SettingError,
    Settings,
)
from controlplane.store import Journal, JournaledStore, MemoryStore, RedisStore, Store
from controlplane.telemetry import Metrics

# File in the state directory that keeps the tombstones of ended sandboxes for 24 h, across restarts.
JOURNAL: Final = "ends.jsonl"
# Redis and control plane are started at the same time, so the control plane waits for Redis; after this time it fails
# with an error that names the cause, and is restarted.
REDIS_WITHIN_S: Final = 60.0


@asynccontextmanager
async def opened_cluster(settings: Settings, metrics: Metrics) -> AsyncIterator[Cluster]:
    """The cluster of the configured backend.

    Raises:
        Problem: it does not answer, or cannot run sandboxes.
    """
    if isinstance(settings.backend, KubernetesSettings):
        async with _kubernetes(settings.backend, settings.images.registry, metrics, _egress(settings)) as cluster:
            yield cluster
        return
    engine = settings.backend
    (engine.state_dir / "ready").mkdir(mode=0o711, parents=True, exist_ok=True)
    async with EngineCluster.open(
        engine_url=engine.engine_url,
        state_dir=engine.state_dir,
        ready_socket=settings.ready.path.name if settings.ready.path else "",
        sidecar_binary=engine.sidecar_binary,
        target_binary=engine.target_binary,
        gpu_devices=engine.gpu_devices,
        egress=_egress(settings),
        folders=[str(one["folder"]) for one in engine.datasets.values()],
    ) as cluster:
        yield cluster


def _egress(settings: Settings) -> tuple[tuple[str, str], ...]:
    return () if settings.egress is None else settings.egress.of_sidecar


@asynccontextmanager
async def _kubernetes(
    settings: KubernetesSettings,
    registry: RegistrySettings | None,
    metrics: Metrics,
    egress: tuple[tuple[str, str], ...],
) -> AsyncIterator[Cluster]:
    # Imported here, so that an installation on an engine needs no Kubernetes client.
    from controlplane.cluster.kubernetes import KubernetesCluster  # noqa: PLC0415

    opening = KubernetesCluster.open(
        settings, registry, egress=egress, forged=metrics.forged_address, disagreed=metrics.placed_without_room
    )
    async with opening as cluster:
        yield cluster


@asynccontextmanager
async def opened_node_pools(settings: Settings, cluster: Cluster) -> AsyncIterator[NodePools | None]:
    """What adds and removes nodes; None: nothing does.

    Raises:
        SettingError: a file that a setting names cannot be read.
        Problem: internal, if there is no usable configuration for the cluster of Cluster API.
    """
    backend = settings.backend
    if not isinstance(backend, KubernetesSettings) or backend.scaling is None:
        yield None
        return
    from controlplane.cluster.kubernetes import (  # noqa: PLC0415
        KubernetesClient,
        KubernetesCluster,
        KubernetesNodePools,
    )

    def held(pool: NodePool) -> int:
        free = cluster.room.free() if cluster.room is not None else ()
        wanted = pool.labels.items()
        return sum(one.sandboxes > 0 and wanted <= one.node.labels.items() for one in free)

    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(KubernetesClient.connect(backend.kubeconfig))
        ready = cluster.node_ready if isinstance(cluster, KubernetesCluster) else _never_ready
        opening = KubernetesNodePools.open(backend.scaling, client, backend.installation, held=held, ready=ready)
        try:
            pools = await stack.enter_async_context(opening)
        except (OSError, ValueError) as error:
            raise SettingError(f"{PREFIX}SCALING_PROVIDER_TLS_FOLDER", None, str(error)) from error
        yield pools


def _never_ready(node: str) -> bool:
    del node
    return False


@asynccontextmanager
async def opened_gateways(settings: Settings) -> AsyncIterator[Gateways]:
    """The gateways through which sandboxes that do not respond are probed as well."""
    if settings.gateway_url is None:
        yield NoGateways()
        return
    async with HttpGateways.open(settings.gateway_url) as gateways:
        yield gateways


@asynccontextmanager
async def opened_documents(settings: Settings) -> AsyncIterator[Documents]:
    """The declared pools and quotas: custom resources of the cluster, or a file in the state directory.

    Raises:
        Problem: the file is damaged, or the API server does not answer.
    """
    backend = settings.backend
    if isinstance(backend, EngineSettings):
        yield FileDocuments(backend.state_dir / FILE)
        return
    from controlplane.cluster.kubernetes import KubernetesClient, KubernetesDocuments  # noqa: PLC0415

    # Where egress is not installed nobody reads its presets, and the cluster may have no definition of them.
    kinds = KINDS if settings.egress is not None else [kind for kind in KINDS if kind != "egress"]
    async with (
        KubernetesClient.connect(backend.kubeconfig) as client,
        KubernetesDocuments.open(client, backend.namespace, adopt=backend.agent_sandbox, kinds=kinds) as documents,
    ):
        yield documents


@dataclass(frozen=True, slots=True)
class ImageClients:
    """What is asked about images; None: nobody is to be asked.

    Attributes:
        registry: asks image registries.
        mirror: copies images into the private registry.
        keyrings: who has which credentials.
        collector: sees the private registry's files.
        recorded: the recorded copies of a private registry that somebody else looks after.
    """

    registry: Registries | None = None
    mirror: MirrorClient | None = None
    keyrings: Keyrings | None = None
    collector: CollectorClient | None = None
    recorded: RecordedList | None = None


@asynccontextmanager
async def opened_images(settings: Settings, clock: Clock) -> AsyncIterator[ImageClients]:
    """The clients of image registries, with the pull secrets of the sandboxes' namespace, and of the mirror.

    Raises:
        SettingError: a file of the mirror's TLS folder cannot be read.
    """
    images = settings.images
    if images.digests == "never":
        yield ImageClients()
        return
    async with (
        _keyrings(settings, clock) as keyrings,
        Registries.open(keyrings.of, clock, images.plain_registries) as registry,
        AsyncExitStack() as stack,
    ):
        mirror = collector = None
        if images.registry is not None:
            opening = MirrorClient.open(images.registry.mirror, images.registry.tls_folder, images.registry.mirror_name)
            try:
                mirror = await stack.enter_async_context(opening)
                if (store := images.registry.store) is not None:
                    looking = CollectorClient.open(store.collector, images.registry.tls_folder, store.name)
                    collector = await stack.enter_async_context(looking)
            except (OSError, ValueError) as error:
                folder = str(images.registry.tls_folder)
                raise SettingError(f"{PREFIX}MIRROR_TLS_FOLDER", folder, str(error)) from error
        recorded = None if images.registry is None else _recorded(images.registry)
        yield ImageClients(registry, mirror, keyrings, collector, recorded)


@asynccontextmanager
async def _keyrings(settings: Settings, clock: Clock) -> AsyncIterator[Keyrings]:
    backend, owned = settings.backend, settings.images.owner_secrets
    if isinstance(backend, EngineSettings) or not (backend.image_pull_secrets or owned):
        yield _NoCredentials()
        return
    from controlplane.cluster.kubernetes import KubernetesClient, PullSecrets  # noqa: PLC0415

    async with KubernetesClient.connect(backend.kubeconfig) as client:
        secrets = PullSecrets(client, backend.namespace, backend.image_pull_secrets, owned, clock)
        try:
            yield secrets
        finally:
            await secrets.close()


def _recorded(settings: RegistrySettings) -> RecordedList | None:
    if settings.store is not None or settings.push is None:
        return None
    from controlplane.cluster.kubernetes import recorded_copies  # noqa: PLC0415

    return recorded_copies(settings.push)


class _NoCredentials:
    """See ``Keyrings``."""

    async def of(self, owner: str) -> Keyring:
        del owner
        return Keyring()

    async def guards(self, reference: Reference) -> bool:
        del reference
        return False


@asynccontextmanager
async def opened_store(settings: Settings, clock: Clock, metrics: Metrics) -> AsyncIterator[Store]:
    """The store: Redis, shared by all replicas, where one is configured; else one of this process alone.

    Raises:
        SettingError: the state directory is not writable.
        Problem: Redis does not answer within a minute.
    """
    backend = settings.backend
    if settings.redis_url is not None:
        installation = backend.installation if isinstance(backend, KubernetesSettings) else "engine"
        store = RedisStore.open(
            settings.redis_url,
            installation=installation,
            clock=clock,
            failed=metrics.store_failed,
            took=metrics.store_called,
            unreadable=metrics.unreadable,
            within_s=REDIS_WITHIN_S,
        )
        async with store as shared:
            yield shared
    elif isinstance(backend, EngineSettings):
        yield _journaled(backend, clock)
    else:
        yield MemoryStore(clock)


def _journaled(engine: EngineSettings, clock: Clock) -> JournaledStore:
    try:
        engine.state_dir.mkdir(parents=True, exist_ok=True)
        return JournaledStore(clock, Journal(engine.state_dir / JOURNAL))
    except OSError as error:
        raise SettingError(f"{PREFIX}STATE_DIR", str(engine.state_dir), f"must be writable: {error}") from error
