"""The store's calls by redis-py alone: pipelines without transactions, its own pool, its own subscription."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.client import PubSub
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as SlowError

from controlplane.store import calls, feed
from controlplane.store.calls import TOGETHER, Calls
from controlplane.store.protocol import FeedMessage, Resync
from controlplane.store.rows import begin_of
from controlplane.store.scripts import Value

_OPTIONS = ("socket_timeout", "socket_connect_timeout", "retry", "decode_responses")


def _message(self: Calls, name: str, args: Mapping[str, Value]) -> Any:
    return ("EVALSHA", self._digests[name], 1, self.prefix, *self._scripts[name].values(args))


async def _read(self: Calls, name: str, args: Mapping[str, Value]) -> Any:
    return await self.redis.execute_command(*self._message(name, args))  # type: ignore[no-untyped-call]


def _client(self: Calls) -> Redis:
    """With a pool that does not lock: one message is under way at a time."""
    known = vars(self).get("_client")
    if known is None:
        options = self.redis.connection_pool.connection_kwargs
        pool = ConnectionPool.from_url(self._url, protocol=2, **{name: options[name] for name in _OPTIONS})
        known = vars(self)["_client"] = Redis(connection_pool=pool)
    return known


async def _asked(client: Redis, steps: Sequence[Any]) -> Sequence[Any]:
    if len(steps) == 1:
        # Half the cost of a pipeline.
        try:
            return [await client.execute_command(*steps[0])]  # type: ignore[no-untyped-call]
        except ResponseError as refused:
            return [refused]
    pipe = client.pipeline(transaction=False)
    for step in steps:
        pipe.execute_command(*step)
    return await pipe.execute(raise_on_error=False)


async def _send(self: Calls) -> None:
    client = _client(self)
    while self._steps:
        steps, self._steps = self._steps[:TOGETHER], self._steps[TOGETHER:]
        answers: Sequence[Any]
        try:
            answers = await _asked(client, [step for step, _, _ in steps])
        except Exception as error:
            steps, self._steps = steps + self._steps, []
            answers = [error] * len(steps)
        for (_, future, _), answer in zip(steps, answers, strict=True):
            calls._set(future, answer)
    self._sending = None


async def _feed(store: Calls, origin: str) -> AsyncIterator[FeedMessage]:
    pause_s, own = feed.FIRST_PAUSE_S, begin_of(origin)
    while True:
        channel = _client(store).pubsub()
        try:
            await channel.subscribe(f"{store.prefix}feed")
            async for kind, text in _messages(channel):
                pause_s = feed.FIRST_PAUSE_S
                news = Resync() if kind == "subscribe" else feed._read(text, own, origin)
                if news is not None:
                    yield news
        except (RedisError, OSError):
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, feed.LAST_PAUSE_S)
        finally:
            await channel.aclose()  # type: ignore[no-untyped-call]


async def _messages(channel: PubSub) -> AsyncIterator[tuple[str, str]]:
    asked = False
    while True:
        one = await channel.get_message(timeout=feed.QUIET_S)
        if one is None:
            if asked:
                raise SlowError("no answer to a PING")
            await channel.ping()
            asked = True
            continue
        asked = False
        while one is not None:
            if one["type"] in ("subscribe", "message"):
                yield one["type"], str(one["data"])
            one = await channel.get_message(timeout=0)
        await asyncio.sleep(feed.REST_S)


def library_redis() -> None:
    """Replaces the calls and the feed."""
    for name, value in {"_message": _message, "_read": _read, "_send": _send}.items():
        setattr(Calls, name, value)
    vars(feed)["feed"] = _feed
