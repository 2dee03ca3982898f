"""Many commands at once in one sandbox: none stalls."""

from __future__ import annotations

import time

from rollbox import Sandbox
from rollbox.bench import calls
from rollbox.bench.arrivals import closed_loop
from tests.bench.progress import doing
from tests.bench.record import Baseline, Record, distribution
from tests.bench.took import took_ms


async def measure(sandbox: Sandbox) -> list[Record]:
    """Throughput at each width against the narrowest, and the longest wait."""
    call = calls.execs([sandbox])
    took_ms(await closed_loop(16, 320, call))
    records: list[Record] = []
    narrow = 0.0
    for at_once, total in calls.CROWD.items():
        doing(f"{at_once} execs at once")
        began = time.perf_counter()
        latencies = distribution(took_ms(await closed_loop(at_once, total, call)))
        rate = total / (time.perf_counter() - began)
        narrow = narrow or rate
        where = f"{total} execs of true, closed loop, one sandbox, one client"
        records += [
            Record(
                f"execs a second, {at_once} at once in one sandbox",
                rate,
                "1/s",
                where,
                None if at_once == 16 else Baseline("16 at once", narrow),
                faster_is="larger",
            ),
            # A stall is an exec that takes many times what its turn takes: the p99 to the p50 of the same width.
            Record(
                f"exec of true, {at_once} at once in one sandbox, p99 against p50",
                latencies["p99"],
                "ms",
                where,
                Baseline("p50 of the same execs", latencies["p50"], latencies),
                distribution=latencies,
            ),
        ]
    return records
