"""A control plane and a real registry: what a create runs while a tag moves, and what it is refused for."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from controlplane.clock import SystemClock
from controlplane.errors import Problem
from controlplane.images import ImageOptions, Keyring
from controlplane.lifecycle import Options
from controlplane.model import GROUP, SandboxSpec
from controlplane.registry import Registries
from tests.support.fake_cluster import FakeCluster
from tests.support.registry import CONFIG, LAYER, MANIFEST, Pusher, registry_server
from tests.support.world import OWNER, World, world


async def nobody(_: str) -> Keyring:
    return Keyring()


@pytest.fixture
async def pusher(tmp_path: Path) -> AsyncIterator[Pusher]:
    with registry_server(tmp_path) as address:
        async with aiohttp.ClientSession() as http:
            yield Pusher(http, address, {})


@pytest.fixture
async def plane(pusher: Pusher) -> AsyncIterator[World]:
    options = Options(images=ImageOptions("required"))
    async with (
        Registries.open(nobody, SystemClock(), plain=[pusher.address]) as registries,
        world(FakeCluster(image_state="unknown"), options=options, registry=registries) as running,
    ):
        yield running


async def test_a_group_runs_what_its_tag_was_at_first(plane: World, pusher: Pusher) -> None:
    spec = SandboxSpec(image=f"{pusher.address}/team/app:1", labels={GROUP: "g"})
    first = await pusher.image("team/app", "1", mark="first")
    before = [one.sandbox for one in await asyncio.gather(*(plane.create(OWNER, spec) for _ in range(4)))]
    await pusher.image("team/app", "1", mark="second")
    after = (await plane.create(OWNER, spec)).sandbox
    assert {one.image_digest for one in (*before, after)} == {first}
    assert plane.cluster.held[after.id].spec.image == f"{spec.image}@{first}"


async def test_what_cannot_run_is_refused_and_the_preflight_says_so(plane: World, pusher: Pusher) -> None:
    foreign = b'{"os":"linux","architecture":"s390x"}'
    await pusher.manifest("foreign", "1", MANIFEST, {"config": (CONFIG, foreign), "layers": [(LAYER, b"x")]})
    await pusher.image("sound", "1")
    for name, code in (("foreign", "unsupported"), ("none", "image_not_found"), ("sound", "")):
        image = f"{pusher.address}/{name}:1"
        answer = await plane.api("POST", "/v1/preflight", body={"sandbox": {"image": image}, "count": 1})
        assert [one["code"] for one in answer.json["blockers"]] == ([code] if code else [])
        assert answer.json["image"] == ("unknown" if code else "elsewhere")
        if code:
            with pytest.raises(Problem) as caught:
                await plane.create(OWNER, SandboxSpec(image=image))
            assert caught.value.code == code
    assert plane.cluster.started == []
