"""Listening sockets and the HTTP and gRPC servers on them, as context managers."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final

import uvicorn
from grpc import aio
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from controlplane.api.egress_feed import EgressServicer
from controlplane.api.feed import CpuUs, RoutesServicer
from controlplane.api.feed_key import FeedDoor
from controlplane.lifecycle import Activity, Egress, RouteBoard
from controlplane.settings import Listen
from controlplane.wire import egress_pb2_grpc, routes_pb2_grpc

BACKLOG: Final = 2048
# Grace period for answers in progress when the server stops.
GRACE_S: Final = 5
# A client of a feed that answers no ping stands still, though its machine holds the connection: it is cut off, so that
# another egress replica takes its sandboxes over.
PING_EVERY_MS: Final = 5_000
PING_WITHIN_MS: Final = 8_000
# Most bytes of a request outside its body: request line, headers, chunk sizes, trailers.
MOST_HEAD_BYTES: Final = 64 * 1024
# A server renews the date in its answers so often. By itself uvicorn looks ten times a second whether it is to end,
# which is half of what an idle control plane takes.
TICK_S: Final = 1.0


class _Bounded(HttpToolsProtocol):
    """The HTTP parser of uvicorn that is written in C, with a limit for the request's head.

    A readiness push costs a tenth less with it than with h11. It has no limit of its own, and sandboxes, which are
    untrusted, can connect to it.
    """

    _beside_bytes = 0

    def data_received(self, data: bytes) -> None:
        self._beside_bytes += len(data)
        super().data_received(data)
        if self._beside_bytes > MOST_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response(f"A request has at most {MOST_HEAD_BYTES} bytes beside its body.")

    def on_body(self, body: bytes) -> None:
        self._beside_bytes -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._beside_bytes = 0
        super().on_message_complete()


class _Server(uvicorn.Server):
    """A uvicorn server without signal handlers: several servers share the process, which handles signals itself."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._over = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def end(self) -> None:
        """Has it end, with a grace period for answers in progress."""
        self.should_exit = True
        self._over.set()

    async def main_loop(self) -> None:
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self._over.wait()


@asynccontextmanager
async def serving_http(
    app: ASGIApp, listen: Listen, mode: int = 0o600, most_at_once: int | None = None
) -> AsyncIterator[None]:
    """Serves ``app`` while the block runs.

    Args:
        app: the ASGI app.
        listen: the address.
        mode: file mode of a Unix socket, which decides which users may connect.
        most_at_once: further concurrent connections are refused (503); None: no limit.
    """
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        http=_Bounded,
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE_S,
        limit_concurrency=most_at_once,
    )
    server = _Server(config)
    with bound(listen, mode) as bound_socket:
        async with asyncio.TaskGroup() as group:
            group.create_task(server.serve(sockets=[bound_socket]), name=f"serve {listen}")
            try:
                yield
            finally:
                server.end()


@contextmanager
def bound(listen: Listen, mode: int) -> Iterator[socket.socket]:
    """A listening socket; the file of a Unix socket is replaced at the start and removed at the end."""
    if listen.path is None:
        with socket.create_server((listen.host, listen.port), backlog=BACKLOG, reuse_port=False) as made:
            yield made
        return
    listen.path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(listen.path))
        listen.path.chmod(mode)
        made.listen(BACKLOG)
        try:
            yield made
        finally:
            listen.path.unlink(missing_ok=True)


@asynccontextmanager
async def serving_routes(
    board: RouteBoard,
    activity: Activity,
    listen: Listen,
    egress: Egress | None = None,
    door: FeedDoor | None = None,
    *,
    cpu_us: CpuUs | None = None,
) -> AsyncIterator[None]:
    """Serves the feeds of gateways and egress replicas, and takes their reports, while the block runs.

    Args:
        board: what gateways are told.
        activity: takes their reports.
        listen: the address.
        egress: what egress replicas are told; None: egress is not installed, and they are refused (unimplemented).
        door: lets them in; None: none of them.
        cpu_us: see ``RoutesServicer``.
    """
    if listen.path is not None:
        listen.path.unlink(missing_ok=True)
    options = [
        ("grpc.so_reuseport", 0),
        ("grpc.keepalive_time_ms", PING_EVERY_MS),
        ("grpc.keepalive_timeout_ms", PING_WITHIN_MS),
        ("grpc.http2.ping_timeout_ms", PING_WITHIN_MS),  # else a minute, whatever the one above says
        ("grpc.http2.max_pings_without_data", 0),
    ]
    server = aio.server(options=options)
    routes = RoutesServicer(board, activity, cpu_us)
    routes_pb2_grpc.add_RoutesServicer_to_server(routes, server)  # type: ignore[no-untyped-call]
    if egress is not None and door is not None:
        egress_pb2_grpc.add_EgressServicer_to_server(EgressServicer(egress, door), server)  # type: ignore[no-untyped-call]
    server.add_insecure_port(str(listen))
    await server.start()
    if listen.path is not None:
        listen.path.chmod(0o600)
    try:
        yield
    finally:
        # No grace period: a feed never ends by itself, so waiting for it would be useless.
        await server.stop(grace=None)
        if listen.path is not None:
            listen.path.unlink(missing_ok=True)
