"""Run the scenarios, write their records, print one table; unmet targets are marked. Needs no engine.

python -m tests.bench.lifecycle                  all
python -m tests.bench.lifecycle creates sdk      these
"""

from __future__ import annotations

import asyncio
import platform
import subprocess
import sys
from collections.abc import Awaitable, Callable

from rich.console import Console

from tests.bench.lifecycle import creates, groups, live, saturation, sdk
from tests.bench.record import Record, save
from tests.bench.table import table

SCENARIOS: dict[str, Callable[[], Awaitable[list[Record]]]] = {
    "creates": creates.measure,
    "groups": groups.measure,
    "saturation": saturation.measure,
    "live": live.measure,
    "sdk": sdk.measure,
}


def main(names: list[str]) -> int:
    """Run the named scenarios, all when none is named; the exit status is 1 when a target is not met."""
    redis = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=True).stdout.split()[2]
    versions = {"redis": redis, "python": platform.python_version()}
    records: list[Record] = []
    for name in names or SCENARIOS:
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        records += save(f"lifecycle_{name}", asyncio.run(_measured(name)), versions)
    Console(width=200).print(table(records))
    return 0 if all(r.met is not False for r in records) else 1


async def _measured(name: str) -> list[Record]:
    return await SCENARIOS[name]()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
