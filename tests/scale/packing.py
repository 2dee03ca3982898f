"""Fill a part of a simulated cluster with sandboxes of many sizes, and count the nodes that they take.

python -m tests.scale.packing                  48 nodes, 600 sandboxes, with the chart's scheduler
python -m tests.scale.packing --spread         the same with the cluster's own scheduler

API server, schedulers, control planes, gateways and SDK are real, as in `tests.scale`; the chart's scheduler has the
configuration and the rights that the chart gives it. Prints a line of JSON; without --spread it ends with 1 if the
sandboxes take over 5 % more nodes than their requests add up to.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from tests.cluster.toolchain import built, program
from tests.scale import apart
from tests.scale.played import sidecars_program

if TYPE_CHECKING:
    from tests.scale.phases import Simulation

STATE = Path(__file__).parent.parent.parent / "build/scale-packing/work"
# Of one node; the sizes of sandboxes are shares of it, so that few of them fill one and none fits exactly.
CORES = 256
SIZES = (3, 7, 11, 24, 38)
# How many nodes they may take, of those that the sum of their requests fills.
MOST_OF_BOUND = 1.05
PORT = 10260
SEED = 7


def parsed(words: Sequence[str]) -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.scale.packing")
    parser.add_argument("--nodes", type=int, default=48, help="how many nodes")
    parser.add_argument("--sandboxes", type=int, default=600, help="how many sandboxes")
    parser.add_argument("--spread", action="store_true", help="with the cluster's own scheduler")
    made = parser.parse_args(words)
    made.long, made.without_names, made.per_node = False, False, 256
    return made


def main(words: list[str]) -> int:
    """Fill and count."""
    options = parsed(words)
    if apart.INSIDE not in os.environ:
        os.environ["ROLLBOX_SCALE_SIDECARS"] = str(sidecars_program())
        built("kubernetes", "etcd", "kwok", "helm")
    apart.enter("tests.scale.packing", words, STATE / "state")
    return asyncio.run(_filled(options))


async def _filled(options: argparse.Namespace) -> int:
    # They read the folder of the cluster's state when they are imported: `enter` has chosen it.
    from tests.scale import cluster, run  # noqa: PLC0415

    if not options.spread:
        cluster.VALUES.append("packing.enabled=true")
    async with AsyncExitStack() as stack:
        simulation = await run.opened(stack, options, STATE.parent)
        if not options.spread:
            await _start_scheduler(simulation)
        random.seed(SEED)
        sizes = [random.choice(SIZES) for _ in range(options.sandboxes)]
        await _create(simulation, sizes)
        taken = Counter(pod.node for pod in simulation.sidecars.running.values())
        needed = ceil(sum(sizes) / CORES)
        told = {"sandboxes": sum(taken.values()), "nodes": len(taken), "needed": needed, "of": options.nodes}
        print(json.dumps({**told, "by_node": sorted(taken.values(), reverse=True)}))
    return int(len(taken) > ceil(MOST_OF_BOUND * needed) and not options.spread)


async def _create(simulation: Simulation, sizes: Sequence[int]) -> None:
    from tests.scale.phases import IMAGE, START_TIMEOUT_S  # noqa: PLC0415

    more = {"memory": ("32Mi", "1Gi"), "lease": None, "start_timeout": START_TIMEOUT_S}
    async with asyncio.TaskGroup() as creating:
        for number, cores in enumerate(sizes):
            client = simulation.clients[number % len(simulation.clients)]
            creating.create_task(client.create(IMAGE, cpu=(cores, cores), **more))  # type: ignore[arg-type]


async def _start_scheduler(simulation: Simulation) -> None:
    """The chart's, with its own account and its own configuration."""
    from tests.cluster import options  # noqa: PLC0415
    from tests.cluster.kubectl import answers, kubectl  # noqa: PLC0415
    from tests.cluster.layout import KUBECONFIG  # noqa: PLC0415
    from tests.scale.cluster import RELEASE  # noqa: PLC0415

    name, product = f"{RELEASE}-scheduler", simulation.product
    account, settings = product.folder / "scheduler.kubeconfig", product.folder / "scheduler.yaml"
    given = json.loads(KUBECONFIG.read_text())
    token = await asyncio.to_thread(kubectl, "create", "token", name, "-n", RELEASE, "--duration=24h")
    given["users"][0]["user"] = {"token": token.strip()}
    account.touch(mode=0o600)
    account.write_text(json.dumps(given))
    found = await asyncio.to_thread(kubectl, "get", "configmap", name, "-n", RELEASE, "-o", "json")
    config = yaml.safe_load(json.loads(found)["data"]["config.yaml"])
    settings.write_text(yaml.safe_dump({**config, "clientConnection": {"kubeconfig": str(account)}}))
    own = {name: value for name, value in options.served("scheduler").items() if name.startswith("tls")}
    flags = (f"--config={settings}", *options.flags({**own, "secure-port": str(PORT), "bind-address": "127.0.0.1"}))
    await product.start("scheduler", (program("kubernetes", "kube-scheduler"), *flags), {})

    async def up() -> bool:
        return await asyncio.to_thread(answers, f"https://127.0.0.1:{PORT}/healthz")

    await product.until("scheduler", up)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
