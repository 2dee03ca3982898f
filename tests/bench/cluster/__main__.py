"""Install the chart, run the scenarios on it, write their records, print one table; unmet targets are marked.

python -m tests.bench.cluster                     all
python -m tests.bench.cluster exec_path memory    these
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from functools import partial

from rich.console import Console

from tests.bench import neighbour
from tests.bench.cluster import cold_start, exec_path, memory, names, readiness, surface
from tests.bench.record import Record, save
from tests.bench.table import table
from tests.support.images import ON_CLUSTER
from tests.support.installed import RELEASE, Installed, installed, kubectl, objects, why_no_cluster

# A hundred sandboxes have to fit on a node of two cores: what is set aside for each must not be what bounds them.
VALUES = ("runtimeClass.overhead.cpu=1m",)

SCENARIOS: dict[str, Callable[[Installed], Awaitable[list[Record]]]] = {
    "exec_path": exec_path.measure,
    "cold_start": cold_start.measure,
    "memory": memory.measure,
    "readiness": readiness.measure,
    "names": names.measure,
    "surface": surface.measure,
    "neighbour": partial(neighbour.measure, image=ON_CLUSTER),
}


async def versions() -> dict[str, str]:
    """Of what the figures stand on."""
    node = (await objects("nodes"))[0]["status"]["nodeInfo"]
    server = json.loads(await kubectl("version", "--output", "json"))["serverVersion"]["gitVersion"]
    return {"kubernetes": server, "runtime": node["containerRuntimeVersion"], "python": sys.version.split()[0]}


async def main(names: list[str]) -> int:
    """Run the named scenarios, all when none is named; the exit status is 1 when a target is not met."""
    reason = why_no_cluster()
    if reason is not None:
        print(f"The benchmarks cannot run here: {reason}.", file=sys.stderr)
        return 1
    records: list[Record] = []
    async with installed(RELEASE, *VALUES) as product:
        for name in names or SCENARIOS:
            print(f"measuring {name} ...", file=sys.stderr, flush=True)
            measured = save(f"cluster_{name}", await SCENARIOS[name](product), await versions())
            records += measured
            Console(width=220).print(table(measured))
    unmet = [record.figure for record in records if record.met is False]
    print(f"{len(records)} figures, targets not met: {', '.join(unmet) or 'none'}")
    return 1 if unmet else 0


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main(sys.argv[1:])))
