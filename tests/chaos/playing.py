"""The storm over a played cluster: every part of the product dies, the store is emptied once, pods and nodes die."""

from __future__ import annotations

import asyncio
import math
import shutil
import time
from collections.abc import Coroutine, Mapping
from functools import partial

from tests.chaos.events import Log
from tests.chaos.ground import GATEWAYS, OPERATOR, OWNERS, PLANES, Ground, api_key
from tests.chaos.played import of_cluster, on_cluster
from tests.chaos.storm import Blow, Storm
from tests.chaos.wishes import WARM_IMAGE

POOL = "warm"
WARM = 16
CLIENTS = 4
QUOTAS = {"ann": 150, "bob": 40}
# What happens at one control plane both know after this. A store that is emptied while nobody is there who knows takes
# with it what the cluster was not told; that is written down as a limit, and no blow tries it.
KNOWN_WITHIN_S = 10.0
DOCUMENTS = "documents.json"


class PlayedStorm(Storm):
    """See the module."""

    def __init__(self, ground: Ground, seed: int, log: Log) -> None:
        self._ground = ground
        self._emptied_yet = False
        self._spared_until_s = 0.0  # control planes
        super().__init__(ground, seed, log)

    def kinds(self) -> Mapping[str, Blow]:
        """See `Storm.kinds`."""
        front = GATEWAYS[0]
        return {
            **{name: ((name,), partial(self._gateway, name)) for name in GATEWAYS},
            **{name: ((name,), partial(self._plane, name)) for name in PLANES},
            "store": (("redis",), self._store),
            "both planes": (PLANES, lambda: _together(*map(self._plane, PLANES))),
            "gateway and store": ((front, "redis"), lambda: _together(self._gateway(front), self._store())),
            **{how: ((), partial(self._dies, how)) for how in ("pod", "node", "sidecar", "claim")},
        }

    def account(self, number: int) -> tuple[str, str, str]:
        """See `Storm.account`."""
        owner = OWNERS[number % len(OWNERS)]
        return self._ground.url(GATEWAYS[(number // len(OWNERS)) % len(GATEWAYS)]), owner, api_key(owner)

    def now(self, gone_s: float, seconds: float) -> tuple[str, Blow] | None:
        """Empty the store once, from the middle on, when both control planes know all that it takes with it."""
        if self._emptied_yet or gone_s <= seconds / 2:
            return None
        self._spared_until_s = math.inf
        if not self._remembered():
            return None
        self._emptied_yet, self._spared_until_s = True, time.monotonic() + KNOWN_WITHIN_S
        return "emptied", (("redis",), self._emptied)

    def over(self) -> bool:
        """See `Storm.over`."""
        return self._emptied_yet

    def may(self, name: str) -> bool:
        """See `Storm.may`; control planes are spared for what they alone know."""
        spared = time.monotonic() < self._spared_until_s and not {*PLANES}.isdisjoint(self._kinds[name][0])
        return super().may(name) and not spared

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
            await self.client_starts()

    def _remembered(self) -> bool:
        """Whether both control planes have been there long enough to know what a store must not take with it."""
        now_s = time.monotonic()
        known = all(now_s - self._up_s.get(plane, 0.0) > KNOWN_WITHIN_S for plane in PLANES)
        return known and self._down.isdisjoint((*PLANES, "redis"))

    async def _gateway(self, name: str) -> None:
        await self._ground.kill(name)
        await asyncio.sleep(self._draw.uniform(0, 1.5))
        await self._ground.start_gateway(name)

    async def _plane(self, name: str) -> None:
        await self._ground.kill(name)
        await asyncio.sleep(self._draw.uniform(0, 3))
        await self._ground.start_plane(name)

    async def _store(self) -> None:
        await self._ground.kill("redis")
        await asyncio.sleep(self._draw.uniform(0, 3))
        await self._ground.start_redis()

    async def _dies(self, how: str) -> None:
        """A pod, a node's pods or a sidecar; or, some time, the pod that is claimed next, before it has answered."""
        await of_cluster(self._ground.folder / "stagehand.sock", do="die", how=how)

    async def _emptied(self) -> None:
        await self._ground.kill("redis")
        # From here on nothing ends in the store that is lost.
        self._log.tell("store.emptied")
        await asyncio.sleep(self._draw.uniform(0, 1))
        await self._ground.start_redis(empty=True)

    async def _filled(self) -> None:
        async with asyncio.timeout(120):
            while len(await on_cluster(self._ground.folder / "stagehand.sock")) < WARM:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.2)


async def _together(*blows: Coroutine[None, None, None]) -> None:
    """All at once, until the last one is repaired."""
    async with asyncio.TaskGroup() as group:
        for blow in blows:
            group.create_task(blow)
