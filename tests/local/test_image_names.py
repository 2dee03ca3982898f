"""Names of images that an engine does not have: whose mistake they are, and what is said of them."""

from __future__ import annotations

import asyncio

import pytest

from rollbox import Client
from rollbox.errors import ImageNotFound, ImagePullFailed
from tests.support.images import IMAGE


async def test_a_registry_with_a_port_is_asked(client: Client) -> None:
    asked = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        del reader
        asked.set()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises((ImageNotFound, ImagePullFailed)) as refused:
            await client.create(f"127.0.0.1:{port}/team/app:1")
    assert asked.is_set()
    assert f"127.0.0.1:{port}/team/app:1" in refused.value.detail


async def test_a_local_image_that_is_absent_is_told_beside_the_nearest(client: Client) -> None:
    repository, _, tag = IMAGE.rpartition(":")
    for name, said in (
        (repository, f"has the tag `latest`, and this machine has {IMAGE}"),
        (f"{repository}:no-such-tag", f"of that name this machine has {IMAGE}"),
        (f"{repository}n:{tag}", f"similar names on this machine: {IMAGE}"),
    ):
        with pytest.raises(ImageNotFound) as refused:
            await client.create(name)
        assert said in refused.value.detail
