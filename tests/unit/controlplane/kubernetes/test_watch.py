"""How soon a watch that has ended is opened again."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from controlplane.cluster.kubernetes.api_server.client import Json, KubernetesClient
from controlplane.cluster.kubernetes.api_server.watch import FIRST_PAUSE_S, LAST_PAUSE_S, Reflector
from controlplane.errors import Problem


class Server:
    """Answers lists with nothing, and watches with nothing for so long.

    Args:
        stands_s: how long each watch stands.
        failing: whether each one ends by a failure.
    """

    def __init__(self, stands_s: float, *, failing: bool = False) -> None:
        self.stands_s, self.failing = stands_s, failing
        self.began_s: list[float] = []

    async def list(self, *_: Any) -> Any:
        return type("Seen", (), {"items": [], "version": "7"})

    @asynccontextmanager
    async def watch(self, _: str, __: Mapping[str, str]) -> AsyncIterator[AsyncIterator[Json]]:
        self.began_s.append(asyncio.get_running_loop().time())
        yield self._events()

    async def _events(self) -> AsyncIterator[Json]:
        await asyncio.sleep(self.stands_s)
        if self.failing:
            raise Problem("upstream_timeout", "away")
        nothing: list[Json] = []
        for event in nothing:
            yield event


class Nothing:
    def replace(self, _: Any) -> None:
        pass

    put = remove = replace


async def longest_pause_s(server: Server, for_s: float) -> float:
    reflector = Reflector(cast("KubernetesClient", server), "/events", {}, Nothing())
    running = asyncio.create_task(reflector.run())
    await asyncio.sleep(for_s)
    running.cancel()
    await asyncio.wait([running])
    assert len(server.began_s) > 10
    pairs = zip(server.began_s, server.began_s[1:], strict=False)
    return max(later - earlier - server.stands_s for earlier, later in pairs)


async def test_a_quiet_watch_that_ends_as_asked_is_opened_again_at_once() -> None:
    assert await longest_pause_s(Server(100), 6_000) <= FIRST_PAUSE_S + 0.001


@pytest.mark.parametrize("server", [Server(0), Server(LAST_PAUSE_S / 2), Server(100, failing=True)])
async def test_one_that_ends_too_soon_or_fails_is_opened_again_later_and_later(server: Server) -> None:
    assert await longest_pause_s(server, 60 * (LAST_PAUSE_S + server.stands_s)) > 2.5
