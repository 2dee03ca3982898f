"""The server: which part a request is for, and what its errors are called there."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from typing import Final

import aiohttp
from aiohttp import web

from rollbox import SandboxError
from rollbox.printable import what_broke
from rollbox_bridges.answering import SHUTDOWN_S, answered, runner_of
from rollbox_bridges.bodies import BodyError
from rollbox_bridges.connect import serving
from rollbox_bridges.connect.codes import ConnectError
from rollbox_bridges.prime import commands, execs, files
from rollbox_bridges.prime.control import USER, Control
from rollbox_bridges.prime.messages import SERVICE
from rollbox_bridges.prime.sessions import Session
from rollbox_bridges.prime.settings import Settings
from rollbox_bridges.prime.tokens import Tokens
from rollbox_bridges.prime.words import Gone, Refusal, as_connect, as_refusal, gone
from rollbox_bridges.sessions import Owners

_log = logging.getLogger("rollbox_bridges")
_BEARER: Final = "Bearer "
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_Serve = Callable[[web.Request, Session], Awaitable[web.StreamResponse]]
_FILES: Final[dict[tuple[str, str], _Serve]] = {
    ("POST", "upload"): files.upload,
    ("GET", "download"): files.download,
    ("GET", "read-file"): files.read,
    ("POST", "exec"): execs.run,
}


class Bridge:
    """Serves Prime's protocol.

    Args:
        settings: of it.
    """

    def __init__(self, settings: Settings) -> None:
        self._owners: Owners[Session] = Owners(settings.url, Session)
        self._tokens = Tokens(settings.secret)
        self._control = Control(settings, self._owners, self._tokens)

    def runner(self) -> web.AppRunner:
        """What serves it once it is set up, and closes everything of the bridge at its cleanup."""
        return runner_of(self.handle, self._cleanup)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Serve one request, whatever becomes of it."""
        parts = request.path.strip("/").split("/")
        if parts == ["health"]:
            return web.Response(status=204)
        serve = self._within(request, parts[1:]) if parts[0] == USER else self._control.serve(request)
        return await answered(request, serve, _told)

    async def _within(self, request: web.Request, parts: list[str]) -> web.StreamResponse:
        """Serve a request to a sandbox."""
        match request.method, parts:
            case "POST", [name, service, call] if service == SERVICE:
                return await self._called(request, name, call)
            case method, [name, what] if (method, what) in _FILES:
                return await self._served(request, name, _FILES[method, what])
        raise Refusal(404, f"there is no {request.method} {request.path[:200]}")

    async def _served(self, request: web.Request, name: str, serve: _Serve) -> web.StreamResponse:
        try:
            return await serve(request, await self._session(request, name))
        except SandboxError as error:
            if (end := gone(error)) is None:
                raise
            await self._owners.drop(name)
            raise end from error

    async def _called(self, request: web.Request, name: str, call: str) -> web.StreamResponse:
        """Serve a call of Connect; an error before any answer is told as the kind of call wants it."""
        found = commands.CALLS.get(call)
        if found is None:
            return serving.refusal(ConnectError("unimplemented", f"{SERVICE} has no {call[:64]!r} here"))
        serve, streams = found
        try:
            async with nullcontext() if streams else serving.within(request):
                return await serve(request, await self._session(request, name))
        except Refusal as error:
            return serving.refusal(ConnectError("unauthenticated", error.message))
        except SandboxError as error:
            if gone(error) is not None:
                await self._owners.drop(name)
            return await serving.refused(request, as_connect(error), streams=streams)
        except ConnectError as error:
            return await serving.refused(request, error, streams=streams)

    async def _session(self, request: web.Request, name: str) -> Session:
        """The session that a request may use.

        Raises:
            Refusal: it has no credential, or a wrong one.
            SandboxError: the sandbox is gone.
        """
        given = request.headers.get("Authorization", "")
        token = given.removeprefix(_BEARER)
        good = _ID.fullmatch(name) is not None and given.startswith(_BEARER)
        key = self._tokens.opened(name, token, time.time()) if good else None
        if key is None:
            what = f"there is no credential for sandbox {name[:64]!r} in the request, or a wrong one, or an old one"
            raise Refusal(401, what, "unauthenticated")
        return await self._owners.session(name, key)

    async def _cleanup(self, _: web.Application) -> None:
        await self._control.aclose()
        with suppress(TimeoutError):
            async with asyncio.timeout(SHUTDOWN_S):
                await asyncio.gather(*(session.kill_unowned() for session in self._owners.all()))
        await self._owners.aclose()


def _told(error: Exception) -> web.Response:
    """The answer that tells an error."""
    if isinstance(error, Gone):
        return web.json_response(error.body(), status=409)
    if isinstance(error, SandboxError):
        error = as_refusal(error)
    if isinstance(error, BodyError):
        error = Refusal(error.status, error.message, "invalid_argument")
    if isinstance(error, aiohttp.ClientError):
        error = Refusal(502, f"the platform did not answer: {what_broke(error)}", "stream_interrupted")
    if not isinstance(error, Refusal):
        _log.error("a request failed", exc_info=error)
        error = Refusal(500, f"the bridge has failed: {what_broke(error)}", "internal")
    return web.json_response(error.body(), status=error.status)
