"""Memory of gateway and sidecar over 10,000 execs."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from rollbox import Client
from rollbox.bench import calls
from rollbox.bench.arrivals import closed_loop
from tests.bench.progress import doing
from tests.bench.record import Baseline, Record
from tests.bench.took import took_ms
from tests.support.containers import engine
from tests.support.images import IMAGE
from tests.support.stack import Stack

WARM_UP = 2000
EXECS = 10_000
AT_ONCE = 16


def resident_mib(pid: int) -> float:
    """VmRSS of one process in MiB.

    Raises:
        RuntimeError: the process has no resident memory on record (it is gone).
    """
    match = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    if match is None:
        raise RuntimeError(f"process {pid} has no VmRSS")
    return int(match[1]) / 1024


async def sidecar_pids(sandbox_id: str) -> list[int]:
    """The sidecar of a sandbox, then its spawner: what else is in its control group while no command runs."""
    sidecar = int(await engine("inspect", "--format", "{{.State.Pid}}", f"rollbox-{sandbox_id}-sidecar"))
    groups = _control_groups()
    return [sidecar, *(pid for pid, group in groups.items() if pid != sidecar and group == groups[sidecar])]


def _control_groups() -> dict[int, str]:
    groups = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            # A process may end between the listing and the look.
            with contextlib.suppress(OSError):
                groups[int(entry.name)] = (entry / "cgroup").read_text()
    return groups


async def measure(stack: Stack) -> list[Record]:
    """The records of this scenario. Cost: about 20 s."""
    async with Client(stack.url, stack.api_key) as client, await client.create(IMAGE) as sandbox:
        call = calls.execs([sandbox])
        doing(f"{WARM_UP + EXECS} execs")
        sidecar, *spawners = await sidecar_pids(sandbox.id)
        watched = {"gateway": stack.pids()["rollbox-gateway"], "sidecar": sidecar}
        idle = resident_mib(sidecar)
        took_ms(await closed_loop(AT_ONCE, WARM_UP, call))
        before = {name: resident_mib(pid) for name, pid in watched.items()}
        took_ms(await closed_loop(AT_ONCE, EXECS, call))
        after = {name: resident_mib(pid) for name, pid in watched.items()}
        spawner_mib = sum(resident_mib(pid) for pid in spawners)
    where = f"{EXECS} execs of true, {AT_ONCE} at once in one sandbox, after {WARM_UP} to warm up"
    growth = [
        Record(
            f"{name} memory after {EXECS} execs",
            after[name],
            "MiB",
            where,
            Baseline(f"{name} memory before them", before[name]),
        )
        for name in watched
    ]
    return [
        *growth,
        Record("sidecar memory (VmRSS) after them", after["sidecar"], "MiB", where),
        Record("sidecar memory (VmRSS) idle", idle, "MiB", "fresh sandbox"),
        Record("spawner memory (VmRSS; its pages are mostly shared with the sidecar)", spawner_mib, "MiB", where),
    ]
