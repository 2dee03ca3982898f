"""The feed of other replicas' changes, over Redis' publish and subscribe; it subscribes again after a failure."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

from pydantic_core import from_json
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as SlowError

from controlplane.store.calls import Calls
from controlplane.store.line import Line, command
from controlplane.store.protocol import Changed, FeedMessage, Resync, SlotFreed
from controlplane.store.rows import begin_of, load_fields

FIRST_PAUSE_S: Final = 0.05
LAST_PAUSE_S: Final = 2.0
# A connection without messages for so long is checked with a PING.
QUIET_S: Final = 5.0
# The pause between two reads. Under load, most of the cost of feed messages is that each one, even the replica's own,
# wakes this process. The first message after a silence is read at once, the next ones up to so much later. Answers to
# reads and claims never wait for the feed.
REST_S: Final = 0.005


async def feed(calls: Calls, origin: str) -> AsyncIterator[FeedMessage]:
    """All changes but those of ``origin``, without end; ``Resync`` whenever the subscription begins."""
    pause_s, own = FIRST_PAUSE_S, begin_of(origin)
    while True:
        line = calls.line()
        try:
            await line.exchange(command("SUBSCRIBE", f"{calls.prefix}feed"), 0)
            async for kind, text in _messages(line):
                pause_s = FIRST_PAUSE_S
                news = Resync() if kind == "subscribe" else _read(text, own, origin)
                if news is not None:
                    yield news
        except (RedisError, OSError):
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LAST_PAUSE_S)
        finally:
            with suppress(RedisError, OSError):
                await line.close()


async def _messages(line: Line) -> AsyncIterator[tuple[str, str]]:
    """The messages of the channel: Redis' confirmation of the subscription first, then published ones."""
    asked = False
    while True:
        try:
            said = await line.some(QUIET_S)
        except SlowError:
            if asked:
                raise
            await line.exchange(command("PING"), 0)
            asked = True
            continue
        asked = False
        for one in said:
            match one:
                case ["subscribe" | "message" as kind, str(), text]:
                    yield kind, str(text)
                case Exception():
                    raise one
        await line.rest(REST_S)


def _read(text: str, own: str, replica: str) -> FeedMessage | None:
    if text.startswith(own):
        return None
    try:
        fields = from_json(text)
        if "sandbox" not in fields:
            return SlotFreed(fields["key"]) if fields["slot"] == replica else None
        return Changed(load_fields(fields["sandbox"]), int(fields["at"]))
    except (ValueError, KeyError, TypeError):
        # From a replica of another version; the record itself is read from the store when it is needed.
        return None
