"""The egress feed (``egress.v1.Egress`` over gRPC): one stream per egress replica, and the replicas' reports."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import structlog
from grpc import aio

from controlplane.api.feed_key import FeedDoor
from controlplane.errors import Problem
from controlplane.errors.rpc import abort
from controlplane.lifecycle import Egress
from controlplane.lifecycle.egress.assignments import MOST_ID_CHARS
from controlplane.lifecycle.egress.subscription import Subscription
from controlplane.wire import egress_pb2, egress_pb2_grpc

# `egress.proto` promises a message at least every 5 s; a replica takes a silent feed for dead.
HEARTBEAT_S: Final = 2.0
# Pause between two messages, so that changes go together; the first one after a silence is sent at once.
REST_S: Final = 0.002
# Pause where the store does not tell a policy; what has to be sent waits.
AWAY_S: Final = 0.2


class EgressServicer(egress_pb2_grpc.EgressServicer):
    """Sends a snapshot, then every change, and heartbeats while nothing changes."""

    def __init__(self, egress: Egress, door: FeedDoor) -> None:
        self._egress = egress
        self._door = door
        self._log = structlog.get_logger("egress feed")

    async def Report(  # noqa: N802 - the protocol's name
        self, request: egress_pb2.EgressReport, context: "aio.ServicerContext[object, object]"
    ) -> egress_pb2.ReportTaken:
        """Takes one replica's report of what is in force, of links and of attempts."""
        await self._door.check(context)
        try:
            await self._egress.reports.take(request)
        except Problem as problem:
            await abort(context, problem)
        return egress_pb2.ReportTaken()

    async def Watch(  # noqa: N802 - the protocol's name
        self, request: egress_pb2.WatchRequest, context: "aio.ServicerContext[object, object]"
    ) -> AsyncIterator[egress_pb2.Update]:
        """One replica's stream; ends when the replica disconnects, or another one comes under its name."""
        await self._door.check(context)
        replica = request.egress_id[:MOST_ID_CHARS]
        if not replica:
            await abort(context, Problem("invalid_argument", "egress_id is empty", field="egress_id"))
        self._log.info("egress replica connected", replica=replica)
        board, replicas = self._egress.assignments, self._egress.replicas
        try:
            with board.subscribe(replica) as feed:
                replicas.changed()
                while board.serves(feed):
                    yield await self._update(feed)
                    await asyncio.sleep(REST_S)
        finally:
            replicas.changed()
            self._log.info("egress replica has gone", replica=replica)
        await abort(context, Problem("conflict", f"another egress replica is called {replica}: names must differ"))

    async def _update(self, feed: Subscription) -> egress_pb2.Update:
        """The next message; a heartbeat where nothing changes, or a policy is not told by the store."""
        try:
            async with asyncio.timeout(HEARTBEAT_S):
                while True:
                    try:
                        return await feed.next(self._egress.assignments.version)
                    except Problem as away:
                        self._log.warning("egress feed waits for the store", detail=away.detail)
                        await asyncio.sleep(AWAY_S)
        except TimeoutError:
            return egress_pb2.Update(version=self._egress.assignments.version, heartbeat=egress_pb2.Heartbeat())
