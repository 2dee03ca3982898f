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

from tests.bench.ab import measured as ab
from tests.bench.ab import pods
from tests.bench.lifecycle import creates, groups, live, saturation, scrape, sdk, store, switches
from tests.bench.record import Record
from tests.bench.scenarios import measured, unknown

SCENARIOS: dict[str, Callable[[], Awaitable[list[Record]]]] = {
    "creates": creates.measure,
    "groups": groups.measure,
    "saturation": saturation.measure,
    "live": live.measure,
    "scrape": scrape.measure,
    "sdk": sdk.measure,
    "store": store.measure,
    "switches": switches.measure,
    "ab": ab.measure,
    "pods": pods.measure,
}


def main(names: list[str]) -> int:
    """Run the named scenarios, all when none is named; the exit status is 1 when a target is not met."""
    redis = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=True).stdout.split()[2]
    versions = {"redis": redis, "python": platform.python_version()}
    if problem := unknown(SCENARIOS, names):
        print(problem, file=sys.stderr)
        return 2
    return asyncio.run(measured("lifecycle_", SCENARIOS, names, versions))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
