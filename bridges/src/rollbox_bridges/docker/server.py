"""The server: which call a request is, and what its errors are called."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from rollbox import SandboxError
from rollbox.printable import what_broke
from rollbox_bridges.docker import archives, build_calls, container_calls, engine, exec_calls, image_calls, logs
from rollbox_bridges.docker.described import API_VERSION, LEAST_API_VERSION
from rollbox_bridges.docker.engine import Engine
from rollbox_bridges.docker.settings import Settings
from rollbox_bridges.docker.words import Refusal, as_refusal, not_implemented

_log = logging.getLogger("rollbox_bridges")
_SHUTDOWN_S: Final = 1.0
_VERSION: Final = re.compile(r"/v(\d{1,3})\.(\d{1,3})(/.*)")
_Call = Callable[..., Awaitable[web.StreamResponse]]
_ANY: Final = "([^/]+)"
_NAME: Final = "(.+)"
_CALLS: Final[tuple[tuple[str, str, _Call], ...]] = (
    ("GET|HEAD", "/_ping", engine.ping),
    ("GET", "/version", engine.version),
    ("GET", "/info", engine.info),
    ("POST", "/containers/create", container_calls.create),
    ("GET", "/containers/json", container_calls.list_),
    ("POST", "/containers/prune", container_calls.prune),
    ("GET", f"/containers/{_ANY}/json", container_calls.inspect),
    ("POST", f"/containers/{_ANY}/start", container_calls.start),
    ("POST", f"/containers/{_ANY}/stop", container_calls.stop),
    ("POST", f"/containers/{_ANY}/restart", container_calls.restart),
    ("POST", f"/containers/{_ANY}/kill", container_calls.kill),
    ("POST", f"/containers/{_ANY}/wait", container_calls.wait),
    ("POST", f"/containers/{_ANY}/resize", container_calls.resize),
    ("POST", f"/containers/{_ANY}/rename", container_calls.rename),
    ("DELETE", f"/containers/{_ANY}", container_calls.remove),
    ("POST", f"/containers/{_ANY}/exec", exec_calls.create),
    ("POST", f"/exec/{_ANY}/start", exec_calls.start),
    ("GET", f"/exec/{_ANY}/json", exec_calls.inspect),
    ("POST", f"/exec/{_ANY}/resize", exec_calls.resize),
    ("GET", "/images/json", image_calls.list_),
    ("POST", "/images/create", image_calls.pull),
    ("GET", f"/images/{_NAME}/json", image_calls.inspect),
    ("POST", f"/images/{_NAME}/tag", image_calls.tag),
    ("DELETE", f"/images/{_NAME}", image_calls.remove),
    ("POST", "/commit", image_calls.commit),
    ("POST", "/build", build_calls.build),
    ("GET", "/networks", engine.networks),
    ("GET", f"/networks/{_ANY}", engine.network),
    ("GET", "/volumes", engine.volumes),
)
# Those that take the container itself.
_OF_CONTAINERS: Final[tuple[tuple[str, str, _Call], ...]] = (
    ("GET", f"/containers/{_ANY}/logs", logs.logs),
    ("POST", f"/containers/{_ANY}/attach", logs.attach),
    ("HEAD", f"/containers/{_ANY}/archive", archives.stat),
    ("GET", f"/containers/{_ANY}/archive", archives.get),
    ("PUT", f"/containers/{_ANY}/archive", archives.put),
)
# What Docker has and there is not here, by the beginning of its path, and what to do instead.
_MISSING: Final = (
    (f"/containers/{_ANY}/(pause|unpause)", "pausing a container", "It runs until it is stopped."),
    (f"/containers/{_ANY}/(stats|top|changes|export|update)", "this call", "`rollbox top` tells what sandboxes use."),
    ("/build/.*", "the cache of builds", "Steps that were built go with the images that they are part of."),
    ("/session|/grpc", "BuildKit", "`DOCKER_BUILDKIT=0 docker build` builds without it."),
    ("/auth", "signing in at a registry", "Its credentials are the installation's."),
    ("/events.*", "the stream of events", "Wait for containers, or list them."),
    ("/networks.*", "changing networks", "A container reaches what its network policy allows, or nothing (none)."),
    ("/volumes.*", "a volume", "Copy files, or mount data sets by the SDK."),
)


def _compiled(calls: tuple[tuple[str, str, _Call], ...]) -> list[tuple[frozenset[str], re.Pattern[str], _Call]]:
    return [(frozenset(methods.split("|")), re.compile(path), call) for methods, path, call in calls]


class Bridge:
    """Serves the Docker Engine API.

    Args:
        settings: of it.

    Raises:
        SandboxError: there is no gateway or no key.
    """

    def __init__(self, settings: Settings) -> None:
        self._engine = Engine(settings)
        self._calls = _compiled(_CALLS)
        self._of_containers = _compiled(_OF_CONTAINERS)

    def runner(self) -> web.ServerRunner:
        """What serves it once it is set up."""
        # A caller that goes away ends its call; archives are read as they are.
        server = web.Server(self._handle, handler_cancellation=True, access_log=None, auto_decompress=False)
        return web.ServerRunner(server, shutdown_timeout=_SHUTDOWN_S)

    async def aclose(self) -> None:
        """End all containers."""
        await self._engine.aclose()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            response = await self._serve(request)
        except Exception as error:
            if request.writer.output_size == 0:
                response = _told(error)
            else:
                # Half an answer is cut, so that no client takes it for a whole one.
                _log.info("the answer to %s %s was cut: %r", request.method, request.path[:200], error)
                if request.transport is not None:
                    request.transport.abort()
                return web.Response(status=500)
        if not response.prepared:
            response.headers["Api-Version"] = API_VERSION
            response.headers["Server"] = "rollbox"
        return response

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        path = _unversioned(request.path)
        for methods, pattern, call in self._calls:
            if request.method in methods and (found := pattern.fullmatch(path)):
                return await call(request, self._engine, *found.groups())
        for methods, pattern, call in self._of_containers:
            if request.method in methods and (found := pattern.fullmatch(path)):
                return await call(request, self._engine.containers.get(found[1]))
        for missing, what, instead in _MISSING:
            if re.fullmatch(missing, path):
                raise not_implemented(f"{what} ({request.method} {path[:200]})", instead)
        raise Refusal(404, f"page not found: there is no {request.method} {path[:200]} here")


def _unversioned(path: str) -> str:
    """A path without its version.

    Raises:
        Refusal: it is none that is spoken here.
    """
    found = _VERSION.fullmatch(path)
    if found is None:
        return path
    asked = (int(found[1]), int(found[2]))
    if asked > _numbers(API_VERSION):
        raise Refusal(
            400, f"client version {found[1]}.{found[2]} is too new. Maximum supported API version is {API_VERSION}"
        )
    if asked < _numbers(LEAST_API_VERSION):
        raise Refusal(
            400,
            f"client version {found[1]}.{found[2]} is too old. Minimum supported API version is {LEAST_API_VERSION}",
        )
    return found[3]


def _numbers(version: str) -> tuple[int, int]:
    major, _, minor = version.partition(".")
    return int(major), int(minor)


def _told(error: Exception) -> web.Response:
    """The answer that tells an error."""
    if isinstance(error, SandboxError):
        error = as_refusal(error)
    if not isinstance(error, Refusal):
        _log.error("a request failed", exc_info=error)
        error = Refusal(500, f"the bridge has failed: {what_broke(error)}")
    # Docker's own client reads the message of this very type alone, without a charset.
    body = json.dumps(error.body()).encode()
    return web.Response(body=body, status=error.status, headers={"Content-Type": "application/json"})
