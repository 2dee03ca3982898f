"""`make demo` and `make demo-cluster`: the product, the HumanEval example against it, and nothing left behind."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from tests.support.containers import left_containers
from tests.support.images import ON_CLUSTER, ON_ENGINE
from tests.support.installed import installed
from tests.support.stack import Product, running, why_no_engine

ROOT = Path(__file__).parent.parent.parent
EXAMPLE = ROOT / "sdk" / "examples" / "humaneval.py"


async def main(arguments: list[str]) -> int:
    """Run the example as a user would; its exit status, or 1 when something is left behind."""
    if "--cluster" in arguments:
        return await on_cluster([argument for argument in arguments if argument != "--cluster"])
    return await on_engine(arguments)


async def on_engine(arguments: list[str]) -> int:
    """Against `rollbox up` on this machine."""
    reason = why_no_engine()
    if reason is not None:
        print(f"The demo cannot run here: {reason}.", file=sys.stderr)
        return 1
    # Not those of a run that was killed with all that would have cleaned up after it.
    before = await left_containers()
    async with running() as stack:
        status = await _grade(stack, ON_ENGINE, "demo", arguments)
    left = {*await left_containers()} - {*before}
    print(f"rollbox is down; containers left behind: {len(left)}")
    return status or (1 if left else 0)


async def on_cluster(arguments: list[str]) -> int:
    """Against the chart on the cluster; ``installed`` raises when uninstalling leaves anything."""
    async with installed() as product:
        status = await _grade(product, ON_CLUSTER, "demo-cluster", arguments)
    print("rollbox is uninstalled; objects left behind: 0")
    return status


async def _grade(product: Product, image: str, folder: str, arguments: list[str]) -> int:
    print(f"rollbox is up at {product.url}", flush=True)
    environment = {**os.environ, "ROLLBOX_URL": product.url, "ROLLBOX_API_KEY": product.api_key}
    options = ("--image", image, "--out", str(ROOT / "build" / folder), *arguments)
    example = await asyncio.create_subprocess_exec(sys.executable, str(EXAMPLE), *options, env=environment)
    return await example.wait()


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main(sys.argv[1:])))
