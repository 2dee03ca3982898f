"""What a gateway relies on of the route feed: the control plane's and the fake of the gateway's tests pass these."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from controlplane.errors import Code
from controlplane.wire import routes_pb2 as routes

# Of the protocol; the fakes and the control plane keep well below it.
SILENCE_S = 5


class Feed(Protocol):
    """A feed that knows the sandbox sb-1, and can be told of more."""

    @property
    def stub(self) -> Any:
        """Calls it."""
        ...

    async def push(self, sandbox_id: str) -> None:
        """A sandbox runs, at generation 1."""
        ...

    async def end(self, sandbox_id: str, cause: Code) -> None:
        """A sandbox that runs has ended."""
        ...


async def _next(stream: Any) -> routes.Update:
    """The next update that is no heartbeat."""
    while (update := await stream.read()).WhichOneof("body") == "heartbeat":
        pass
    assert isinstance(update, routes.Update)
    return update


class RoutesSuite:
    """Subclasses have the fixture `feed`."""

    async def test_a_watch_begins_with_all_that_is_known(self, feed: Feed) -> None:
        stream = feed.stub.Watch(routes.WatchRequest(gateway_id="g"))
        update = await stream.read()
        assert update.WhichOneof("body") == "snapshot"
        (route,) = update.snapshot.routes
        assert (route.sandbox_id, route.generation, route.owner) == ("sb-1", 1, "alice")
        assert route.address.startswith("unix:/")
        assert list(update.snapshot.ends) == []
        stream.cancel()

    async def test_what_changes_comes_as_it_happens(self, feed: Feed) -> None:
        stream = feed.stub.Watch(routes.WatchRequest(gateway_id="g"))
        versions = [(await stream.read()).version]
        await feed.push("sb-2")
        update = await _next(stream)
        versions.append(update.version)
        assert [(one.sandbox_id, one.generation) for one in update.delta.routes] == [("sb-2", 1)]
        await feed.end("sb-1", "deleted")
        update = await _next(stream)
        versions.append(update.version)
        (end,) = update.delta.ends
        assert (end.sandbox_id, end.cause, end.generation, end.at_ms > 0, bool(end.detail)) == (
            ("sb-1", "deleted", 1, True, True)
        )
        assert versions == sorted(versions)
        stream.cancel()

    async def test_a_later_watch_begins_with_what_is_known_then(self, feed: Feed) -> None:
        first = feed.stub.Watch(routes.WatchRequest(gateway_id="g"))
        await first.read()
        await feed.push("sb-2")
        await feed.end("sb-1", "deleted")
        while not (await _next(first)).delta.ends:
            pass
        again = feed.stub.Watch(routes.WatchRequest(gateway_id="g"))
        snapshot = (await again.read()).snapshot
        assert [one.sandbox_id for one in snapshot.routes] == ["sb-2"]
        for stream in (first, again):
            stream.cancel()

    async def test_a_feed_without_changes_shows_that_it_lives(self, feed: Feed) -> None:
        stream = feed.stub.Watch(routes.WatchRequest(gateway_id="g"))
        await stream.read()
        async with asyncio.timeout(12 * SILENCE_S):
            assert (await stream.read()).WhichOneof("body") == "heartbeat"
        stream.cancel()

    async def test_a_report_of_use_is_taken(self, feed: Feed) -> None:
        used = [routes.Used(sandbox_id="sb-1", since_us=2_000_000), routes.Used(sandbox_id="sb-9")]
        answer = await feed.stub.Report(routes.ActivityReport(gateway_id="g", used=used))
        assert isinstance(answer, routes.ActivityTaken)
