"""Starts from converted images: the first one whole, conversions behind it, later ones lazily, and what is told."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from controlplane.cluster import Death
from controlplane.errors import Problem
from controlplane.images import Converted, ImageOptions, PrivateRegistry
from controlplane.lifecycle import Options
from controlplane.lifecycle.images.conversion_order import MOST_WAITING
from controlplane.lifecycle.images.conversions import STALLED_S
from controlplane.lifecycle.images.verdicts import FAILED_MS, TRIALS
from controlplane.lifecycle.service.boots import OWNER as BOOTS
from controlplane.model import Sandbox, SandboxSpec, State
from controlplane.model.spec import Pull
from tests.support.fake_cluster import FakeCluster, FakeSidecars
from tests.support.fake_collector import FakeCollector
from tests.support.fake_commits import FakeCommits
from tests.support.fake_mirror import FakeKeyrings, FakeMirror
from tests.support.fake_node_images import FakeLazyNodes
from tests.support.fake_registry import FakeRegistry, digest
from tests.support.world import OWNER, World, world

PRIVATE = PrivateRegistry("registry.internal:5000")
RAN, CONVERTED = (digest(f"{how} {digest('a')}") for how in ("ran", "lazy"))
PLAIN = f"registry.internal:5000/mirror/docker.io/library/python@{RAN}"
LAZY = f"registry.internal:5000/estargz/docker.io/library/python@{CONVERTED}"
KEY = ("estargz/docker.io/library/python", digest("a"))


@asynccontextmanager
async def plane(
    mirror: FakeMirror,
    *,
    lazy: bool = True,
    starts: int = 64,
    sidecars: FakeSidecars | None = None,
    arches: tuple[str, ...] = ("amd64",),
    collector: FakeCollector | None = None,
    recorded_bytes: int = 0,
    commits: str = "",
) -> AsyncIterator[World]:
    images = ImageOptions("auto", private=PRIVATE, recorded_bytes=recorded_bytes)
    options = Options(starts_in_flight=starts, images=images)
    cluster = FakeCluster(lazy=FakeLazyNodes(PRIVATE.converted if lazy else ""), arches=frozenset(arches))
    if commits:
        cluster.commits = FakeCommits(commits)
    async with world(
        cluster,
        sidecars,
        options,
        registry=FakeRegistry(),
        mirror=mirror,
        keyrings=FakeKeyrings(),
        collector=collector,
    ) as running:
        yield running


async def created(
    plane: World, pull: Pull = "auto", image: str = "python:3", timeout_ms: int = 60_000
) -> tuple[Sandbox, str]:
    """A sandbox, and the image that the cluster was given."""
    spec = SandboxSpec(image=image, pull=pull, start_timeout_ms=timeout_ms)
    sandbox = (await plane.create(OWNER, spec)).sandbox
    return sandbox, plane.cluster.held[sandbox.id].spec.image


def sample(plane: World, name: str, **labels: str) -> float:
    return plane.deps.metrics.registry.get_sample_value(name, labels) or 0.0


async def test_the_first_start_is_whole_and_the_next_ones_are_lazy() -> None:
    mirror = FakeMirror(converts_s=10)
    sidecars = FakeSidecars()
    async with plane(mirror, sidecars=sidecars) as running:
        first, image = await created(running)
        assert (image, first.image_ran, first.image_pulled) == (PLAIN, RAN, "full")
        assert "made for later starts" in first.image_pulled_why
        # It is converted behind the start, which did not wait.
        assert first.timings_ms.get("convert", 0) == 0
        await asyncio.sleep(5)
        assert (await created(running))[1] == PLAIN
        await asyncio.sleep(60)
        later, image = await created(running)
        assert (image, later.image_digest, later.image_ran) == (LAZY, digest("a"), CONVERTED)
        assert (later.image_pulled, later.image_pulled_why) == ("lazy", "")
        assert len(mirror.conversions) == 1
        # A command has run in a sandbox from it, which is gone.
        assert sidecars.tries == ["/bin/sh"]
        assert {one.spec.image for one in running.cluster.held.values()} == {PLAIN, LAZY}
        assert sample(running, "rollbox_image_conversions_total", outcome="offered") == 1
        assert sample(running, "rollbox_image_pulls_total", how="full", reason="converting") == 2
        shown = (await running.api("GET", f"/v1/sandboxes/{first.id}")).json
        assert (shown["image_pulled"], shown["image_pulled_why"]) == ("full", first.image_pulled_why)
        timeline = (await running.api("GET", f"/v1/sandboxes/{first.id}/timeline")).json
        assert "its image is pulled whole: its converted copy was not there yet" in str(timeline["moments"])


async def test_full_is_full_and_converts_nothing() -> None:
    mirror = FakeMirror()
    mirror.lazy[KEY] = Converted(CONVERTED, booted=True)
    async with plane(mirror) as running:
        assert (await created(running, "full"))[1] == PLAIN
        assert (await created(running))[1] == LAZY
        assert mirror.conversions == []


async def test_nodes_that_cannot_get_what_they_can_run() -> None:
    mirror = FakeMirror()
    mirror.lazy[KEY] = Converted(CONVERTED, booted=True)
    async with plane(mirror, lazy=False) as running:
        sandbox, image = await created(running)
        assert (image, sandbox.image_pulled, sandbox.image_pulled_why) == (PLAIN, "full", "")
        with pytest.raises(Problem, match="its nodes do not mount converted images") as caught:
            await created(running, "lazy")
        assert caught.value.code == "unsupported"
        await asyncio.sleep(60)
        assert mirror.conversions == []


async def test_lazy_waits_for_the_conversion_without_a_slot_and_is_told_why() -> None:
    async with plane(FakeMirror(converts_s=20), starts=1) as running:
        creating = asyncio.create_task(created(running, "lazy"))
        await asyncio.sleep(5)
        # With the only slot the installation starts what waits for nothing.
        assert (await asyncio.wait_for(created(running, "full"), 5))[0].state is State.RUNNING
        waiting = next(
            one for one in (await running.api("GET", "/v1/sandboxes")).json["sandboxes"] if not one["ready_at_ms"]
        )
        timeline = (await running.api("GET", f"/v1/sandboxes/{waiting['id']}/timeline")).json
        assert timeline["summary"] == (
            "It is queued: its image is converted, so that nodes can mount it while they fetch it."
        )
        sandbox, image = await creating
        assert (image, sandbox.image_pulled) == (LAZY, "lazy")
        assert sandbox.timings_ms["convert"] == pytest.approx(20_000, abs=1_000)


async def test_lazy_fails_with_how_far_the_conversion_is() -> None:
    mirror = FakeMirror(converts_s=100)
    async with plane(mirror) as running:
        with pytest.raises(Problem, match="was not converted in time: converting, 1 of 4 layers") as caught:
            await created(running, "lazy", timeout_ms=30_000)
        assert caught.value.code == "start_timeout"
        first = asyncio.create_task(created(running, "lazy"))
        with pytest.raises(Problem, match="was not converted in time: waiting, with 1 other images"):
            await created(running, "lazy", "debian:12", timeout_ms=10_000)
        # The conversion goes on for those that come later.
        with pytest.raises(Problem, match="not converted in time"):
            await first
        await asyncio.sleep(60)
        assert (await created(running, "lazy"))[1] == LAZY


async def test_what_a_start_waits_for_is_converted_first() -> None:
    mirror = FakeMirror(converts_s=5)
    async with plane(mirror) as running:
        for number in range(4):
            await created(running, image=f"image{number}:1")
        await created(running, "lazy", "wanted:1")
        assert [one.partition("@")[0].rpartition("/")[2] for one in mirror.conversions][:2] == ["image0", "wanted"]


async def test_an_image_that_is_not_converted_runs_as_it_is_and_lazy_says_why() -> None:
    refusal = Problem("unsupported", "the image is not converted: it has 128 layers", option="pull")
    mirror = FakeMirror(refusal=refusal)
    async with plane(mirror) as running:
        with pytest.raises(Problem, match="it has 128 layers") as caught:
            await created(running, "lazy")
        assert caught.value.code == "unsupported"
        sandbox, image = await created(running)
        assert (image, sandbox.image_pulled) == (PLAIN, "full")
        assert "it has 128 layers" in sandbox.image_pulled_why
        assert sample(running, "rollbox_image_conversions_total", outcome="refused") == 1
        assert sample(running, "rollbox_image_pulls_total", how="full", reason="failed") == 1
        # What the image is at fault for is not tried again soon.
        await asyncio.sleep(FAILED_MS / 1000)
        await created(running)
        assert len(mirror.conversions) == 1


async def test_a_failure_of_the_platform_is_tried_again() -> None:
    mirror = FakeMirror(refusal=Problem("capacity_unavailable", "the mirror's disk is full"))
    async with plane(mirror) as running:
        await created(running)
        await asyncio.sleep(60)
        assert "disk is full" in (await created(running))[0].image_pulled_why
        mirror.refusal = None
        await asyncio.sleep(FAILED_MS / 1000)
        await created(running)
        await asyncio.sleep(60)
        assert (await created(running))[1] == LAZY


async def test_what_no_sandbox_starts_from_is_not_offered_after_some_trials_and_stays_so() -> None:
    mirror, sidecars = FakeMirror(), FakeSidecars(fails="/bin/sh exited with 1")
    async with plane(mirror, sidecars=sidecars) as running:
        for trial in range(1, TRIALS):
            with pytest.raises(Problem, match=f"trial {trial} of {TRIALS}: /bin/sh exited with 1") as caught:
                await created(running, "lazy")
            assert caught.value.code == "image_pull_failed"
            assert mirror.lazy[KEY].booted is None
        with pytest.raises(Problem, match="/bin/sh exited with 1") as caught:
            await created(running, "lazy")
        assert caught.value.code == "unsupported"
    assert mirror.lazy[KEY] == Converted(CONVERTED, booted=False, why=sidecars.fails)
    # Another control plane, which has tried nothing.
    async with plane(mirror) as running:
        sandbox, image = await created(running)
        assert image == PLAIN
        assert "/bin/sh exited with 1" in sandbox.image_pulled_why
        assert len(mirror.conversions) == 1
        # Whoever asks for it by name has it tried again.
        answer = await running.api("POST", "/v1/images/convert", body={"image": "python:3"})
        assert b'"offered"' in answer.body
        assert (await created(running))[1] == LAZY


async def test_lazy_right_after_a_failure_of_the_platform_tries_again() -> None:
    mirror = FakeMirror(refusal=Problem("capacity_unavailable", "the mirror's disk is full"))
    async with plane(mirror) as running:
        with pytest.raises(Problem, match="disk is full") as caught:
            await created(running, "lazy")
        assert caught.value.code == "capacity_unavailable"
        mirror.refusal = None
        assert (await created(running, "lazy"))[1] == LAZY


async def test_a_converted_copy_that_stops_working_is_not_started_from_for_a_while() -> None:
    mirror = FakeMirror()
    mirror.lazy[KEY] = Converted(CONVERTED, booted=True)
    async with plane(mirror) as running:
        assert (await created(running))[1] == LAZY
        running.cluster.next_error = Problem("image_pull_failed", "a layer is gone")
        with pytest.raises(Problem, match="a layer is gone"):
            await created(running)
        sandbox, image = await created(running)
        assert image == PLAIN
        assert "a start from it failed: a layer is gone" in sandbox.image_pulled_why
        assert sample(running, "rollbox_image_pulls_total", how="full", reason="failed") == 1
        await asyncio.sleep(FAILED_MS / 1000 + 60)
        assert (await created(running))[1] == LAZY


async def test_those_that_nobody_waits_for_get_a_turn_too_and_what_nobody_waits_for_any_more_is_one_of_them() -> None:
    mirror = FakeMirror(converts_s=20)
    async with plane(mirror) as running:
        await created(running, image="busy:1")
        await created(running, image="behind:1")
        with pytest.raises(Problem, match="not converted in time"):
            await created(running, "lazy", "impatient:1", timeout_ms=5_000)
        waiting = [asyncio.create_task(created(running, "lazy", f"lazy{n}:1", timeout_ms=600_000)) for n in range(8)]
        await asyncio.gather(*waiting)
        order = [one.partition("@")[0].rpartition("/")[2] for one in mirror.conversions]
        assert order[1].startswith("lazy")
        assert order.index("behind") < len(order) - 1
        assert "impatient" not in order[:2]


async def test_one_owner_with_many_images_holds_nobody_up() -> None:
    mirror = FakeMirror(converts_s=20)
    async with plane(mirror) as running:
        for number in range(20):
            await created(running, image=f"many{number}:1")
        spec = SandboxSpec(image="single:1", start_timeout_ms=60_000)
        await running.create("bob", spec)
        await asyncio.sleep(90)
        order = [one.partition("@")[0].rpartition("/")[2] for one in mirror.conversions]
        assert "single" in order[:3]


async def test_a_sandbox_that_is_slow_to_start_from_a_converted_image_holds_up_no_conversion() -> None:
    mirror = FakeMirror(converts_s=5)
    async with plane(mirror) as running:
        running.cluster.hangs = PRIVATE.converted
        for number in range(4):
            await created(running, image=f"image{number}:1")
        await asyncio.sleep(60)
        assert len(mirror.conversions) == 4
        assert [one.booted for one in mirror.lazy.values()] == [None] * 4


async def test_a_conversion_may_take_hours_as_long_as_it_goes_on_and_one_that_stands_still_is_broken_off() -> None:
    mirror = FakeMirror(converts_s=4 * STALLED_S * 0.9)
    async with plane(mirror) as running:
        await created(running)
        await asyncio.sleep(4 * STALLED_S)
        assert (await created(running))[1] == LAZY
    mirror = FakeMirror(converts_s=4 * STALLED_S * 1.2)
    async with plane(mirror) as running:
        await created(running)
        await asyncio.sleep(STALLED_S + 30)
        why = (await created(running))[0].image_pulled_why
        assert "its conversion stands still for 900 s: converting, 0 of 4 layers" in why


async def test_each_architecture_that_the_nodes_and_the_image_have_is_proven() -> None:
    mirror, sidecars = FakeMirror(architectures=("amd64", "arm64", "s390x")), FakeSidecars()
    async with plane(mirror, sidecars=sidecars, arches=("amd64", "arm64")) as running:
        await created(running)
        await asyncio.sleep(60)
        assert mirror.lazy[KEY].booted
        ended = await running.deps.store.find(BOOTS, {}, None)
        assert sorted(one.spec.node_selector["kubernetes.io/arch"] for one in ended) == ["amd64", "arm64"]
        assert len(sidecars.tries) == 2


async def test_a_start_that_does_not_get_ready_from_a_converted_copy_goes_on_with_the_plain_one() -> None:
    mirror = FakeMirror()
    mirror.lazy[KEY] = Converted(CONVERTED, booted=True)
    async with plane(mirror) as running:
        running.cluster.hangs = PRIVATE.converted
        creating = asyncio.create_task(created(running, timeout_ms=60_000))
        await asyncio.sleep(2)
        (waiting,) = running.cluster.held
        running.cluster.place(waiting, "n1")
        sandbox, image = await creating
        assert (image, sandbox.id, running.cluster.undone) == (PLAIN, waiting, [waiting])
        assert (sandbox.image_pulled, sandbox.image_ran) == ("full", RAN)
        assert "from its converted copy it was not ready after 3" in sandbox.image_pulled_why
        timeline = (await running.api("GET", f"/v1/sandboxes/{sandbox.id}/timeline")).json
        assert "begun anew, with its image whole" in str(timeline["moments"])
        assert sample(running, "rollbox_image_pulls_total", how="full", reason="fallback") == 1
        # Those that come next do not try, for a while.
        later, image = await created(running)
        assert image == PLAIN
        assert "a sandbox was not ready" in later.image_pulled_why


async def test_a_start_that_fits_nowhere_is_no_failure_of_its_converted_copy() -> None:
    mirror = FakeMirror()
    mirror.lazy[KEY] = Converted(CONVERTED, booted=True)
    async with plane(mirror) as running:
        running.cluster.hangs = PRIVATE.converted
        with pytest.raises(Problem, match="was not ready within") as caught:
            await created(running, timeout_ms=30_000)
        assert caught.value.code == "start_timeout"
        running.cluster.hangs = ""
        assert running.cluster.undone == []
        assert (await created(running))[1] == LAZY


async def test_lazy_does_not_fall_back_and_the_next_automatic_start_gets_the_plain_copy() -> None:
    mirror = FakeMirror()
    mirror.lazy[KEY] = Converted(CONVERTED, booted=True)
    async with plane(mirror) as running:
        running.cluster.hangs = PRIVATE.converted
        creating = asyncio.create_task(created(running, "lazy", timeout_ms=30_000))
        await asyncio.sleep(2)
        running.cluster.place(next(iter(running.cluster.held)), "n1")
        with pytest.raises(Problem, match="was not ready within"):
            await creating
        assert running.cluster.undone == []
        assert (await created(running))[1] == PLAIN


async def test_a_start_that_the_cluster_reports_as_failed_for_its_image_counts_too() -> None:
    mirror = FakeMirror()
    mirror.lazy[KEY] = Converted(CONVERTED, booted=True)
    async with plane(mirror) as running:
        running.cluster.hangs = PRIVATE.converted
        creating = asyncio.create_task(created(running))
        await asyncio.sleep(2)
        (waiting,) = running.cluster.held
        running.cluster.kill(Death(waiting, "image_pull_failed", "a layer is gone"))
        with pytest.raises(Problem, match="a layer is gone"):
            await creating
        assert (await created(running))[1] == PLAIN


async def test_what_could_not_be_read_in_a_sandbox_is_not_started_from_by_itself() -> None:
    mirror = FakeMirror()
    mirror.lazy[KEY] = Converted(CONVERTED, booted=True)
    async with plane(mirror) as running:
        assert (await created(running))[1] == LAZY
        running.cluster.lazy.unreadable[CONVERTED] = "on node n1: a chunk has another digest"
        sandbox, image = await created(running)
        assert image == PLAIN
        assert "could not be read on node n1: a chunk has another digest" in sandbox.image_pulled_why
        assert sample(running, "rollbox_image_pulls_total", how="full", reason="failed") == 1
        # Who asks for it gets it.
        assert (await created(running, "lazy"))[1] == LAZY


async def test_nodes_that_mount_nothing_now_are_told() -> None:
    mirror = FakeMirror()
    mirror.lazy[KEY] = Converted(CONVERTED, booted=True)
    async with plane(mirror) as running:
        running.cluster.lazy.images, running.cluster.lazy.trouble = (
            "",
            "1 nodes mount no images now, n1 among them: it hangs",
        )
        sandbox, image = await created(running)
        assert (image, sandbox.image_pulled_why) == (PLAIN, running.cluster.lazy.trouble)
        assert sample(running, "rollbox_image_pulls_total", how="full", reason="snapshotter") == 1


async def test_a_sandbox_that_does_not_start_says_nothing_about_the_image() -> None:
    mirror = FakeMirror()
    async with plane(mirror) as running:
        await created(running)
        await asyncio.sleep(5)
        running.cluster.next_error = Problem("capacity_unavailable", "no node")
        await asyncio.sleep(20)
        assert mirror.lazy[KEY].booted is None
        assert "no node" in (await created(running))[0].image_pulled_why
        await asyncio.sleep(FAILED_MS / 1000)
        await created(running)
        await asyncio.sleep(60)
        assert (await created(running))[1] == LAZY
        assert len(mirror.conversions) == 1


async def test_what_its_node_has_fetched_whole_is_not_offered_and_tried_again() -> None:
    mirror = FakeMirror()
    async with plane(mirror) as running:
        running.cluster.node_images.fetched_whole.add(CONVERTED)
        await created(running)
        await asyncio.sleep(60)
        sandbox, image = await created(running)
        assert image == PLAIN
        assert "node n1 has fetched it whole" in sandbox.image_pulled_why
        running.cluster.node_images.fetched_whole.clear()
        await asyncio.sleep(FAILED_MS / 1000)
        await created(running)
        await asyncio.sleep(60)
        assert (await created(running))[1] == LAZY


async def test_another_control_plane_knows_what_was_converted() -> None:
    mirror = FakeMirror()
    async with plane(mirror) as running:
        await created(running)
        await asyncio.sleep(60)
    async with plane(mirror) as running:
        assert (await created(running))[1] == LAZY
        assert running.sidecars.tries == []


async def test_a_mirror_that_does_not_say_what_it_has_holds_no_start_up() -> None:
    mirror = FakeMirror(finds_s=60)
    mirror.lazy[KEY] = Converted(CONVERTED, booted=True)
    async with plane(mirror) as running:
        sandbox, image = await asyncio.wait_for(created(running), 5)
        assert image == PLAIN
        assert "the mirror did not answer within 2 s" in sandbox.image_pulled_why
        assert sample(running, "rollbox_image_pulls_total", how="full", reason="unknown") == 1
        mirror.finds_s = 0
        assert (await created(running))[1] == LAZY


async def test_a_bounded_number_of_images_waits() -> None:
    mirror = FakeMirror(converts_s=50)
    async with plane(mirror) as running:
        for number in range(MOST_WAITING + 3):
            await created(running, image=f"image{number}:1")
        assert sample(running, "rollbox_image_conversions_total", outcome="dropped") > 0


async def test_a_failure_that_nobody_foresaw_ends_one_conversion_alone() -> None:
    mirror = FakeMirror()
    async with plane(mirror) as running:
        mirror.refusal = RuntimeError("a bug")  # type: ignore[assignment]
        await created(running, image="debian:12")
        await asyncio.sleep(30)
        mirror.refusal = None
        assert (await created(running, "lazy"))[1] == LAZY


async def test_a_prefetch_gets_what_starts_would_get() -> None:
    mirror = FakeMirror()
    async with plane(mirror) as running:
        for name in (PLAIN, LAZY):
            answer = await running.api("POST", "/v1/images/prefetch", body={"images": ["python:3"]})
            assert answer.status == 200, answer
            assert running.cluster.node_images.prefetched[-1] == name
            # It is pulled for starts; that it is converted is for a start to ask for.
            assert mirror.conversions == []
            mirror.lazy[KEY] = Converted(CONVERTED, booted=True)
            await asyncio.sleep(120)


async def test_sandboxes_that_try_images_are_nobodys() -> None:
    async with plane(FakeMirror()) as running:
        await created(running)
        await asyncio.sleep(60)
        listed = (await running.api("GET", "/v1/sandboxes")).json["sandboxes"]
        assert {one["owner"] for one in listed} == {OWNER}
        ended = await running.deps.store.find(BOOTS, {}, None)
        assert [one.state for one in ended] == [State.ENDED]


async def test_a_start_that_another_replica_takes_over_runs_what_was_chosen() -> None:
    mirror = FakeMirror()
    mirror.lazy[KEY] = Converted(CONVERTED, booted=True)
    async with plane(mirror) as running:
        sandbox, _ = await created(running)
        pin = await running.service._core.images.pin(sandbox)
        assert running.service._core.images.copied(pin).name == LAZY
