"""A server for local clients over streamable HTTP: on the loopback interface, with a key, Host and Origin checked."""

from __future__ import annotations

import asyncio
import hmac
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import uvicorn
from mcp.server import Server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

_LOOPBACK = ("127.0.0.1", "::1")
_END_S = 2


def listening(listen: str) -> socket.socket:
    """Return a socket that listens on HOST:PORT; port 0 is any.

    Raises:
        ValueError: it is no such address, or not one of the loopback interface.
        OSError: it is in use.
    """
    host, _, port = listen.rpartition(":")
    host = host.strip("[]").replace("localhost", _LOOPBACK[0])
    if host not in _LOOPBACK or not port.isdigit():
        raise ValueError(f"{listen!r} is not 127.0.0.1:PORT or [::1]:PORT: the server is for this machine alone")
    return socket.create_server((host, int(port)), family=socket.AF_INET6 if ":" in host else socket.AF_INET)


def address(bound: socket.socket) -> str:
    """Return HOST:PORT of a socket, as URLs have it."""
    host, port = bound.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def serve(
    server: Server[Any], bound: socket.socket, key: str, origins: Sequence[str], ended: asyncio.Event
) -> None:
    """Serve until `ended`.

    Args:
        server: of the tools.
        bound: the socket.
        key: what a client sends as its bearer token.
        origins: of browsers' pages that may call.
        ended: set by a signal.
    """
    port = bound.getsockname()[1]
    checks = TransportSecuritySettings(
        allowed_hosts=[address(bound), f"localhost:{port}"], allowed_origins=list(origins)
    )
    application = _Keyed(server.streamable_http_app(transport_security=checks), key)
    # Its own handlers of signals give way to those that are there once it has ended.
    config = uvicorn.Config(application, log_level="warning", timeout_graceful_shutdown=_END_S, lifespan="on")
    running = uvicorn.Server(config)
    serving = asyncio.create_task(running.serve(sockets=[bound]), name="rollbox mcp over http")
    waiting = asyncio.create_task(ended.wait(), name="rollbox mcp signals")
    try:
        await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        running.should_exit = True
        await serving


class _Keyed:
    """Hands on what has the key, and answers 401 to all else."""

    def __init__(self, application: ASGIApp, key: str) -> None:
        self._application = application
        self._wanted = f"Bearer {key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer: Callable[[Scope, Receive, Send], Awaitable[None]] = self._application
        if scope["type"] == "http":
            given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
            if not hmac.compare_digest(given, self._wanted):
                told = "Send the key that `rollbox mcp` has printed: Authorization: Bearer KEY\n"
                answer = PlainTextResponse(told, 401, {"WWW-Authenticate": "Bearer"})
        await answer(scope, receive, send)
