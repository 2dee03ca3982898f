"""Over random histories of tags, registries, pools and groups: what belongs together never has two digests."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from random import Random

import pytest

from controlplane.images import ImageOptions
from controlplane.lifecycle import Options
from controlplane.model import GROUP, Sandbox, SandboxSpec, State
from tests.support.examples import EXAMPLES, QUICK
from tests.support.fake_cluster import FakeCluster, FakeSidecars
from tests.support.fake_registry import FakeRegistry
from tests.support.shared_store import SharedMemory
from tests.support.virtual_time import VirtualClock
from tests.support.world import OWNER, World, world

STEPS = 40
SEEDS = range(max(4, 4 * EXAMPLES // QUICK))
UNCLAIMED = {State.QUEUED, State.STARTING, State.WARM}


class History:
    """Two replicas, and somebody who does something to them every now and then."""

    def __init__(self, random: Random, registry: FakeRegistry, planes: list[World], core: SharedMemory) -> None:
        self._random = random
        self._core = core
        self._registry = registry
        self._planes = planes
        self.groups: dict[str, list[Sandbox]] = defaultdict(list)

    async def step(self) -> None:
        choice = self._random.choice
        await choice(
            [self._create, self._create, self._create, self._move, self._turn, self._wait, self._pool, self._lose]
        )()
        self._judge_pools(await self._planes[0].deps.store.find(None, {}, UNCLAIMED))

    async def _create(self) -> None:
        name, plane = f"g{self._random.randrange(4)}", self._random.choice(self._planes)
        spec = SandboxSpec(image="python:3", labels={GROUP: name})
        async with asyncio.TaskGroup() as creates:
            made = [creates.create_task(plane.create(OWNER, spec)) for _ in range(self._random.randint(1, 4))]
        self.groups[name] += [one.result().sandbox for one in made]

    async def _move(self) -> None:
        self._registry.content = f"{self._random.random()}"

    async def _turn(self) -> None:
        """The registry gets slow, or quick, or goes away."""
        self._registry.takes_s = self._random.choice([0, 0, 0.5, 30])
        self._registry.outcome = self._random.choice([None, None, "away"])

    async def _wait(self) -> None:
        await asyncio.sleep(self._random.choice([1, 20, 70, 400]))

    async def _lose(self) -> None:
        """The store forgets everything, and is rebuilt from the cluster."""
        self._core.empty()
        await asyncio.sleep(20)

    async def _pool(self) -> None:
        await self._declare(self._random.randrange(4))
        await asyncio.sleep(self._random.choice([0, 5]))

    async def rest(self) -> None:
        """Nothing is begun any more, and everything that was has come to its end."""
        self._registry.takes_s, self._registry.outcome = 0, None
        await self._declare(0)
        await asyncio.sleep(120)

    async def _declare(self, warm: int) -> None:
        body = {"template": {"image": "python:3"}, "min_warm": warm, "max_warm": warm}
        answer = await self._planes[0].api("PUT", "/v1/pools/p", body=body)
        assert answer.status in (200, 201)

    def _judge_pools(self, unclaimed: Iterable[Sandbox]) -> None:
        assert len(digests(unclaimed)) <= 1


def digests(sandboxes: Iterable[Sandbox]) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for one in sandboxes:
        if one.image_digest:
            found[one.image_digest].append(one.id)
    return found


@pytest.mark.parametrize("seed", SEEDS)
async def test_what_belongs_together_has_one_digest(seed: int) -> None:
    registry, core = FakeRegistry(), SharedMemory(VirtualClock())
    cluster, sidecars = FakeCluster(annotates_behind=True), FakeSidecars()
    options = Options(starts_in_flight=64, images=ImageOptions("auto"))
    async with (
        world(cluster, sidecars, options, store=core.view("a"), registry=registry) as a,
        world(cluster, sidecars, options, store=core.view("b"), registry=registry) as b,
    ):
        await asyncio.sleep(0.01)  # both follow the feed
        history = History(Random(seed), registry, [a, b], core)
        for _ in range(STEPS):
            await history.step()
        await history.rest()
        for name, members in history.groups.items():
            assert len(digests(members)) <= 1, (name, digests(members))
