"""``rollbox up``: starts all parts in order, and stops them in reverse order."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import structlog

from controlplane.api.serve import serving
from controlplane.api.stop import stop_signal
from controlplane.clock import SystemClock
from controlplane.egress import EgressOptions
from controlplane.embedded import state
from controlplane.embedded.announce import announce
from controlplane.embedded.binaries import required
from controlplane.embedded.egress import PORT, Egress
from controlplane.embedded.engines import Engine, engine, is_root
from controlplane.embedded.gateway import DRAIN_MS, Gateway
from controlplane.embedded.options import UpOptions
from controlplane.embedded.up_error import UpError
from controlplane.lifecycle import Sandboxes, SigningKey
from controlplane.settings import EngineSettings, Listen, Settings, rules, socket_path

OWNER = "local"
# Where the package cache is, and the indexes that it has.
CACHE_URL = "ROLLBOX_EGRESS_PACKAGES_URL"
CACHED = "ROLLBOX_CONTROLPLANE_EGRESS_PACKAGES"
ROOTLESS = (
    "rollbox up must be root: sandboxes' sockets belong to their containers' root, and engines without root set no "
    "memory and process limits on many machines"
)


async def up(options: UpOptions) -> None:
    """Runs until SIGINT or SIGTERM, then deletes all sandboxes unless ``--keep`` is set.

    Raises:
        UpError: it cannot run on this machine; the message says what to do.
    """
    if not is_root():
        raise UpError(ROOTLESS, "Use sudo.")
    log = structlog.get_logger("up")
    with state.opened(options.state_dir) as directory, stop_signal() as stop:
        api_key = directory.keys()
        try:
            async with engine(options.engine, options.state_dir, os.environ) as found:
                check_datasets(options, socket_path(found.url))
                settings = _settings(options, directory, found, api_key)
                gateway = Gateway(options.listen, _gateway_settings(options, settings, directory), options.tls_listen)
                gateway.check_free()
                egress = _egress(settings, directory) if options.egress else None
                async with serving(settings) as service, _running(gateway), _running(egress):
                    directory.write_client_settings(gateway.url, api_key)
                    announce(options, gateway.url, api_key, service.description, found)
                    await stop.wait()
                    log.info("stopping", sandboxes="left running" if options.keep else "being deleted")
                    await _leave(service, keep=options.keep)
        finally:
            directory.sweep()


@asynccontextmanager
async def _running(part: Gateway | Egress | None) -> AsyncIterator[None]:
    if part is None:
        yield
        return
    async with asyncio.TaskGroup() as group:
        running = group.create_task(part.run(), name=type(part).__name__)
        try:
            await part.ready()
            yield
        finally:
            running.cancel()


async def _leave(service: Sandboxes, *, keep: bool) -> None:
    left = await service.drain(delete=not keep)
    for sandbox_id, problem in left.failed.items():
        structlog.get_logger("up").error("sandbox not deleted", sandbox_id=sandbox_id, detail=problem.detail)


def _settings(options: UpOptions, directory: state.StateDir, found: Engine, api_key: str) -> Settings:
    path = directory.path
    return Settings(
        backend=EngineSettings(
            state_dir=path,
            engine_url=found.url,
            sidecar_binary=required("sidecar").resolve(),
            target_binary=required("target").resolve(),
            datasets={name: one.model_dump() for name, one in options.datasets.items()},
            gpu_devices=options.gpu_devices,
        ),
        api=Listen(path=path / "api.sock"),
        ready=Listen(path=path / "ready" / "ready.sock"),
        routes=Listen(path=path / "routes.sock"),
        api_keys={api_key: OWNER},
        operators=frozenset({OWNER}),
        signing_key_file=directory.signing_key,
        starts_in_flight=options.starts_in_flight,
        max_sandboxes=options.max_sandboxes,
        webhooks=options.webhooks,
        ports_domain=options.ports_domain,
        egress=EgressOptions(PORT, cached=cached_indexes(os.environ)) if options.egress else None,
        feed_key=directory.feed_key.read_text() if options.egress else "",
    )


def check_datasets(options: UpOptions, engine: Path) -> None:
    """Refuses data sets that would give sandboxes what rules them: a socket is of use where it is read only, too.

    Args:
        options: of ``rollbox up``.
        engine: the engine's socket.

    Raises:
        UpError: a folder is the state directory, in it or around it, or around the engine's socket.
    """
    for name, dataset in options.datasets.items():
        folder = Path(dataset.folder)
        for what, place in (("the state directory", options.state_dir), ("the engine's socket", engine)):
            if folder in (real := place.resolve()).parents or options.state_dir.resolve() in (folder, *folder.parents):
                raise UpError(f"--dataset {name}={folder} would show sandboxes {what}, {real}", "Name another folder.")


def cached_indexes(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The package indexes of the package cache that the environment names; empty: it names none.

    Raises:
        UpError: it has one of both alone, or no names of hosts.
    """
    told = {name: environ.get(name, "") for name in (CACHE_URL, CACHED)}
    if missing := [name for name, value in told.items() if not value]:
        if len(missing) == 1:
            raise UpError(f"the package cache takes {CACHE_URL} and {CACHED}; {missing[0]} is not set", "Set it too.")
        return ()
    try:
        return rules.hosts(told[CACHED])
    except ValueError as error:
        raise UpError(f"{CACHED}={told[CACHED]!r}: {error}", "It has indexes: pypi.org,registry.npmjs.org") from error


def _egress(settings: Settings, directory: state.StateDir) -> Egress:
    return Egress(settings.routes, directory.feed_key, directory.path / "egress.sock")


def _gateway_settings(options: UpOptions, settings: Settings, directory: state.StateDir) -> dict[str, str]:
    key = SigningKey.load(settings.signing_key_file.read_bytes(), SystemClock())
    return {
        "LISTEN": str(options.listen),
        "TOKEN_PUBLIC_KEY": key.public_text,
        "SETTINGS_KEY_FILE": str(directory.settings_key),
        "ROUTES_URL": str(settings.routes),
        "CONTROLPLANE_URL": str(settings.api),
        "DRAIN_MS": str(DRAIN_MS),
        "PORTS_DOMAIN": options.ports_domain,
        **({} if options.tls_listen is None else _tls(options)),
    }


def _tls(options: UpOptions) -> dict[str, str]:
    return {
        "TLS_LISTEN": str(options.tls_listen),
        "TLS_CERTIFICATE_FILE": str(options.tls_certificate),
        "TLS_KEY_FILE": str(options.tls_key),
    }
