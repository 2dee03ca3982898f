"""Assembles a control plane from its settings: backends, service, listeners; closed in reverse order."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from controlplane.access import AuditOptions
from controlplane.api.app import create_app
from controlplane.api.auth import ApiKeys
from controlplane.api.context import Context
from controlplane.api.feed_key import FeedDoor
from controlplane.api.listeners import serving_http, serving_routes
from controlplane.api.opened import (
    opened_cluster,
    opened_documents,
    opened_gateways,
    opened_images,
    opened_node_pools,
    opened_store,
)
from controlplane.api.ready import create_ready_app
from controlplane.clock import Clock, SystemClock
from controlplane.cluster.sidecar import GrpcSidecars
from controlplane.console import Pages
from controlplane.egress import NO_NETWORKS
from controlplane.images import ImageOptions, PrivateRegistry, StoreLimit
from controlplane.lifecycle import Dependencies, Options, Sandboxes, SigningKey
from controlplane.lifecycle.audit import AuditFile
from controlplane.lifecycle.record.events import KINDS
from controlplane.model import Overcommit
from controlplane.model.dataset import DatasetSpec
from controlplane.scaling import ScalingOptions
from controlplane.settings import PREFIX, EngineSettings, ImageSettings, KubernetesSettings, SettingError, Settings
from controlplane.telemetry import Metrics
from controlplane.webhook_client import WebhookClient
from controlplane.webhooks import WebhookOptions

# Most concurrent connections to the readiness endpoint. Each sidecar pushes once, so more connections than this are not
# legitimate, and they must not exhaust the process's file descriptors.
MAX_PUSHES: Final = 2048
# In the state folder of an engine.
AUDIT_FILE: Final = "audit.jsonl"


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[Sandboxes]:
    """Runs a control plane on its three addresses (API, readiness pushes, route feed) while the block runs.

    Raises:
        SettingError: a file that a setting names is missing or has invalid content.
        Problem: the cluster or the store does not answer.
    """
    clock, metrics = SystemClock(), Metrics()
    key, webhooks = _signing_key(settings, clock), _webhooks(settings)
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(opened_cluster(settings, metrics))
        store = await stack.enter_async_context(opened_store(settings, clock, metrics))
        gateways = await stack.enter_async_context(opened_gateways(settings))
        documents = await stack.enter_async_context(opened_documents(settings))
        images = await stack.enter_async_context(opened_images(settings, clock))
        node_pools = await stack.enter_async_context(opened_node_pools(settings, cluster))
        poster = await stack.enter_async_context(WebhookClient.open(webhooks.endpoints))
        deps = Dependencies(
            store=store,
            cluster=cluster,
            sidecars=GrpcSidecars(),
            gateways=gateways,
            key=key,
            clock=clock,
            metrics=metrics,
            documents=documents,
            registry=images.registry,
            mirror=images.mirror,
            keyrings=images.keyrings,
            collector=images.collector,
            recorded=images.recorded,
            node_pools=node_pools,
            poster=poster,
        )
        options = Options(
            settings.starts_in_flight,
            settings.max_sandboxes,
            settings.probe_every_ms,
            settings.idle_timeout_ms,
            images=_image_options(settings.images),
            commit_bytes=settings.images.commit_bytes,
            node_images=_node_images(settings),
            pending_pods=getattr(settings.backend, "pending_pods", 0),
            overcommit=Overcommit(settings.overcommit_cpu, settings.overcommit_memory),
            scaling=_scaling(settings),
            egress=settings.egress,
            networks=getattr(settings.backend, "networks", NO_NETWORKS),
            datasets=_datasets(settings),
            audit=_audit(settings),
            webhooks=webhooks,
        )
        # Opened before the listeners, so closed after them: pushes and calls in progress still need the service.
        service = await stack.enter_async_context(Sandboxes.running(deps, options))
        limits = {"max_sandboxes": settings.max_sandboxes, "starts_in_flight": settings.starts_in_flight}
        context = Context(
            service,
            deps,
            ApiKeys(settings.api_keys, settings.operators, service.keys, deps.key, clock),
            limits,
            settings.ports_domain,
            settings.operators,
            Pages() if settings.console else None,
        )
        app = create_app(context)
        # A Unix socket is open to every user (0666), but its directory is not: only sidecars have it mounted, and each
        # push carries a credential.
        pushes = serving_http(create_ready_app(service), settings.ready, mode=0o666, most_at_once=MAX_PUSHES)
        await stack.enter_async_context(pushes)
        door = FeedDoor(settings.feed_key, metrics)
        await stack.enter_async_context(
            serving_routes(
                service.board,
                service.activity,
                settings.routes,
                service.egress_feed,
                door,
                cpu_us=service.console_views.cpu_us,
            )
        )
        await stack.enter_async_context(serving_http(app, settings.api))
        # Closed first: a listener waits for its calls, and streams of events would not end.
        stack.callback(service.events.close)
        yield service


def _node_images(settings: Settings) -> StoreLimit:
    backend = settings.backend
    agents = backend.node_agents if isinstance(backend, KubernetesSettings) else None
    return StoreLimit() if agents is None else agents.images


def _audit(settings: Settings) -> AuditOptions:
    backend = settings.backend
    file = backend.state_dir / AUDIT_FILE if isinstance(backend, EngineSettings) else None
    options = AuditOptions(file, stdout=settings.audit_stdout, kept=settings.audit_kept)
    if file is not None:
        try:
            AuditFile(file, options.file_bytes).close()
        except OSError as error:
            raise SettingError(f"{PREFIX}STATE_DIR", str(file), f"audit entries are to be in it: {error}") from error
    return options


def _webhooks(settings: Settings) -> WebhookOptions:
    for one in settings.webhooks:
        if stranger := min(one.kinds - KINDS, default=None):
            there = f"there are {', '.join(sorted(KINDS))}"
            raise SettingError(f"{PREFIX}WEBHOOKS", "(hidden)", f"{one.name}: types has {stranger!r}; {there}")
    backend = settings.backend
    return WebhookOptions(settings.webhooks, backend.state_dir if isinstance(backend, EngineSettings) else None)


def _datasets(settings: Settings) -> Mapping[str, DatasetSpec]:
    declared = settings.backend.datasets if isinstance(settings.backend, EngineSettings) else {}
    return {name: DatasetSpec.model_validate(one) for name, one in declared.items()}


def _scaling(settings: Settings) -> ScalingOptions | None:
    backend = settings.backend
    scaling = backend.scaling if isinstance(backend, KubernetesSettings) else None
    return None if scaling is None else scaling.options


def _image_options(images: ImageSettings) -> ImageOptions:
    if images.registry is None:
        return ImageOptions(images.digests, images.rewrites)
    store = images.registry.store
    return ImageOptions(
        images.digests,
        images.rewrites,
        PrivateRegistry(images.registry.host),
        budget=StoreLimit() if store is None else store.budget,
        recorded_bytes=images.registry.recorded_bytes,
        past_full=images.registry.past_full,
        plain=images.plain_registries,
    )


def _signing_key(settings: Settings, clock: Clock) -> SigningKey:
    try:
        return SigningKey.load(settings.signing_key_file.read_bytes(), clock)
    except (OSError, ValueError) as error:
        raise SettingError(f"{PREFIX}SIGNING_KEY_FILE", str(settings.signing_key_file), str(error)) from error
