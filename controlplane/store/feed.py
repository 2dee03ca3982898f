"""What other replicas have stored, over Redis' publish and subscribe; a lost subscription is taken up again."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

from pydantic_core import from_json
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as SlowError

from controlplane.store.calls import Calls
from controlplane.store.line import Line, command
from controlplane.store.protocol import Changed, News, Resync, SlotFreed
from controlplane.store.rows import begin_of, load_fields

FIRST_PAUSE_S: Final = 0.05
LAST_PAUSE_S: Final = 2.0
# A connection that says nothing for so long is asked whether it is still there.
QUIET_S: Final = 5.0
# Between two looks. Under load most of the cost of news is that each one wakes this process, its own ones too. The
# first after a silence is heard at once, later ones so much later; what reads and claims answer never waits for news.
REST_S: Final = 0.005


async def feed(calls: Calls, origin: str) -> AsyncIterator[News]:
    """All news but those of ``origin``, without end; ``Resync`` whenever the subscription begins."""
    pause_s, own = FIRST_PAUSE_S, begin_of(origin)
    while True:
        line = calls.line()
        try:
            await line.exchange(command("SUBSCRIBE", f"{calls.prefix}feed"), 0)
            async for kind, text in _messages(line):
                pause_s = FIRST_PAUSE_S
                news = Resync() if kind == "subscribe" else _read(text, own)
                if news is not None:
                    yield news
        except (RedisError, OSError):
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LAST_PAUSE_S)
        finally:
            with suppress(RedisError, OSError):
                await line.close()


async def _messages(line: Line) -> AsyncIterator[tuple[str, str]]:
    """What is said on the channel: the server's word that we hear it, then messages."""
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


def _read(text: str, own: str) -> News | None:
    if text.startswith(own):
        return None
    try:
        fields = from_json(text)
        return Changed(load_fields(fields["sandbox"]), int(fields["at"])) if "sandbox" in fields else SlotFreed()
    except (ValueError, KeyError, TypeError):
        # A replica of another version: what it stored is read when it is asked for.
        return None
