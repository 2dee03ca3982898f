"""The whole control plane from its settings: parts, service, listeners; opened in order, closed in reverse."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from controlplane.api.app import create_app
from controlplane.api.auth import ApiKeys
from controlplane.api.context import Context
from controlplane.api.listeners import serving_http, serving_routes
from controlplane.api.ready import create_ready_app
from controlplane.clock import SystemClock
from controlplane.cluster.engine import EngineCluster
from controlplane.cluster.sidecar import GrpcSidecars
from controlplane.lifecycle import Options, Parts, RouteBoard, Sandboxes, SigningKey
from controlplane.settings import PREFIX, SettingError, Settings
from controlplane.store import Journal, JournaledStore
from controlplane.telemetry import Metrics

# In the state directory: why sandboxes ended, for 24 h, also across a restart.
JOURNAL: Final = "ends.jsonl"
# Sidecars push once each; more connections than this are not theirs and must not use up the process's files.
MAX_PUSHES: Final = 2048


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[Sandboxes]:
    """A control plane on an engine that answers on its three addresses while the block runs.

    Raises:
        SettingError: a file that a setting names does not hold what it should.
        Problem: the engine does not answer.
    """
    clock = SystemClock()
    key = _signing_key(settings, clock)
    (settings.state_dir / "ready").mkdir(mode=0o711, parents=True, exist_ok=True)
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(
            EngineCluster.open(
                engine_url=settings.engine_url,
                state_dir=settings.state_dir,
                ready_socket=settings.ready.path.name if settings.ready.path else "",
                sidecar_binary=settings.sidecar_binary,
                target_binary=settings.target_binary,
            )
        )
        parts = Parts(
            store=_store(settings, clock),
            cluster=cluster,
            sidecars=GrpcSidecars(),
            key=key,
            clock=clock,
            metrics=Metrics(),
            board=RouteBoard(clock),
        )
        options = Options(settings.starts_in_flight, settings.max_sandboxes)
        # The service outlives its listeners: a push or a call that is under way finds it.
        service = await stack.enter_async_context(Sandboxes.running(parts, options))
        limits = {"max_sandboxes": settings.max_sandboxes, "starts_in_flight": settings.starts_in_flight}
        app = create_app(Context(service, parts, ApiKeys(settings.api_keys), limits))
        # The socket is open to all, its directory is not: only sidecars have it mounted, and each brings a credential.
        door = serving_http(create_ready_app(service), settings.ready, mode=0o666, most_at_once=MAX_PUSHES)
        await stack.enter_async_context(door)
        await stack.enter_async_context(serving_routes(parts.board, settings.routes))
        await stack.enter_async_context(serving_http(app, settings.api))
        yield service


def _store(settings: Settings, clock: SystemClock) -> JournaledStore:
    path = settings.state_dir / JOURNAL
    try:
        return JournaledStore(clock, Journal(path))
    except OSError as error:
        raise SettingError(f"{PREFIX}STATE_DIR", str(settings.state_dir), f"must be writable: {error}") from error


def _signing_key(settings: Settings, clock: SystemClock) -> SigningKey:
    try:
        return SigningKey.load(settings.signing_key_file.read_bytes(), clock)
    except (OSError, ValueError) as error:
        raise SettingError(f"{PREFIX}SIGNING_KEY_FILE", str(settings.signing_key_file), str(error)) from error
