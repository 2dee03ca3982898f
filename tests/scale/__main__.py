"""Simulate a cluster of thousands of sandboxes, and write build/scale: report.json, report.md and plots.

python -m tests.scale                          16 nodes of 256 sandboxes, two control planes, two gateways
python -m tests.scale --nodes 2 --per-node 50  a small one
python -m tests.scale --long                   64 nodes of 256 in three zones, one of which is lost

API server, etcd, controllers, scheduler, control planes with their scaler, gateways, Redis and SDK are real; KWOK plays
the nodes, also those that the scaler asks for, and one program all sidecars. Needs root (a network namespace of its
own) and programs of the test cluster's toolchain; touches nothing of that cluster.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from tests.cluster.toolchain import built
from tests.scale import apart
from tests.scale.played import sidecars_program

BUILD = Path(__file__).parent.parent.parent / "build/scale"


def parsed(words: list[str]) -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.scale")
    parser.add_argument("--nodes", type=int, help="how many nodes; 16, or 64 of a long one")
    parser.add_argument("--per-node", type=int, default=256, help="pods that each takes")
    parser.add_argument("--bare", type=int, default=1024, help="bare pods for comparison")
    parser.add_argument("--churn", type=float, default=30.0, help="seconds of churn")
    parser.add_argument("--without-names", action="store_true", help="no headless Services: what they cost")
    parser.add_argument("--long", action="store_true", help="64 nodes in three zones, of which one is lost")
    options = parser.parse_args(words)
    options.nodes = options.nodes or (64 if options.long else 16)
    return options


def main(words: list[str]) -> int:
    """Simulate; 1 when a figure of `judged` is missed."""
    options = parsed(words)
    if apart.INSIDE not in os.environ:
        os.environ["ROLLBOX_SCALE_SIDECARS"] = str(sidecars_program())
        built("kubernetes", "etcd", "kwok", "helm")
    apart.enter("tests.scale", words, BUILD / "work/state")
    return asyncio.run(_simulated(options))


async def _simulated(options: argparse.Namespace) -> int:
    # They read the folder of the cluster's state when they are imported: `enter` has chosen it.
    from tests.scale import plots, report, run  # noqa: PLC0415

    async with AsyncExitStack() as stack:
        simulation = await run.opened(stack, options, BUILD, most_added=run.lost(options) + 1)
        try:
            await run.phases(simulation, options)
        finally:
            report.write(simulation, options, BUILD)
            plots.draw(simulation, BUILD)
    return report.verdict(simulation.report)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
