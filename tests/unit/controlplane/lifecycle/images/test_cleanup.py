"""The clean-up of nodes: what it never removes, whom it asks, and what it says."""

import asyncio
from dataclasses import replace

import pytest

from controlplane.cluster import NodeImage
from controlplane.images import ImageOptions, PrivateRegistry, StoreLimit
from controlplane.lifecycle import Options
from controlplane.lifecycle.housekeeping.cleanup import LOOK_EVERY_S, WAIT_S
from controlplane.model import SandboxSpec
from controlplane.telemetry import Levels
from tests.support.fake_cluster import FakeCluster
from tests.support.world import OWNER, World, world

LIMIT = StoreLimit(percent=50)
# The first look, and each further one.
A_LOOK_S = WAIT_S[1] + 10
NEXT_S = LOOK_EVERY_S + WAIT_S[1]


def digest(letter: str) -> str:
    return f"sha256:{64 * letter}"


def image(name: str, letter: str, *, brought_ms: int | None = 1, size_bytes: int = 200, node: str = "n1") -> NodeImage:
    names = (f"docker.io/library/{name}", f"docker.io/library/{name.partition(':')[0]}@{digest(letter)}")
    return NodeImage(node, names, digest(letter), size_bytes, last_used_ms=2, brought_ms=brought_ms)


def by_digest(name: str, letter: str) -> NodeImage:
    return NodeImage("n1", (f"{name}@{digest(letter)}",), digest(letter), 200, last_used_ms=2, brought_ms=1)


def cluster(*images: NodeImage) -> FakeCluster:
    """Nodes of 1000 bytes, of which images may have the half; what is left is 400 at most."""
    made = FakeCluster()
    for one in images:
        made.node_stores.images.setdefault(one.node, {})[one.names[0]] = one
    return made


def left(plane: World, node: str = "n1") -> list[str]:
    return sorted(one.names[0].rpartition("/")[2] for one in plane.cluster.node_stores.images[node].values())


def counted(plane: World) -> dict[str, float]:
    text = plane.deps.metrics.render(Levels({}, 0, 0, 0))[0].decode()
    wanted = ("rollbox_image_removals_total", "rollbox_image_store")
    lines = [line.rpartition(" ") for line in text.splitlines() if line.startswith(wanted)]
    return {name: float(value) for name, _, value in lines if float(value)}


async def test_the_least_used_go_until_the_node_is_at_its_mark() -> None:
    images = [image(f"i{n}:1", str(n)) for n in range(4)]
    async with world(cluster(*images), options=Options(node_images=LIMIT)) as plane:
        await asyncio.sleep(A_LOOK_S)
        assert left(plane) == ["i2:1", "i3:1"]
        assert counted(plane) == {
            'rollbox_image_removals_total{outcome="removed",store="node"}': 2,
            # As it was seen; the next look sees less.
            'rollbox_image_store_bytes{store="node"}': 800,
            'rollbox_image_store_limit_bytes{store="node"}': 500,
        }
        await asyncio.sleep(NEXT_S)
        assert counted(plane)['rollbox_image_store_bytes{store="node"}'] == 400


async def test_each_node_has_its_own_budget() -> None:
    images = [image(f"i{n}:1", str(n), node=node) for node in ("n1", "n2") for n in range(2)]
    async with world(cluster(*images), options=Options(node_images=LIMIT)) as plane:
        await asyncio.sleep(A_LOOK_S)
        assert left(plane) == left(plane, "n2") == ["i0:1", "i1:1"]


async def test_what_somebody_else_has_brought_neither_counts_nor_goes() -> None:
    others = [image(f"other{n}:1", str(n), brought_ms=None, size_bytes=5000) for n in range(2)]
    async with world(cluster(*others, image("ours:1", "a")), options=Options(node_images=LIMIT)) as plane:
        await asyncio.sleep(A_LOOK_S)
        assert left(plane) == ["other0:1", "other1:1", "ours:1"]


async def test_what_a_sandbox_a_pool_or_a_container_needs_stays() -> None:
    made = cluster(
        image("running:1", "a"),
        image("bydigest:1", "b"),
        image("pooled:1", "c"),
        image("contained:1", "d"),
        image("young:1", "e", brought_ms=10**15),
        image("idle:1", "f"),
    )
    held = made.node_stores.images["n1"]["docker.io/library/contained:1"]
    made.node_stores.images["n1"][held.names[0]] = replace(held, containers=1)
    async with world(made, options=Options(node_images=LIMIT)) as plane:
        await plane.create(OWNER, SandboxSpec(image="running:1"))
        await plane.create(OWNER, SandboxSpec(image=f"bydigest@{digest('b')}"))
        pool = {"template": {"image": "pooled:1"}, "min_warm": 0, "max_warm": 1}
        assert (await plane.api("PUT", "/v1/pools/p", body=pool)).status in (200, 201)
        await asyncio.sleep(A_LOOK_S)
        assert left(plane) == ["bydigest:1", "contained:1", "pooled:1", "running:1", "young:1"]


@pytest.mark.parametrize("place", ["docker.io/library", "registry.test:5443/mirror/docker.io/library"])
async def test_a_pool_keeps_what_its_nodes_have_by_digests_alone(place: str) -> None:
    """What nodes pull has a digest, and then no tag; a pool of which nothing runs has no digest on record."""
    made = cluster(
        by_digest(f"{place}/pooled", "a"),
        by_digest(f"{place}/other", "b"),
        by_digest(f"{place}/another", "c"),
    )
    options = Options(node_images=LIMIT, images=ImageOptions(private=PrivateRegistry("registry.test:5443")))
    async with world(made, options=options) as plane:
        pool = {"template": {"image": "pooled:1"}, "min_warm": 0, "max_warm": 0}
        assert (await plane.api("PUT", "/v1/pools/p", body=pool)).status in (200, 201)
        await asyncio.sleep(A_LOOK_S)
        assert [one.partition("@")[0] for one in left(plane)] == ["other", "pooled"]


async def test_a_tag_keeps_no_other_tag_of_its_repository() -> None:
    made = cluster(image("swe:1", "a"), image("swe:2", "b"), image("swe:3", "c"))
    async with world(made, options=Options(node_images=LIMIT)) as plane:
        pool = {"template": {"image": "swe:1"}, "min_warm": 0, "max_warm": 0}
        assert (await plane.api("PUT", "/v1/pools/p", body=pool)).status in (200, 201)
        await asyncio.sleep(A_LOOK_S)
        assert left(plane) == ["swe:1", "swe:3"]


async def test_a_sandbox_that_is_created_during_the_removals_keeps_its_image(monkeypatch: pytest.MonkeyPatch) -> None:
    images = [image(f"i{n:02}:1", f"{n:x}", size_bytes=100) for n in range(16)]
    made = cluster(*images)
    async with world(made, options=Options(node_images=LIMIT)) as plane:
        real, removals = made.node_stores.remove, 0

        async def remove(one: NodeImage) -> bool:
            nonlocal removals
            removals += 1
            if removals == 2:
                await plane.request(OWNER, SandboxSpec(image=f"i05@{digest('5')}"))
            return await real(one)

        monkeypatch.setattr(made.node_stores, "remove", remove)
        await asyncio.sleep(A_LOOK_S)
        assert "i05:1" in left(plane)
        assert counted(plane)['rollbox_image_removals_total{outcome="in_use",store="node"}'] == 1


async def test_the_end_of_a_sandbox_lets_its_image_go() -> None:
    images = [image("running:1", "a"), image("idle:1", "b", size_bytes=400)]
    async with world(cluster(*images), options=Options(node_images=LIMIT)) as plane:
        sandbox = (await plane.create(OWNER, SandboxSpec(image="running:1"))).sandbox
        await asyncio.sleep(A_LOOK_S)
        assert left(plane) == ["running:1"]
        await plane.service.delete(OWNER, sandbox.id, wait_s=5)
        plane.cluster.node_stores.images["n1"]["x"] = image("young:1", "c", brought_ms=10**15, size_bytes=400)
        await asyncio.sleep(NEXT_S)
        assert left(plane) == ["young:1"]


async def test_a_node_that_says_that_an_image_is_in_use_is_believed() -> None:
    images = [image("i0:1", "a"), image("i1:1", "b"), image("i2:1", "c")]
    made = cluster(*images)
    made.node_stores.unremovable.add("docker.io/library/i0:1")
    async with world(made, options=Options(node_images=LIMIT)) as plane:
        await asyncio.sleep(A_LOOK_S)
        assert left(plane) == ["i0:1", "i1:1", "i2:1"]
        told = counted(plane)
        assert told['rollbox_image_removals_total{outcome="in_use",store="node"}'] == 1


@pytest.mark.parametrize("disk_bytes", [None, 1 << 40])
async def test_a_share_of_a_disk_that_is_not_known_or_large_removes_nothing(disk_bytes: int | None) -> None:
    made = cluster(*(image(f"i{n}:1", str(n)) for n in range(9)))
    made.node_stores.disk_bytes = disk_bytes
    async with world(made, options=Options(node_images=LIMIT)) as plane:
        await asyncio.sleep(A_LOOK_S)
        assert len(left(plane)) == 9


async def test_without_a_limit_no_node_is_asked() -> None:
    made = cluster(*(image(f"i{n}:1", str(n)) for n in range(9)))
    async with world(made) as plane:
        await asyncio.sleep(A_LOOK_S)
        assert (len(left(plane)), counted(plane)) == (9, {})


@pytest.mark.parametrize(
    ("text", "limit"),
    [("60%", StoreLimit(percent=60)), ("2Gi", StoreLimit(2 << 30)), ("1000", StoreLimit(1000)), ("0", StoreLimit())],
)
def test_a_limit_is_a_share_or_bytes(text: str, limit: StoreLimit) -> None:
    assert StoreLimit.parse(text) == limit


@pytest.mark.parametrize("text", ["", "0%", "96%", "-1", "2GB", "60 %", "1e9"])
def test_a_bad_limit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be 1% to 95% of the file system"):
        StoreLimit.parse(text)
