"""Run the scenarios, write their records, print one table; unmet targets are marked.

python -m tests.bench                     all
python -m tests.bench exec_path memory    these
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from functools import partial

from tests.bench import (
    bridge,
    bridge_streams,
    dataset_builds,
    docker_bridge,
    egress,
    exec_path,
    fusion_bridge,
    gateway_hop,
    grade,
    hosts,
    interpreter,
    memory,
    mounts,
    neighbour,
    prime_bridge,
    surface,
    tls,
    turns,
)
from tests.bench.record import Record
from tests.bench.scenarios import measured, unknown
from tests.support.containers import engine, engine_command
from tests.support.images import ON_ENGINE
from tests.support.stack import Stack, running, why_no_engine

SCENARIOS: dict[str, Callable[[Stack], Awaitable[list[Record]]]] = {
    "exec_path": exec_path.measure,
    "gateway_hop": gateway_hop.measure,
    "memory": memory.measure,
    "egress": egress.measure,
    "surface": surface.measure,
    "interpreter": partial(interpreter.measure, on_cluster=False),
    "mounts": mounts.measure_on_engine,
    "dataset_builds": partial(dataset_builds.measure, image=ON_ENGINE),
    "grade": partial(grade.measure, image=ON_ENGINE),
    "neighbour": partial(neighbour.measure, image=ON_ENGINE),
    "turns": partial(turns.measure, image=ON_ENGINE),
    "tls": tls.measure,
    "bridge": bridge.measure,
    "bridge_streams": bridge_streams.measure,
    "docker_bridge": docker_bridge.measure,
    "prime_bridge": prime_bridge.measure,
    "fusion_bridge": fusion_bridge.measure,
    "hosts": hosts.measure,
    "hosts_rollouts": hosts.measure_rollouts,
}


async def main(names: list[str]) -> int:
    """Run the named scenarios, all when none is named; the exit status is 1 when a target is not met."""
    reason = why_no_engine()
    if reason is not None:
        print(f"The benchmarks cannot run here: {reason}.", file=sys.stderr)
        return 1
    if problem := unknown(SCENARIOS, names):
        print(problem, file=sys.stderr)
        return 2
    of_engine = (await engine("--version")).partition("version ")[2].strip()
    versions = {engine_command(): of_engine, "python": sys.version.split()[0]}
    async with running() as stack:
        return await measured("", {name: partial(one, stack) for name, one in SCENARIOS.items()}, names, versions)


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main(sys.argv[1:])))
