"""Two nodes with real containerds: the layers of an image come from the node that has them, and manifests never do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.support.peers import Front, PeerNode, front, peer_nodes
from tests.support.registry import Pusher, registry_server
from tests.support.waiting import until

pytestmark = pytest.mark.apart
MIB = 1 << 20


@pytest.fixture
async def upstream(tmp_path: Path) -> AsyncIterator[Front]:
    with registry_server(tmp_path) as address:
        async with aiohttp.ClientSession() as http, front(address) as before:
            pusher = Pusher(http, address, {})
            await pusher.archive("team/app", "1", {"data": bytes(range(256)) * 4096 * 8})
            await pusher.archive("estargz/app", "1", {"data": b"lazy" * 1000})
            yield before


async def has_told(node: PeerNode, layers: int) -> None:
    """Waits until what a node has fetched is known: that is said behind the pull."""

    async def told() -> bool:
        return await node.counted('rollbox_peers_fetches_total{from="registry"}') >= layers

    await until(told, 20)


async def test_the_second_node_gets_every_layer_from_the_first_while_the_registry_gives_none(
    tmp_path: Path, upstream: Front
) -> None:
    image = f"{upstream.address}/team/app:1"
    async with peer_nodes(tmp_path / "nodes", 3) as (first, second, without):
        for one in (first, second):
            one.knows(upstream.address)
        without.knows(upstream.address, peers=False)
        status, said = await first.pull(image)
        assert status == 0, said
        fetched = len(upstream.layers)
        assert fetched == 2  # its one layer, and its configuration
        await has_told(first, 2)
        upstream.cut = True
        status, said = await without.pull(image)
        assert status != 0, "layers are not cut off"
        asked = len(upstream.layers)
        status, said = await second.pull(image)
        assert status == 0, said
        assert len(upstream.layers) == asked
        status, listed = await second.ctr("images", "list", "-q")
        assert image in listed
        assert await second.counted("rollbox_peers_received_bytes_total") > 1000
        assert await first.counted("rollbox_peers_sent_bytes_total") > 1000


async def test_a_node_that_has_gone_costs_no_pull(tmp_path: Path, upstream: Front) -> None:
    image = f"{upstream.address}/team/app:1"
    async with peer_nodes(tmp_path / "nodes", 2) as (first, second):
        for one in (first, second):
            one.knows(upstream.address)
        status, said = await first.pull(image)
        assert status == 0, said
        await has_told(first, 2)
        # It still says that it has the layers, and has them no more.
        status, said = await first.ctr("images", "rm", "--sync", image)
        assert status == 0, said
        status, said = await second.pull(image)
        assert status == 0, said
        assert len(upstream.layers) == 4


async def test_pulls_of_one_image_at_the_same_time_fetch_it_once(tmp_path: Path, upstream: Front) -> None:
    image = f"{upstream.address}/team/app:1"
    async with peer_nodes(tmp_path / "nodes", 1) as (node,):
        node.knows(upstream.address, peers=False)
        pulls = await asyncio.gather(*(node.pull(image) for _ in range(16)))
        assert [said for status, said in pulls if status] == []
        # What a group needs that comes to one node: one layer and one configuration.
        assert sorted(upstream.layers) == sorted({*upstream.layers})
        assert len(upstream.layers) == 2
