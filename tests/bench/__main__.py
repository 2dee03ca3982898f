"""Run the scenarios, write their records, print one table; unmet targets are marked.

python -m tests.bench                     all
python -m tests.bench exec_path memory    these
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from functools import partial

from rich.console import Console

from tests.bench import exec_path, gateway_hop, memory, neighbour, surface
from tests.bench.record import Record, save
from tests.bench.table import table
from tests.support.containers import engine, engine_command
from tests.support.images import ON_ENGINE
from tests.support.stack import Stack, running, why_no_engine

SCENARIOS: dict[str, Callable[[Stack], Awaitable[list[Record]]]] = {
    "exec_path": exec_path.measure,
    "gateway_hop": gateway_hop.measure,
    "memory": memory.measure,
    "surface": surface.measure,
    "neighbour": partial(neighbour.measure, image=ON_ENGINE),
}


async def main(names: list[str]) -> int:
    """Run the named scenarios, all when none is named; the exit status is 1 when a target is not met."""
    reason = why_no_engine()
    if reason is not None:
        print(f"The benchmarks cannot run here: {reason}.", file=sys.stderr)
        return 1
    records: list[Record] = []
    versions = {engine_command(): (await engine("--version")).strip(), "python": sys.version.split()[0]}
    async with running() as stack:
        for name in names or SCENARIOS:
            print(f"measuring {name} ...", file=sys.stderr, flush=True)
            records += save(name, await SCENARIOS[name](stack), versions)
    Console(width=200).print(table(records))
    return 0 if all(r.met is not False for r in records) else 1


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main(sys.argv[1:])))
