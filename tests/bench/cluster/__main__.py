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

from tests.bench import dataset_builds, grade, interpreter, mounts, turns
from tests.bench.cluster import (
    builds,
    cold_start,
    commits,
    egress,
    exec_path,
    images,
    memory,
    names,
    neighbour,
    readiness,
    surface,
)
from tests.bench.record import Record
from tests.bench.scenarios import measured, unknown
from tests.support.images import ON_CLUSTER
from tests.support.installed import RELEASE, Installed, installed, kubectl, objects, why_no_cluster
from tests.support.release import LAZY

# A hundred sandboxes have to fit on a node of two cores: what is set aside for each must not be what bounds them.
VALUES = ("runtimeClass.overhead.cpu=1m", *LAZY)

SCENARIOS: dict[str, Callable[[Installed], Awaitable[list[Record]]]] = {
    "exec_path": exec_path.measure,
    "cold_start": cold_start.measure,
    "memory": memory.measure,
    "readiness": readiness.measure,
    "names": names.measure,
    "surface": surface.measure,
    "interpreter": partial(interpreter.measure, on_cluster=True),
    "mounts": mounts.measure_on_cluster,
    "grade": partial(grade.measure, image=ON_CLUSTER),
    "turns": partial(turns.measure, image=ON_CLUSTER),
    "neighbour": neighbour.measure,
    "images": images.measure,
    "commits": commits.measure,
    "builds": builds.measure,
    "dataset_builds": dataset_builds.measure_on_cluster,
    "egress": egress.measure,
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
    if problem := unknown(SCENARIOS, names):
        print(problem, file=sys.stderr)
        return 2
    async with installed(RELEASE, *VALUES) as product:
        on_it = {name: partial(one, product) for name, one in SCENARIOS.items()}
        return await measured("cluster_", on_it, names, await versions())


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main(sys.argv[1:])))
