"""What other replicas have stored, over Redis' publish and subscribe; a lost subscription is taken up again."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any, Final

from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from controlplane.store.calls import Calls
from controlplane.store.protocol import Changed, News, Resync, SlotFreed
from controlplane.store.rows import begin_of, load_fields

FIRST_PAUSE_S: Final = 0.05
LAST_PAUSE_S: Final = 2.0
# A connection that says nothing for so long is asked whether it is still there.
QUIET_S: Final = 5.0


async def feed(calls: Calls, origin: str) -> AsyncIterator[News]:
    """All news but those of ``origin``, without end; ``Resync`` whenever the subscription begins."""
    pause_s = FIRST_PAUSE_S
    while True:
        pubsub = calls.redis.pubsub()
        try:
            await pubsub.subscribe(f"{calls.prefix}feed")
            async for message in _messages(pubsub):
                pause_s = FIRST_PAUSE_S
                # The client takes a lost subscription up again by itself; the server's word for it tells of the gap.
                news = Resync() if message["type"] == "subscribe" else _read(message["data"], origin)
                if news is not None:
                    yield news
        except (RedisError, OSError):
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LAST_PAUSE_S)
        finally:
            with suppress(RedisError, OSError):
                await pubsub.aclose()  # type: ignore[no-untyped-call,unused-ignore]


async def _messages(pubsub: PubSub) -> AsyncIterator[Mapping[str, Any]]:
    asked = False
    while True:
        message = await pubsub.get_message(timeout=QUIET_S)
        if message is None:
            if asked:
                raise OSError("the subscription does not answer")
            await pubsub.ping()
            asked = True
            continue
        asked = False
        if message["type"] in ("subscribe", "message"):
            yield message


def _read(text: str, origin: str) -> News | None:
    if text.startswith(begin_of(origin)):
        return None
    try:
        fields = json.loads(text)
        return Changed(load_fields(fields["sandbox"]), int(fields["at"])) if "sandbox" in fields else SlotFreed()
    except (ValueError, KeyError, TypeError):
        # A replica of another version: what it stored is read when it is asked for.
        return None
