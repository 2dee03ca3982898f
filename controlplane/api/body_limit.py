"""Limits the size of request bodies."""

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from controlplane.api.problems import answer
from controlplane.errors import Problem


class BodyLimit:
    """Middleware: refuses a body over ``most_bytes``, by its Content-Length or while it is received.

    Args:
        app: what answers.
        most_bytes: of a body.
        streamed: paths of routes that bound their bodies by themselves, while they receive them.
    """

    def __init__(self, app: ASGIApp, most_bytes: int, streamed: frozenset[str] = frozenset()) -> None:
        self._app = app
        self._most_bytes = most_bytes
        self._streamed = streamed
        self._detail = f"a request has at most {most_bytes} bytes here"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] != "http" or scope["path"] in self._streamed:
            await self._app(scope, receive, send)
            return
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if not announced.isdigit() or int(announced) > self._most_bytes:
            await answer(Problem("payload_too_large", self._detail))(scope, receive, send)
            return
        came_bytes = 0

        async def counted() -> Message:
            nonlocal came_bytes
            message = await receive()
            came_bytes += len(message.get("body", b""))
            if came_bytes > self._most_bytes:
                # The only exception that the framework does not wrap while it reads a body.
                raise HTTPException(413, self._detail)
            return message

        await self._app(scope, counted, send)
