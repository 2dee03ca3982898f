"""What a control plane leaves that is killed in the middle of a build: the next one removes it."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from uuid import uuid4

import pytest

from rollbox import Client
from rollbox.errors import SandboxError
from tests.support.containers import engine, list_images
from tests.support.images import IMAGE
from tests.support.product import containers_of_state
from tests.support.stack import Stack, start, stop_process
from tests.support.waiting import until


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short state folder."""
    made = Path(tempfile.mkdtemp(prefix="rb-", dir="/tmp"))
    yield made
    shutil.rmtree(made)


async def images(state: Path) -> list[str]:
    """Of steps of builds, and of their files."""
    label = await installation(state)
    steps = await list_images("--all", "--quiet", "--no-trunc", "--filter", f"label=rollbox.steps={label}")
    named = await list_images("--format", "{{.Repository}}")
    return [*steps.split(), *(one for one in named.split() if f"rollbox-files-{label}" in one)]


async def installation(state: Path) -> str:
    async with Client(*credentials(state)) as client, await client.create(IMAGE) as sandbox:
        seen = json.loads(await engine("inspect", f"rollbox-{sandbox.id}-target"))
        return str(seen[0]["Config"]["Labels"]["rollbox.installation"])


def credentials(state: Path) -> tuple[str, str]:
    told = json.loads((state / "client.json").read_text())
    return told["url"], told["api_key"]


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Stack]:
    up = await start(folder)
    try:
        yield up
    finally:
        if up.process.returncode is None:
            await stop_process(up.process)


async def begun(up: Stack, context: Path) -> asyncio.Task[None]:
    """A build that has made two steps and is in its third, which has no end."""
    looping = asyncio.Event()

    async def read() -> None:
        async with Client(up.url, up.api_key) as client:
            with suppress(SandboxError):
                async for progress in client.build(context):
                    if "RUN while" in progress.text:
                        looping.set()

    reading = asyncio.create_task(read())
    await looping.wait()
    return reading


@pytest.mark.tools
async def test_a_build_of_a_control_plane_that_was_killed_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    mark = uuid4().hex
    text = f"FROM {IMAGE}\nCOPY <<EOF /mark\n{mark}\nEOF\nRUN echo {mark} > /x\nRUN while :; do sleep 1; done\n"
    (tmp_path / "Dockerfile").write_text(text)
    async with running(folder) as up:
        before = set(await images(folder))
        reading = await begun(up, tmp_path)
        up.process.kill()
        await up.process.communicate()
    reading.cancel()
    await asyncio.wait([reading])
    assert [one for one in await containers_of_state(folder) if one.startswith("rollbox-build-")]
    assert list((folder / "builds").iterdir())

    async with running(folder) as up:

        async def clean() -> bool:
            # Each look makes and removes a sandbox, behind which it is swept again.
            left = [one for one in await containers_of_state(folder) if one.startswith("rollbox-build-")]
            return not left and set(await images(folder)) <= before and not list((folder / "builds").iterdir())

        await until(clean)
        # It builds as ever.
        (tmp_path / "Dockerfile").write_text(text.replace("while :; do sleep 1; done", "true"))
        async with Client(up.url, up.api_key) as client:
            built = await client.build(tmp_path)
            assert not list((folder / "builds").iterdir())
            await client.remove_image(built)
        assert await stop_process(up.process) == 0
