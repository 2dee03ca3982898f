"""A release with all its parts, and a Prometheus that scrapes it, for all tests here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cluster.layout import STATE
from tests.e2e.test_lazy_starts import AGENT, Place, open_place
from tests.observability.live.scraping import Prometheus, scraping
from tests.support.installed import node_address, own_cluster
from tests.support.prometheus import why_no_prometheus
from tests.support.stack import free_port
from tests.support.waiting import until


@dataclass(frozen=True)
class Watched:
    """The release, and what scrapes it."""

    place: Place
    prometheus: Prometheus


async def _peers() -> tuple[str, ...]:
    address = await node_address()
    return (
        "registry.peers.enabled=true",
        *(f"registry.peers.{one}={free_port(address)}" for one in ("port", "localPort", "metricsPort")),
        f"registry.peers.content={STATE / 'containerd/io.containerd.content.v1.content'}",
        "registry.peers.resources.requests.cpu=5m",
    )


@asynccontextmanager
async def _opened(folder: Path) -> AsyncIterator[Watched]:
    async with (
        open_place(folder, *AGENT, *await _peers()) as place,
        scraping(place.stack.namespace, folder) as prometheus,
    ):
        await until(lambda: _all_answer(prometheus), 120)
        yield Watched(place, prometheus)


async def _all_answer(prometheus: Prometheus) -> bool:
    """Whether every pod that says it is to be scraped has answered."""
    targets = await prometheus.targets()
    return bool(targets) and all(one["health"] == "up" for one in targets)


@pytest.fixture(scope="session")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    if (reason := why_no_prometheus()) is not None:
        pytest.skip(reason)
    if not own_cluster():
        pytest.skip("a given cluster's nodes do not know the registry of a test")
    with asyncio.Runner() as runner:
        opening = _opened(tmp_path_factory.mktemp("watched"))
        yield runner.run(opening.__aenter__())
        runner.run(opening.__aexit__(None, None, None))
