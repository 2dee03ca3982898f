"""Who dies when: blows at random moments; what is not repaired after one meets the next."""

from __future__ import annotations

import asyncio
import random
import re
import shutil
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from tests.chaos.events import Log
from tests.chaos.ground import GATEWAYS, OPERATOR, OWNERS, PLANES, Ground, api_key
from tests.chaos.look import on_cluster
from tests.chaos.there import says
from tests.chaos.wishes import WARM_IMAGE

POOL = "warm"
WARM = 16
CLIENTS = 4
QUOTAS = {"ann": 150, "bob": 40}
# From one blow to the next.
LULL_S = (0.5, 4.0)
DOCUMENTS = "documents.json"
# In the logs of clients.
ANSWERS = [re.compile(rb'"%s\.answered".*"id"' % kind) for kind in (b"create", b"exec", b"delete")]


class Storm:
    """Kills parts of a product and puts others in their place.

    Attributes:
        blows: how often each has fallen.
        trouble: what went wrong that no blow explains.
    """

    def __init__(self, ground: Ground, seed: int, log: Log) -> None:
        self.blows: dict[str, int] = {}
        self.trouble: list[str] = []
        self._ground = ground
        self._seed = seed
        self._draw = random.Random(seed)
        self._log = log
        self._made = 0

    async def prepare(self) -> None:
        """Declare pool and quotas, then bring up all the others: on one machine each process reads its own file."""
        ground = self._ground
        async with ground.client(OPERATOR) as operator:
            await operator.set_pool(POOL, WARM_IMAGE, WARM, starts_per_minute=60_000)
            for owner, most in QUOTAS.items():
                await operator.set_quota(owner, sandboxes=most)
            (ground.folder / PLANES[1]).mkdir()
            shutil.copy(ground.folder / PLANES[0] / DOCUMENTS, ground.folder / PLANES[1] / DOCUMENTS)
            await ground.start_plane(PLANES[1])
            await ground.start_gateway(GATEWAYS[1])
        await self._filled()
        for _ in range(CLIENTS):
            await self._client_starts()

    async def rage(self, seconds: float) -> None:
        """Let blows fall for so long: each kind once at least, the store is emptied in the middle and never again.

        On a slow machine it goes on until clients were answered calls of every kind.
        """
        kinds = {"client": self._client, "gateway": self._gateway, "plane": self._plane, "store": self._store}
        began_s, first, emptied = time.monotonic(), [*kinds], False
        self._draw.shuffle(first)
        while (gone_s := time.monotonic() - began_s) < seconds or not self._tried():
            await asyncio.sleep(self._draw.uniform(*LULL_S))
            if not emptied and gone_s > seconds / 2:
                await self._blow("emptied", self._emptied)
                emptied = True
            else:
                name = first.pop() if first else self._draw.choice([*kinds])
                await self._blow(name, kinds[name])

    async def calm(self, within_s: float) -> None:
        """Have all clients end what they do; one that does not is told, and killed."""
        clients = [name for name in self._ground.parts if name.startswith("client-")]
        for name in clients:
            with suppress(ProcessLookupError):
                self._ground.parts[name].terminate()
        until_s = time.monotonic() + within_s
        for name in clients:
            try:
                async with asyncio.timeout(max(0.0, until_s - time.monotonic())):
                    code = await self._ground.parts[name].wait()
                    if code:
                        self.trouble += [one for one in self._ground.fallen() if one.startswith(f"{name} ")]
            except TimeoutError:
                self.trouble.append(f"{name} did not end within {within_s:.0f} s")
            await self._ground.kill(name)
        self.trouble += self._ground.fallen()

    async def _blow(self, name: str, fall: Callable[[], Awaitable[None]]) -> None:
        self.trouble += [words for words in self._ground.fallen() if words not in self.trouble]
        self.blows[name] = self.blows.get(name, 0) + 1
        self._log.tell(f"blow.{name}")
        await fall()

    def _tried(self) -> bool:
        told = b"".join(path.read_bytes() for path in self._ground.folder.glob("client-*.events"))
        return all(answer.search(told) for answer in ANSWERS)

    async def _client(self) -> None:
        clients = sorted(name for name in self._ground.parts if name.startswith("client-"))
        await self._ground.kill(self._draw.choice(clients))
        await self._client_starts()

    async def _gateway(self) -> None:
        name = self._draw.choice(GATEWAYS)
        await self._ground.kill(name)
        await asyncio.sleep(self._draw.uniform(0, 1.5))
        await self._ground.start_gateway(name)

    async def _plane(self) -> None:
        name = self._draw.choice(PLANES)
        await self._ground.kill(name)
        await asyncio.sleep(self._draw.uniform(0, 3))
        await self._ground.start_plane(name)

    async def _store(self) -> None:
        await self._ground.kill("redis")
        await asyncio.sleep(self._draw.uniform(0, 3))
        await self._ground.start_redis()

    async def _emptied(self) -> None:
        await self._ground.kill("redis")
        # From here on nothing ends in the store that is lost.
        self._log.tell("store.emptied")
        await asyncio.sleep(self._draw.uniform(0, 1))
        await self._ground.start_redis(empty=True)

    async def _client_starts(self) -> None:
        number, self._made = self._made, self._made + 1
        name, owner = f"client-{number}", OWNERS[number % len(OWNERS)]
        url = self._ground.url(GATEWAYS[(number // len(OWNERS)) % len(GATEWAYS)])
        log = self._ground.folder / f"{name}.events"
        command = (
            "-m",
            "tests.chaos.client",
            url,
            owner,
            api_key(owner),
            name,
            str(self._seed * 1000 + number),
            str(log),
        )
        await self._ground.start(name, (sys.executable, *command), {})
        await self._ground.until(name, lambda: says(log))

    async def _filled(self) -> None:
        async with asyncio.timeout(120):
            while len(await on_cluster(self._ground.folder / "stagehand.sock")) < WARM:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.2)
