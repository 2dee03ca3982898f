"""The server: which part a request is for, and what its errors are called there."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any, Final

import aiohttp
from aiohttp import web

from rollbox import SandboxError
from rollbox.printable import what_broke
from rollbox_bridges.answering import answered, runner_of
from rollbox_bridges.connect import serving
from rollbox_bridges.connect.codes import ConnectError
from rollbox_bridges.credentials import Credentials
from rollbox_bridges.e2b import files, filesystem, interpreters, processes
from rollbox_bridges.e2b.control import Control
from rollbox_bridges.e2b.creating import PORTS_LABEL
from rollbox_bridges.e2b.places import Place, place_of
from rollbox_bridges.e2b.ports import Ports
from rollbox_bridges.e2b.sessions import Session
from rollbox_bridges.e2b.settings import ENVD_PORT, INTERPRETER_PORT, Settings
from rollbox_bridges.e2b.words import Gone, Refusal, as_connect, as_refusal, ended, gone
from rollbox_bridges.faults import meaning
from rollbox_bridges.sessions import Owners

_log = logging.getLogger("rollbox_bridges")
_ACCESS: Final = "X-Access-Token"
_TRAFFIC: Final = "E2B-Traffic-Access-Token"
_MOST_SIGNERS: Final = 1000
_NO_SIGNER: Final = (
    "no sandbox that was used through this bridge lately has signed this address: use the sandbox again, or names of "
    "sandboxes (E2B_DOMAIN in place of E2B_SANDBOX_URL)"
)
_SERVICES: Final[Mapping[str, Mapping[str, Any]]] = {
    "process.Process": processes.CALLS,
    "filesystem.Filesystem": filesystem.CALLS,
}


class Bridge:
    """Serves E2B's protocol.

    Args:
        settings: of it.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._owners: Owners[Session] = Owners(settings.url, Session)
        self._credentials = Credentials(settings.secret)
        self._control = Control(settings, self._owners, self._credentials)
        self._ports = Ports()

    def runner(self) -> web.AppRunner:
        """What serves it once it is set up, and closes everything of the bridge at its cleanup."""
        return runner_of(self.handle, self._cleanup)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Serve one request, whatever becomes of it."""
        return await answered(request, self._served(request), _told)

    async def _served(self, request: web.Request) -> web.StreamResponse:
        place = place_of(request.headers, request.host, self._settings.domain)
        if place is None and request.path == "/files" and "signature" in request.query:
            place = self._signed_place(request)
        if place is None:
            return await self._control.serve(request)
        return await self._within(request, place)

    async def _within(self, request: web.Request, place: Place) -> web.StreamResponse:
        """Serve a request to a port of a sandbox; an ended sandbox is told in one way, whatever was asked."""
        try:
            session = await self._session(request, place)
            if place.port == ENVD_PORT:
                return await self._envd(request, session)
            if place.port == INTERPRETER_PORT:
                return await interpreters.serve(request, session)
            return await self._ports.serve(request, session, place.port)
        except SandboxError as error:
            if (end := gone(error, place.sandbox_id)) is None:
                raise
            await self._owners.drop(place.sandbox_id)
            raise end from error

    async def _envd(self, request: web.Request, session: Session) -> web.StreamResponse:
        match request.method, request.path.strip("/").split("/"):
            case "GET" | "HEAD", ["health"]:
                await _alive(session)
                return web.Response(status=204)
            case "GET", ["files"]:
                return await files.download(request, session)
            case "POST" | "PUT", ["files"]:
                return await files.upload(request, session)
            case "POST", [service, name] if name in _SERVICES.get(service, {}):
                return await _called(request, session, *_SERVICES[service][name])
            case "POST", [service, name] if service in _SERVICES:
                return serving.refusal(ConnectError("unimplemented", f"{service} has no {name[:64]!r} here"))
        raise Refusal(404, f"there is no {request.method} {request.path[:200]}")

    async def _session(self, request: web.Request, place: Place) -> Session:
        """The session that a request may use.

        Raises:
            Refusal: it has no credential, or a wrong one.
            SandboxError: the sandbox is gone.
        """
        key = self._key(request, place)
        known = self._owners.known(place.sandbox_id)
        if key is not None:
            return await self._owners.session(place.sandbox_id, key)
        open_to_all = place.port not in {ENVD_PORT, INTERPRETER_PORT}
        if known is not None and (self._open_to_all(known) if open_to_all else self._signed(request, place, known)):
            return known
        raise Refusal(401, f"there is no credential for sandbox {place.sandbox_id} in the request, or a wrong one")

    def _open_to_all(self, session: Session) -> bool:
        """Whether the ports of a sandbox need no credential: by its create, and by the settings."""
        return self._settings.public_ports and PORTS_LABEL not in session.sandbox.labels

    def _key(self, request: web.Request, place: Place) -> str | None:
        """The owner's key in the credentials of a request."""
        access, traffic = request.headers.get(_ACCESS), request.headers.get(_TRAFFIC)
        key = None if access is None else self._credentials.opened("access", place.sandbox_id, access)
        if key is None and traffic is not None and place.port != ENVD_PORT:
            return self._credentials.opened("traffic", place.sandbox_id, traffic)
        return key

    def _signed(self, request: web.Request, place: Place, session: Session) -> bool:
        """Whether the address of a file is signed with the sandbox's credential."""
        query = request.query
        if place.port != ENVD_PORT or request.path != "/files" or "signature" not in query:
            return False
        credential = self._credentials.sealed("access", place.sandbox_id, session.key)
        operation = "read" if request.method == "GET" else "write"
        return files.is_signed(query, operation, credential)

    def _signed_place(self, request: web.Request) -> Place:
        """The sandbox whose credential has signed an address that names no sandbox.

        Clients that have one address for all sandboxes (E2B_SANDBOX_URL) make such addresses.

        Cost: 5 us for each sandbox that was used through the bridge lately, at most 1,000.

        Raises:
            Refusal: it is none of these, or the time of the signature is over.
        """
        for session in self._owners.all()[: -_MOST_SIGNERS - 1 : -1]:
            place = Place(session.sandbox.id, ENVD_PORT)
            if self._signed(request, place, session):
                return place
        raise Refusal(401, _NO_SIGNER)

    async def _cleanup(self, _: web.Application) -> None:
        await self._control.aclose()
        await self._ports.aclose()
        await self._owners.aclose()


def _told(error: Exception) -> web.Response:
    """The answer that tells an error."""
    if isinstance(error, Gone):
        return web.Response(body=error.body(), status=502, content_type="application/json")
    if isinstance(error, SandboxError):
        error = as_refusal(error)
    if isinstance(error, aiohttp.ClientError):
        error = Refusal(502, f"the platform did not answer: {what_broke(error)}", "stream_interrupted")
    if not isinstance(error, Refusal):
        _log.error("a request failed", exc_info=error)
        error = Refusal(500, f"the bridge has failed: {what_broke(error)}", "internal")
    return web.json_response(error.body(), status=error.status, headers=error.headers)


async def _alive(session: Session) -> None:
    """Ask whether a sandbox lives; raises its end."""
    record = await session.sandbox.refresh()
    if record.end is not None:
        raise Gone(record.id, ended(record.id, meaning(record.end)))


async def _called(request: web.Request, session: Session, serve: Any, streams: bool) -> web.StreamResponse:  # noqa: ANN401
    """Serve a call; an error before any answer is told as the kind of call wants it."""
    try:
        async with nullcontext() if streams else serving.within(request):
            answered: web.StreamResponse = await serve(request, session)
    except SandboxError as error:
        if gone(error, session.sandbox.id) is not None:
            raise
        return await serving.refused(request, as_connect(error), streams=streams)
    except ConnectError as error:
        return await serving.refused(request, error, streams=streams)
    return answered
