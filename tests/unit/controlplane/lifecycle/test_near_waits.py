"""Starts that wait a moment for a node that has their image: when, how many, and for how long."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from controlplane.lifecycle.waiting.near_waits import WAITS_MS, NearWaits
from controlplane.model import SandboxSpec
from tests.support.scheduled import Scheduled
from tests.support.world import OWNER, world

IMAGE = "python:3.12"
SPEC = SandboxSpec(image=IMAGE)
FAR_MS = 1 << 50


class Now:
    """A clock that stands still, and the nodes that have the image."""

    def __init__(self, *nodes: str) -> None:
        self.ms = 1_000
        self.nodes = nodes
        self.starts_per_node = 2

    def now_ms(self) -> int:
        return self.ms

    def holding(self, spec: SandboxSpec, layers: Mapping[str, int]) -> Sequence[str]:
        del layers
        return self.nodes if spec.image == IMAGE else ()


def test_it_waits_while_all_nodes_that_have_its_image_are_to_be_avoided() -> None:
    now = Now("a", "b")
    near = NearWaits(now, now)  # type: ignore[arg-type]
    assert not near.waits("s", SPEC, {}, [], FAR_MS)
    assert not near.waits("s", SPEC, {}, ["a", "c"], FAR_MS)
    assert near.waits("s", SPEC, {}, ["a", "b", "c"], FAR_MS)
    assert not near.waits("s", SPEC, {}, ["b"], FAR_MS)
    assert not near.waits("other", SandboxSpec(image="other:1"), {}, ["a", "b"], FAR_MS)


def test_it_waits_for_so_long_in_all_and_leaves_itself_the_time_to_begin() -> None:
    now = Now("a")
    near = NearWaits(now, now)  # type: ignore[arg-type]
    assert near.waits("s", SPEC, {}, ["a"], FAR_MS)
    now.ms += WAITS_MS - 1
    assert near.waits("s", SPEC, {}, ["a"], FAR_MS)
    now.ms += 1
    assert not near.waits("s", SPEC, {}, ["a"], FAR_MS)
    assert not near.waits("late", SPEC, {}, ["a"], now.ms + WAITS_MS)


def test_no_more_wait_than_the_nodes_with_the_image_take_at_once() -> None:
    now = Now("a", "b")
    near = NearWaits(now, now)  # type: ignore[arg-type]
    asked = {name: near.waits(name, SPEC, {}, ["a", "b"], FAR_MS) for name in "stuvw"}
    assert asked == {"s": True, "t": True, "u": True, "v": True, "w": False}
    near.over("s")
    near.over("unknown")
    assert near.waits("w", SPEC, {}, ["a", "b"], FAR_MS)
    for name in "tuvw":
        near.over(name)
    assert (near._since_ms, near._waiting) == ({}, {})


class Near(Scheduled):
    """A scheduler that prefers the nodes that have the image."""

    def choose(self, sandbox_id: str, fitting: Sequence[str], avoid: Sequence[str]) -> str:
        has = self.images_on.get(self.held[sandbox_id].spec.image, ())
        return min(fitting, key=lambda one: (one in avoid, one not in has, one))


@pytest.mark.parametrize(("known", "ready_s", "on"), [(True, 1.0, 4), (False, 1.0, 2), (True, 4.0, 2)])
async def test_a_group_that_is_a_little_too_large_comes_to_the_node_with_its_image(
    known: bool, ready_s: float, on: int
) -> None:
    cluster = Near({"a": 64, "b": 64}, per_node=2, ready_s=ready_s, chosen_s=0.01)
    if known:
        cluster.images_on = {IMAGE: ["a"]}
    async with world(cluster) as plane:
        spec = SandboxSpec(image=IMAGE, start_timeout_ms=60_000)
        began_s = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(plane.create(OWNER, spec))
        took_s = asyncio.get_running_loop().time() - began_s
        nodes = [one.node for one in cluster.placed.values()]
        assert nodes.count("a") == on
        assert cluster.most["a"] == 2
        # One start after the other; or, where that takes longer, after the whole wait.
        assert took_s < (2 * ready_s if on == 4 else ready_s) + (WAITS_MS / 1000 if known else 0) + 0.5
        assert not plane.service._core.starter.line._near._since_ms
