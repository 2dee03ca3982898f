"""Any image runs: one without a shell or users, one with settings of its own, one that declares a volume."""

from __future__ import annotations

import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from controlplane.embedded.binaries import required
from rollbox import Client
from rollbox.errors import InvalidArgument
from tests.support.containers import engine, remove_image
from tests.support.images import IMAGE


@asynccontextmanager
async def bare_image(folder: Path, *changes: str) -> AsyncIterator[str]:
    """An image that holds one static program and nothing else: no shell, no users, no folders."""
    name = f"localhost/rollbox/test-{uuid4().hex[:8]}:1"
    archive = folder / "image.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(required("target").resolve(), arcname="app", filter=_executable)
    await engine("import", *_options(changes), str(archive), name)
    try:
        yield name
    finally:
        await remove_image(name)


@asynccontextmanager
async def derived_image(*changes: str) -> AsyncIterator[str]:
    """The runtime image with other settings."""
    name, container = f"localhost/rollbox/test-{uuid4().hex[:8]}:1", f"test-{uuid4().hex[:8]}"
    await engine("create", "--name", container, IMAGE, "true")
    try:
        await engine("commit", *_options(changes), container, name)
    finally:
        await engine("rm", "--force", container)
    try:
        yield name
    finally:
        await remove_image(name)


def _options(changes: tuple[str, ...]) -> list[str]:
    return [f"--change={change}" for change in changes]


def _executable(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.mode, member.uid, member.gid = 0o755, 0, 0
    return member


async def test_an_image_that_is_one_static_program(client: Client, tmp_path: Path) -> None:
    async with bare_image(tmp_path) as image, await client.create(image) as sandbox:
        result = await sandbox.exec(["/app", "--probe"])
        assert (result.end, result.exit_code) == ("exited", 0), result
        assert (await sandbox.exec(["/app", "--probe"], user="1000:1000", cwd="/", env={"A": "b"})).ok
        with pytest.raises(InvalidArgument, match="shell") as refused:
            await sandbox.exec("/app --probe")
        assert refused.value.details["reason"] == "command_not_found"
        with pytest.raises(InvalidArgument) as refused:
            await sandbox.exec(["/app", "--probe"], user="nobody")
        assert refused.value.details["reason"] == "user_not_found"


async def test_the_images_own_user_directory_and_environment_hold(client: Client) -> None:
    changes = ("USER 1234:4321", "WORKDIR /usr/share", "ENV FROM_IMAGE=a=b", "ENV BOTH=image")
    tell = 'echo "$(id -u):$(id -g) $PWD $FROM_IMAGE $BOTH"'
    async with derived_image(*changes) as image:
        async with await client.create(image) as sandbox:
            assert (await sandbox.exec(tell)).stdout == "1234:4321 /usr/share a=b image\n"
            inside = await sandbox.exec(tell, user="0", cwd="/tmp", env={"BOTH": "call"})
            assert inside.stdout == "0:0 /tmp a=b call\n"
        async with await client.create(image, user="nobody", cwd="/usr", env={"BOTH": "sandbox"}) as sandbox:
            assert (await sandbox.exec(tell)).stdout == "65534:65534 /usr a=b sandbox\n"


async def test_a_declared_volume_is_left_nowhere(client: Client) -> None:
    before = set((await engine("volume", "ls", "--quiet")).split())
    async with derived_image("VOLUME /data") as image:
        async with await client.create(image) as sandbox:
            assert (await sandbox.exec("echo kept > /data/file; cat /data/file")).stdout == "kept\n"
            await sandbox.delete(wait=True)
        assert set((await engine("volume", "ls", "--quiet")).split()) <= before


async def test_an_images_own_entrypoint_is_not_run(client: Client) -> None:
    changes = ('ENTRYPOINT ["/no/such/entrypoint"]', 'CMD ["no", "such"]')
    async with derived_image(*changes) as image, await client.create(image) as sandbox:
        assert (await sandbox.exec("echo runs")).stdout == "runs\n"
