"""Images that owners make, from Dockerfiles and of sandboxes: converted as those of others are, and mounted lazily."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollbox import Client, Sandbox
from tests.e2e.test_lazy_starts import AGENT, READ, Place, image, open_place, started
from tests.support.committing import BUILDS
from tests.support.faults import node_part
from tests.support.installed import own_cluster
from tests.support.private_place import images

pytestmark = [pytest.mark.images, pytest.mark.lazily, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A release that builds, commits and converts."""
    if not own_cluster():
        pytest.skip("a given cluster's nodes have no lazy pulling that the tests know of")
    with asyncio.Runner() as runner:
        opening = open_place(tmp_path_factory.mktemp("place"), *AGENT, *BUILDS)
        yield runner.run(opening.__aenter__())
        runner.run(opening.__aexit__(None, None, None))


async def _is_lazy(place: Place, client: Client, sandbox: Sandbox, name: str) -> None:
    record = await client.get(sandbox.id)
    (ran,) = await images(place.stack, sandbox.id)
    assert (record.image_pulled, record.image_digest) == ("lazy", name.rpartition("@")[2])
    assert "/commits/" in ran
    assert "/estargz/" in ran
    print("lazily:", dict(record.timings_ms))


async def test_what_was_built_and_what_is_made_of_its_sandbox_are_mounted_lazily(place: Place, tmp_path: Path) -> None:
    (tmp_path / "added").write_text("by a build\n")
    (tmp_path / "Dockerfile").write_text(f"FROM {image(place)}\nCOPY added /srv/added\n")
    async with Client(place.stack.url, place.stack.api_key) as client:
        built = await client.build(tmp_path)
        async with await started(client, built, "full") as whole:
            content = (await whole.exec(READ, check=True)).stdout
        # The conversion has begun behind the build; this waits for it, and until a sandbox has started from it.
        assert (await client.convert(built)).state == "offered"
        # The node has nothing of it.
        await node_part("restart", "lazy-mounts")
        async with await started(client, built) as sandbox:
            await _is_lazy(place, client, sandbox, built)
            assert (await sandbox.exec(f"{READ}; cat /srv/added", check=True)).stdout == f"{content}by a build\n"
            await sandbox.exec("echo by a command > /srv/more", check=True)
            made = await sandbox.commit("more")
        async with await started(client, made, "lazy") as second:
            await _is_lazy(place, client, second, made)
            read = await second.exec(f"{READ}; cat /srv/added /srv/more", check=True)
            assert read.stdout == f"{content}by a build\nby a command\n"
