"""One id per request, in every answer and log line: the caller's if it is well-formed, else a generated one."""

import re
import secrets
from contextvars import ContextVar
from typing import Final

import structlog
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER: Final = "x-request-id"
_SANE: Final = re.compile(rb"[A-Za-z0-9._-]{1,128}")
_current: ContextVar[str] = ContextVar("request_id", default="")


def request_id() -> str:
    """The id of the request that is being answered; empty outside of one."""
    return _current.get()


class RequestId:
    """Middleware: sets the request's id for as long as the app answers it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = dict(scope["headers"]).get(HEADER.encode(), b"")
        chosen = given.decode() if _SANE.fullmatch(given) else f"req-{secrets.token_hex(8)}"
        token = _current.set(chosen)

        async def with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = chosen
            await send(message)

        try:
            with structlog.contextvars.bound_contextvars(request_id=chosen):
                await self._app(scope, receive, with_id)
        finally:
            _current.reset(token)
