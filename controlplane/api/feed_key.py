"""The key of the feed of egress: who has it is a part of the platform, and no code in a sandbox."""

import hmac
from typing import Final

import structlog
from grpc import aio

from controlplane.errors import Problem
from controlplane.errors.rpc import abort
from controlplane.telemetry import Metrics

SCHEME: Final = "Bearer "
# Of callers that were told of; more are still counted.
MOST_TOLD: Final = 64


class FeedDoor:
    """Lets callers with the key in; the first refusal of each is logged."""

    def __init__(self, key: str, metrics: Metrics) -> None:
        """Args: key: empty: nobody is let in; metrics: refusals are counted there."""
        self._expected = f"{SCHEME}{key}".encode() if key else None
        self._metrics = metrics
        self._told = set[str]()
        self._log = structlog.get_logger("feed key")

    async def check(self, context: "aio.ServicerContext[object, object]") -> None:
        """Returns where the caller has the key; else the call is aborted (unauthenticated)."""
        given = dict(context.invocation_metadata() or ()).get("authorization", "")
        text = given if isinstance(given, bytes) else given.encode()
        host = context.peer().rpartition(":")[0] or context.peer()
        if self._expected is not None and hmac.compare_digest(text, self._expected):
            self._told.discard(host)
            return
        self._metrics.egress_feed_refused()
        why = "with another key than this control plane's" if text else "without a key"
        if host not in self._told and len(self._told) < MOST_TOLD:
            self._told.add(host)
            self._log.error("feed of egress refused", peer=context.peer(), why=why)
        await abort(context, Problem("unauthenticated", f"the feed of egress was asked for {why}"))
