"""Puts a simulation together, and lets its phases follow one another."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from controlplane.cluster.kubernetes.api_server.client import KubernetesClient
from tests.cluster.layout import KUBECONFIG
from tests.scale import cluster
from tests.scale.added_nodes import TLS_FOLDER, added_nodes, values
from tests.scale.phases import Simulation
from tests.scale.played import sidecars_program
from tests.scale.pods import Sidecars
from tests.scale.product import product
from tests.scale.usage import Samples

PARTS = 2
# The zone of the nodes that are lost.
LOST = "b"


async def opened(
    stack: AsyncExitStack, options: argparse.Namespace, folder: Path, *, most_added: int = 0
) -> Simulation:
    """A running product without sandboxes, whose scaler may add so many nodes; 0: it has none."""
    if most_added:
        cluster.VALUES += values(most_added, options.per_node)
    made = await stack.enter_async_context(product(folder / "work", names=not options.without_names))
    zones = _zones(options)
    for zone, names in zones.items():
        await cluster.start_nodes(made, zone, names, options.per_node)
    api = await stack.enter_async_context(KubernetesClient.connect(KUBECONFIG))
    provider = None
    if most_added:
        made.settings[TLS_FOLDER] = str(folder / "work/provider")
        provider = await stack.enter_async_context(added_nodes(api, folder / "work/provider", options.per_node))
    sidecars = await Sidecars.start(sidecars_program(), folder / "work/sidecars.log")
    made.parts["sidecars"] = sidecars.process
    await stack.enter_async_context(_beside(sidecars.follow(api, cluster.SANDBOXES)))
    await made.start_redis()
    for number in range(PARTS):
        await made.start_plane(f"plane-{number}")
    for number in range(PARTS):
        await made.start_gateway(f"gateway-{number}")
    clients = [await stack.enter_async_context(made.client(f"gateway-{number}")) for number in range(PARTS)]
    samples = Samples()
    await stack.enter_async_context(_beside(samples.take(made.pids, lambda: len(sidecars.pods_running))))
    return Simulation(made, sidecars, api, clients, samples, zones[LOST], provider)


async def phases(simulation: Simulation, options: argparse.Namespace) -> None:
    """All of them."""
    count = options.nodes * options.per_node
    await simulation.bare(min(options.bare, count))
    await simulation.fill(count)
    await simulation.execs()
    await simulation.churn(options.churn)
    await simulation.upgrade()
    await simulation.nodes_lost(LOST)
    await simulation.settle()
    await simulation.nodes_go()


def lost(options: argparse.Namespace) -> int:
    """How many nodes are lost: one; of a long simulation a third, which is a zone."""
    return options.nodes // 3 if options.long else 1


def _zones(options: argparse.Namespace) -> dict[str, list[str]]:
    names = [f"played-{number}" for number in range(options.nodes)]
    return {"a": names[lost(options) :], LOST: names[: lost(options)]}


@asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """While the block runs; what fails there ends the block."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work)
        try:
            yield
        finally:
            task.cancel()
