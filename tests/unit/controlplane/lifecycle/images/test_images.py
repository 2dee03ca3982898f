"""Which image a start begins with: one digest for a group and for a pool, and no start that waits for a registry."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from controlplane.errors import Problem
from controlplane.images import ImageOptions, Mode, Rewrites
from controlplane.lifecycle import Options
from controlplane.lifecycle.images.pins import UNPINNED_MS
from controlplane.lifecycle.images.resolver import AWAY_MS, TAG_MS, WAIT_S
from controlplane.lifecycle.record.callers import new_caller
from controlplane.lifecycle.service.groups import Groups
from controlplane.model import GROUP, Sandbox, SandboxSpec
from tests.support.fake_cluster import FakeCluster
from tests.support.fake_registry import FakeRegistry, digest
from tests.support.world import OWNER, World, world

SPEC = SandboxSpec(image="python:3")
FULL = "docker.io/library/python:3"


@asynccontextmanager
async def plane(
    registry: FakeRegistry, digests: Mode = "auto", rewrites: str = "", cluster: FakeCluster | None = None
) -> AsyncIterator[World]:
    options = Options(starts_in_flight=64, images=ImageOptions(digests, Rewrites.parse(rewrites)))
    async with world(cluster, options=options, registry=registry) as running:
        yield running


async def created(plane: World, spec: SandboxSpec = SPEC) -> tuple[Sandbox, str]:
    """A sandbox, and the image that the cluster was given."""
    sandbox = (await plane.create(OWNER, spec)).sandbox
    return sandbox, plane.cluster.held[sandbox.id].spec.image


def ran(plane: World, outcome: str) -> float:
    return plane.deps.metrics.registry.get_sample_value("rollbox_image_pins_total", {"outcome": outcome}) or 0.0


async def declared(plane: World, warm: int) -> None:
    """A pool of the spec, with all its sandboxes ready."""
    pool = {"template": {"image": SPEC.image}, "min_warm": warm, "max_warm": warm}
    answer = await plane.api("PUT", "/v1/pools/p", body=pool)
    assert answer.status == 201, answer.json
    await asyncio.sleep(10)
    assert await plane.deps.store.warm(SPEC.template_hash()) == warm


async def group(plane: World, name: str, count: int) -> set[str]:
    """The digests of a new group's sandboxes."""
    members = await Groups(plane.service).create(OWNER, name, SPEC, count, partial=False, caller=new_caller(), begun=[])
    return {one.image_digest for one in members.values() if isinstance(one, Sandbox)}


async def test_a_start_is_given_the_digest_and_the_record_has_both() -> None:
    async with plane(FakeRegistry()) as running:
        sandbox, image = await created(running)
        assert (sandbox.spec.image, sandbox.image_digest) == ("python:3", digest("a"))
        assert image == f"{FULL}@{digest('a')}"
        shown = await running.api("GET", f"/v1/sandboxes/{sandbox.id}")
        assert (shown.json["image"], shown.json["image_digest"]) == ("python:3", digest("a"))
        assert ran(running, "registry") == 1


async def test_a_start_is_given_the_layers_that_the_registry_has_told() -> None:
    layers = {"sha256:base": 800, "sha256:own": 200}
    async with plane(FakeRegistry(layers=layers)) as running:
        for _ in range(2):
            sandbox, _ = await created(running)
            assert running.cluster.held[sandbox.id].boot.layers == layers
    async with plane(FakeRegistry(outcome="away", layers=layers)) as running:
        sandbox, _ = await created(running)
        assert running.cluster.held[sandbox.id].boot.layers == {}


async def test_a_digest_that_the_user_named_stays() -> None:
    named = f"python@{digest('mine')}"
    for here in ({}, {named: digest("an id of the engine's")}):
        registry = FakeRegistry(outcome="away")
        async with plane(registry, "required", cluster=FakeCluster(digests=here)) as running:
            sandbox, image = await created(running, SandboxSpec(image=named))
        assert (sandbox.image_digest, image, registry.asked) == (digest("mine"), named, [])


async def test_many_starts_at_once_ask_once_and_later_ones_see_that_a_tag_has_moved() -> None:
    registry = FakeRegistry(takes_s=0.5)
    async with plane(registry) as running:
        async with asyncio.TaskGroup() as starts:
            for _ in range(20):
                starts.create_task(created(running))
        assert registry.asked == [FULL]
        registry.content = "b"
        assert (await created(running))[0].image_digest == digest("a")
        await asyncio.sleep(TAG_MS / 1000 + 1)
        assert (await created(running))[0].image_digest == digest("b")


async def test_a_group_never_mixes_two_images() -> None:
    registry = FakeRegistry()
    async with plane(registry) as running:
        assert await group(running, "g", 4) == {digest("a")}
        registry.content = "b"
        # Longer than a replica remembers anything but the records.
        await asyncio.sleep(300)
        assert await group(running, "g", 8) == {digest("a")}
        assert await group(running, "h", 4) == {digest("b")}


async def test_a_group_keeps_its_image_at_a_replica_that_has_not_seen_it() -> None:
    registry, cluster = FakeRegistry(), FakeCluster()
    async with plane(registry, cluster=cluster) as running:
        assert await group(running, "g", 2) == {digest("a")}
    registry.content = "b"
    async with plane(registry, cluster=cluster) as running:
        assert await group(running, "g", 4) == {digest("a")}


@pytest.mark.parametrize("code", ["away", "broken", "denied", "absent", "limited"])
async def test_what_a_registry_does_not_say_runs_by_its_name(code: str) -> None:
    registry = FakeRegistry(outcome=code)  # type: ignore[arg-type]
    async with plane(registry) as running:
        sandbox, image = await created(running)
        assert (sandbox.image_digest, image) == ("", "python:3")
        assert ran(running, code) == 1


async def test_a_failure_that_nobody_foresaw_ends_one_start_alone() -> None:
    class Broken(FakeRegistry):
        async def check(self, *asked: Any) -> Mapping[str, int]:
            if len(self.asked) == 1:
                raise RuntimeError("a bug")
            return {}

    async with plane(Broken()) as running:
        with pytest.raises(Problem, match="failed to resolve") as caught:
            await created(running)
        assert caught.value.code == "internal"
        assert (await created(running))[0].image_digest == digest("a")


async def test_a_registry_that_does_not_answer_delays_the_first_start_only() -> None:
    registry = FakeRegistry(takes_s=3600)
    async with plane(registry) as running:
        loop = asyncio.get_running_loop()
        for longest_s in (WAIT_S + 0.5, 0.5, 0.5):
            began_s = loop.time()
            assert (await created(running))[0].image_digest == ""
            assert loop.time() - began_s < longest_s
        await asyncio.sleep(AWAY_MS / 1000)
        # Looked for again, and not waited for.
        began_s = loop.time()
        assert (await created(running, SandboxSpec(image="other")))[0].image_digest == ""
        assert loop.time() - began_s < 0.5
    assert registry.asked == [FULL, "docker.io/library/other:latest"]


async def test_a_start_that_can_do_nothing_without_a_digest_waits_for_a_registry_that_is_slow() -> None:
    registry = FakeRegistry(takes_s=3 * WAIT_S)
    async with plane(registry) as running:
        assert (await created(running))[0].image_digest == ""
        await asyncio.sleep(TAG_MS / 1000 + 3 * WAIT_S)
        # By now it is known not to answer soon, which stops nobody that waits.
        assert (await created(running, SandboxSpec(image="other")))[0].image_digest == ""
        assert (await created(running, SandboxSpec(image="third", pull="lazy")))[0].image_digest == digest("a")


async def test_while_no_registry_answers_not_every_start_of_a_group_searches_the_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with plane(FakeRegistry(outcome="away")) as running:
        searches, find = list[str](), running.deps.store.find

        async def counted(owner: str | None, labels: Mapping[str, str], *states: Any) -> Sequence[Sandbox]:
            searches.extend(labels.values())
            return await find(owner, labels, *states)

        monkeypatch.setattr(running.deps.store, "find", counted)
        for number in range(20):
            await created(running, SPEC.model_copy(update={"labels": {GROUP: "g"}}))
            assert searches.count("g") == 1, number
        await asyncio.sleep(UNPINNED_MS / 1000)
        await created(running, SPEC.model_copy(update={"labels": {GROUP: "g"}}))
        assert searches.count("g") == 2


async def test_a_registry_that_is_back_is_used_again() -> None:
    registry = FakeRegistry(outcome="away")
    async with plane(registry) as running:
        assert (await created(running))[0].image_digest == ""
        registry.outcome = None
        await asyncio.sleep(AWAY_MS / 1000)
        await created(running)
        assert (await created(running))[0].image_digest == digest("a")


async def test_a_registry_that_asks_for_a_pause_gets_it() -> None:
    registry = FakeRegistry(outcome="limited", pause_s=100)
    async with plane(registry) as running:
        for _ in range(3):
            assert (await created(running))[0].image_digest == ""
            await asyncio.sleep(30)
    assert registry.asked == [FULL]


@pytest.mark.parametrize(("outcome", "code"), [("away", "image_pull_failed"), ("absent", "image_not_found")])
async def test_where_digests_are_required_a_name_without_one_is_refused(outcome: str, code: str) -> None:
    async with plane(FakeRegistry(outcome=outcome), "required") as running:  # type: ignore[arg-type]
        with pytest.raises(Problem) as caught:
            await created(running)
        assert caught.value.code == code
        assert running.cluster.started == []


@pytest.mark.parametrize("digests", ["auto", "required"])
async def test_an_image_that_cannot_run_is_refused_before_anything_is_started(digests: Mode) -> None:
    async with plane(FakeRegistry(refused="it is for s390x"), digests) as running:
        for _ in range(2):
            with pytest.raises(Problem, match="it is for s390x") as caught:
                await created(running)
            assert caught.value.code == "unsupported"
        assert running.cluster.started == []


async def test_an_image_on_the_machine_is_pinned_to_what_is_there() -> None:
    registry, cluster = FakeRegistry(), FakeCluster(digests={"python:3": digest("here")})
    async with plane(registry, cluster=cluster) as running:
        assert (await created(running))[0].image_digest == digest("here")
        # Built anew, for example: nothing of it is remembered.
        cluster.digests["python:3"] = digest("built")
        assert (await created(running))[0].image_digest == digest("built")
    assert registry.asked == []


async def test_an_image_is_pulled_from_where_a_rule_says() -> None:
    registry = FakeRegistry()
    async with plane(registry, rewrites="docker.io/* -> mirror.io/hub/*") as running:
        sandbox, image = await created(running)
        assert (sandbox.spec.image, image) == ("python:3", f"mirror.io/hub/library/python:3@{digest('a')}")
    assert registry.asked == ["mirror.io/hub/library/python:3"]
    async with plane(registry, "never", rewrites="docker.io/* -> mirror.io/hub/*") as running:
        assert (await created(running))[1] == "mirror.io/hub/library/python:3"


async def test_a_pool_has_one_image_and_a_claim_asks_no_registry() -> None:
    registry = FakeRegistry()
    async with plane(registry) as running:
        await declared(running, 2)
        registry.content = "b"
        await asyncio.sleep(300)
        asked = len(registry.asked)
        seen = [(await created(running))[0] for _ in range(3)]
        await asyncio.sleep(10)
        seen += [(await created(running))[0] for _ in range(4)]
        assert {one.image_digest for one in seen} == {digest("a")}
        assert len(registry.asked) == asked
        assert sum(one.warm for one in seen) >= 4


async def test_a_group_that_has_an_image_is_not_given_a_warm_one_with_another() -> None:
    registry = FakeRegistry()
    async with plane(registry) as running:
        spec = SPEC.model_copy(update={"labels": {GROUP: "g"}})
        assert (await created(running, spec))[0].image_digest == digest("a")
        registry.content = "b"
        await asyncio.sleep(300)
        await declared(running, 1)
        of_group, of_nobody = (await created(running, spec))[0], (await created(running))[0]
        assert (of_group.warm, of_group.image_digest) == (False, digest("a"))
        assert of_nobody.image_digest == digest("b")


@pytest.mark.parametrize(
    ("registry", "image", "blocked"),
    [
        (FakeRegistry(), "elsewhere", None),
        (FakeRegistry("on a node"), "here", None),
        (FakeRegistry(outcome="away"), "unknown", None),
        (FakeRegistry(outcome="denied"), "unknown", None),
        (FakeRegistry(outcome="absent"), "unknown", "image_not_found"),
        (FakeRegistry(refused="it is for s390x"), "unknown", "unsupported"),
    ],
)
async def test_a_preflight_asks_the_registry_where_the_cluster_does_not_know(
    registry: FakeRegistry, image: str, blocked: str | None
) -> None:
    async with plane(
        registry, cluster=FakeCluster(image_state="unknown", on_nodes={f"{FULL}@{digest('on a node')}"})
    ) as running:
        answer = await running.api("POST", "/v1/preflight", body={"sandbox": {"image": "python:3"}, "count": 2})
        assert answer.json["image"] == image
        assert [one["code"] for one in answer.json["blockers"]] == ([blocked] if blocked else [])
