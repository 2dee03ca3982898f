"""How long usual work takes in gVisor, against the same under runc: rounds in turn, one container each."""

from __future__ import annotations

from typing import Final

from tests.bench.gvisor import inside
from tests.bench.gvisor.ground import containers
from tests.bench.progress import doing
from tests.bench.record import Baseline, Record, of_rounds
from tests.support.containers import engine

ROUNDS: Final = 3
PROGRAM: Final = "/srv/inside.py"
CONDITIONS: Final = (
    "containers of the engine with one processor and 1 GiB, timed within them; what a work needs is made before it and "
    "is not timed"
)


async def measure() -> list[Record]:
    """The records of this scenario. Cost: some minutes."""
    async with containers("--memory=1g", f"--volume={inside.__file__}:{PROGRAM}:ro") as (runc, runsc):
        return [await _record(work, runc, runsc) for work in inside.WORKS]


async def _record(work: str, runc: str, runsc: str) -> Record:
    doing(work)
    rounds = [(await _ms(runc, work), await _ms(runsc, work)) for _ in range(ROUNDS)]
    before, gvisor = (of_rounds(one) for one in zip(*rounds, strict=True))
    return Record(
        work, gvisor["p50"], "ms", CONDITIONS, Baseline("under runc", before["p50"], before), distribution=gvisor
    )


async def _ms(container: str, work: str) -> float:
    return float(await engine("exec", container, "python3", PROGRAM, work))
