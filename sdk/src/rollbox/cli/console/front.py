"""The server on 127.0.0.1: lets one browser in, and passes its requests for pages on with the API key."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aiohttp import web

from rollbox._problem import SandboxError
from rollbox.cli.console import own_pages
from rollbox.cli.console.logins import SESSION_S, Logins
from rollbox.errors import UpstreamTimeout

if TYPE_CHECKING:
    import socket

    from rollbox.gateway import Page, Query

Fetch = Callable[[tuple[str, ...], "Query"], Awaitable["Page"]]
"""Gets a page below /v1/console: the parts of its path, and its query."""

COOKIE = "rollbox_console"
_PATHS = re.compile(r"|sandboxes/[A-Za-z0-9_-]{1,128}|usage|static/[a-z.]{1,32}")
_HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]"})
# Of the header by which browsers say whose page asks: none (the address was typed), or one of this server.
_OWN_SITES = frozenset({"none", "same-origin"})
_WITHIN_S = 20.0
# What a request under way still has when the command is ended.
_ENDS_WITHIN_S = 1.0
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Front:
    """Answers browsers. Every answer has the headers that bound what a page may do, whatever the platform sends.

    Args:
        fetch: gets pages; its errors are shown.
        said: told what the person at the terminal should know.
        clock: seconds, monotonic.
    """

    def __init__(
        self, fetch: Fetch, said: Callable[[str], object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._fetch = fetch
        self._said = said
        self._logins = Logins(clock)
        # Cookies are for a host, whatever the port: other servers of this machine get those of their own paths alone.
        self._scope = f"/{secrets.token_hex(8)}/"

    @property
    def login_path(self) -> str:
        """The path that logs a browser in, once."""
        return f"{self._scope}login?code={self._logins.code}"

    async def answer(self, request: web.Request) -> web.Response:
        """Answer one request."""
        found = await self._answered(request)
        found.headers.update(_HEADERS)
        return found

    async def _answered(self, request: web.Request) -> web.Response:
        if (refusal := _refusal(request)) is not None:
            return refusal
        if request.path == "/favicon.ico":  # which browsers ask for by themselves
            return web.Response(status=204)
        if request.path == "/own.css":
            return web.Response(text=own_pages.STYLE, content_type="text/css")
        if not request.path.startswith(self._scope):
            return _html(own_pages.unknown_browser(), 404)
        wanted = request.path.removeprefix(self._scope)
        return self._login(request) if wanted == "login" else await self._inside(request, wanted)

    async def _inside(self, request: web.Request, wanted: str) -> web.Response:
        if request.headers.get("Sec-Fetch-Site", "none") not in _OWN_SITES:
            return web.Response(status=403, text="another site's page asks for this\n")
        if not self._logged_in(request):
            return _html(own_pages.unknown_browser(), 403)
        if not _PATHS.fullmatch(wanted):
            return _html(own_pages.no_page(), 404)
        return await self._page(request, wanted)

    def _logged_in(self, request: web.Request) -> bool:
        # A browser sends the cookies of all servers of this machine, whatever their ports: one of the same name, set by
        # another one, must not hide ours.
        sent = (one.strip().partition("=") for one in request.headers.get("Cookie", "").split(";"))
        return any(name == COOKIE and self._logins.knows(value.strip('"')) for name, _, value in sent)

    def _login(self, request: web.Request) -> web.Response:
        if self._logged_in(request):
            return _html(own_pages.logged_in())
        session, refusal = self._logins.exchange(request.query.get("code", ""))
        if session is None:
            if refusal == "used":
                self._said("the login code was tried a second time, by a browser that is not logged in")
            return _html(own_pages.refused(refusal or "wrong"), 403)
        found = _html(own_pages.logged_in())
        found.set_cookie(COOKIE, session, path=self._scope, httponly=True, samesite="Strict", max_age=round(SESSION_S))
        return found

    async def _page(self, request: web.Request, wanted: str) -> web.Response:
        parts = tuple(part for part in wanted.split("/") if part)
        try:
            async with asyncio.timeout(_WITHIN_S):
                page = await self._fetch(parts, [*request.query.items()])
        except TimeoutError:
            late = UpstreamTimeout(f"the platform has not answered within {_WITHIN_S:.0f} s")
            return _html(own_pages.failed(late, "../" * (len(parts) - 1)), 502)
        except SandboxError as error:
            status = 502 if error.is_infra else 404 if error.code.endswith("not_found") else 403
            return _html(own_pages.failed(error, "../" * (len(parts) - 1)), status)
        return web.Response(body=page.content, headers={"Content-Type": page.media_type})


def _refusal(request: web.Request) -> web.Response | None:
    """Refuse what no page of this server asks for."""
    # A name that somebody else's DNS leads here would make a page of theirs one of this server.
    if request.host not in _HOSTS and request.host.rpartition(":")[0] not in _HOSTS:
        return web.Response(status=421, text="this server is called 127.0.0.1 or localhost\n")
    # What looks at the address before a person does must not use up its code.
    if request.method != "GET" and (request.method != "HEAD" or request.path.endswith("/login")):
        return web.Response(status=405, text="pages are only read here\n")
    return None


@asynccontextmanager
async def serving(front: Front, listener: socket.socket) -> AsyncIterator[None]:
    """Serve on a socket that listens, while the block runs."""
    # Nobody who has ended the command waits for a platform that does not answer.
    runner = web.ServerRunner(web.Server(front.answer), shutdown_timeout=_ENDS_WITHIN_S)  # type: ignore[arg-type]
    await runner.setup()
    try:
        await web.SockSite(runner, listener).start()
        yield
    finally:
        await runner.cleanup()


def _html(text: str, status: int = 200) -> web.Response:
    return web.Response(status=status, text=text, content_type="text/html")
