"""The route feed (``routes.v1.Routes`` over gRPC): one stream per gateway, and the gateways' activity reports."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeAlias

import structlog
from grpc import aio

from controlplane.errors import Problem
from controlplane.errors.rpc import abort
from controlplane.lifecycle import Activity, RouteBoard
from controlplane.wire import routes_pb2, routes_pb2_grpc

CpuUs: TypeAlias = Callable[[str], Awaitable[int | None]]
# `routes.proto` promises a message at least every 5 s; a gateway takes a silent feed for dead.
HEARTBEAT_S: Final = 2.0
# Pause between two messages, so that changes are batched: one message costs gateway and control plane more than ten
# routes in it. The first change after a silence is sent at once; the gateway holds a call until its route arrives.
REST_S: Final = 0.005


class RoutesServicer(routes_pb2_grpc.RoutesServicer):
    """Sends a snapshot, then every change, and heartbeats while nothing changes."""

    def __init__(self, board: RouteBoard, activity: Activity, cpu_us: CpuUs | None = None) -> None:
        """Args: cpu_us: the time on processors of a sandbox, None where nobody says it; None: nobody ever does."""
        self._board = board
        self._cpu_us = cpu_us
        self._activity = activity
        self._log = structlog.get_logger("feed")

    async def Report(  # noqa: N802 - the protocol's name
        self, request: routes_pb2.ActivityReport, context: "aio.ServicerContext[object, object]"
    ) -> routes_pb2.ActivityTaken:
        """Takes one gateway's report of the sandboxes that are in use."""
        del context
        used = ((one.sandbox_id, one.since_us // 1000) for one in request.used)
        self._activity.report(request.gateway_id[:64], used)
        return routes_pb2.ActivityTaken()

    async def Usage(  # noqa: N802
        self, request: routes_pb2.UsageRequest, context: "aio.ServicerContext[object, object]"
    ) -> routes_pb2.NodeUsage:
        """What the node of a sandbox says that it has used; the gateway has checked that its caller may ask."""
        del context
        return routes_pb2.NodeUsage(cpu_us=await self._cpu_us(request.sandbox_id) if self._cpu_us else None)

    async def Watch(  # noqa: N802 - the protocol's name
        self, request: routes_pb2.WatchRequest, context: "aio.ServicerContext[object, object]"
    ) -> AsyncIterator[routes_pb2.Update]:
        """One gateway's stream; ends when the gateway disconnects or falls too far behind."""
        gateway = request.gateway_id[:64]
        self._log.info("gateway connected", gateway=gateway)
        with self._board.subscribe() as subscription:
            while not subscription.cut:
                try:
                    async with asyncio.timeout(HEARTBEAT_S):
                        update = await subscription.next()
                except TimeoutError:
                    update = routes_pb2.Update(version=self._board.version, heartbeat=routes_pb2.Heartbeat())
                yield update
                await asyncio.sleep(REST_S)
        self._log.warning("gateway fell too far behind, its route stream was closed", gateway=gateway)
        await abort(context, Problem("stream_interrupted", f"gateway {gateway} is too far behind: connect again"))
