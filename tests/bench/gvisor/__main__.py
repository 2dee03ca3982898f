"""Measure under runc and in gVisor, in turn, write the records, print one table.

python -m tests.bench.gvisor          all
python -m tests.bench.gvisor speed    this one

Needs Podman, and the runsc that `make cluster` builds.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable

from tests.bench.gvisor import sizes, speed
from tests.bench.record import Record
from tests.bench.scenarios import measured, unknown
from tests.support.containers import engine, engine_command
from tests.support.stack import why_no_engine

SCENARIOS: dict[str, Callable[[], Awaitable[list[Record]]]] = {"speed": speed.measure, "sizes": sizes.measure}


async def main(names: list[str]) -> int:
    """Run the named scenarios, all when none is named; the exit status is 1 when one breaks."""
    reason = why_no_engine()
    if reason is not None:
        print(f"The benchmarks cannot run here: {reason}.", file=sys.stderr)
        return 1
    if problem := unknown(SCENARIOS, names):
        print(problem, file=sys.stderr)
        return 2
    of_engine = (await engine("--version")).partition("version ")[2].strip()
    return await measured("gvisor_", SCENARIOS, names, {engine_command(): of_engine, "python": sys.version.split()[0]})


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main(sys.argv[1:])))
