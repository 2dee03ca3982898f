"""A group that waits for an image on one node does not slow down the starts on other nodes."""

import asyncio
from collections.abc import Sequence

import pytest

from controlplane.lifecycle import Options
from controlplane.model import SandboxSpec
from controlplane.model.spec import Range
from tests.support.scheduled import Scheduled
from tests.support.world import OWNER, SPEC, World, world

COLD = SandboxSpec(image="cold", start_timeout_ms=120_000)
PULL_S, CHOSEN_S, PER_NODE = 60.0, 0.05, 8
SIZES = tuple(Range(request=millicores, limit=millicores) for millicores in (50, 100, 150, 200))


class Pulling(Scheduled):
    """Only node `cold` is preferred by starts of the cold image, which it pulls for a minute."""

    def __init__(self, nodes: int) -> None:
        names = ["cold", *(f"n{number}" for number in range(nodes - 1))]
        super().__init__(dict.fromkeys(names, 64.0), per_node=PER_NODE, chosen_s=CHOSEN_S)

    def choose(self, sandbox_id: str, fitting: Sequence[str], avoid: Sequence[str]) -> str:
        if self.held[sandbox_id].spec.image == "cold" and "cold" not in avoid:
            return "cold"
        return super().choose(sandbox_id, fitting, avoid)

    async def run_on(self, sandbox_id: str, node: str) -> None:
        cold = self.held[sandbox_id].spec.image == "cold"
        self.get_ready_s = PULL_S if cold else 1.0
        await super().run_on(sandbox_id, node)


async def took_s(plane: World, specs: Sequence[SandboxSpec]) -> float:
    began_s = asyncio.get_running_loop().time()
    await asyncio.gather(*(plane.create(OWNER, spec) for spec in specs))
    return asyncio.get_running_loop().time() - began_s


async def beside(group: int, specs: Sequence[SandboxSpec], nodes: int = 10) -> tuple[float, Pulling]:
    """How long 100 starts took while a cold group of this size waited, and the cluster."""
    cluster = Pulling(nodes)
    async with world(cluster, options=Options(starts_in_flight=1024)) as plane:
        waiting = [asyncio.create_task(plane.create(OWNER, COLD)) for _ in range(group)]
        await asyncio.sleep(10)
        took = await took_s(plane, specs)
        assert not any(one.done() for one in waiting)
        await asyncio.gather(*waiting)
    return took, cluster


@pytest.mark.parametrize("group", [1, 4, 6, 7, 8])
async def test_a_group_that_waits_for_a_pull_costs_the_others_next_to_nothing(group: int) -> None:
    alone, _ = await beside(0, [SPEC] * 100)
    took, cluster = await beside(group, [SPEC] * 100)
    assert took <= 1.3 * alone + 4 * CHOSEN_S
    assert max(cluster.most.values()) <= PER_NODE


async def test_nor_do_starts_of_several_sizes_wait_for_it() -> None:
    mixed = [SPEC.model_copy(update={"cpu_millicores": SIZES[number % len(SIZES)]}) for number in range(100)]
    alone, _ = await beside(0, mixed)
    took, cluster = await beside(PER_NODE, mixed)
    assert took <= 1.3 * alone + 4 * CHOSEN_S
    assert max(cluster.most.values()) <= PER_NODE


async def test_a_group_still_fills_the_node_that_pulls_its_image_while_others_start() -> None:
    cluster = Pulling(10)
    async with world(cluster, options=Options(starts_in_flight=1024)) as plane:
        specs = [SPEC, COLD, SPEC] * (2 * PER_NODE)
        group = [asyncio.create_task(plane.create(OWNER, spec)) for spec in specs]
        await asyncio.sleep(PULL_S / 2)
        pulling = [one for one, held in cluster.held.items() if held.spec.image == "cold"]
        # One of the others may have come to it.
        assert sum(cluster.placed[one].node == "cold" for one in pulling) >= PER_NODE - 1
        await asyncio.gather(*group)
