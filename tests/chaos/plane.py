"""A control plane of a soak: as that of the benchmarks, on a played cluster in which pods and nodes die.

ROLLBOX_BENCH_STAGEHAND=SOCKET [ROLLBOX_BENCH_READY_PORT=PORT] python -m tests.chaos.plane
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence

import controlplane.__main__ as program
from controlplane.api import serve
from controlplane.cluster.protocol import Death, Observed
from controlplane.errors import TABLE
from tests.bench.lifecycle import plane


class MortalCluster(plane.PlayedCluster):
    """Tells deaths: each when it happens, and all that were not taken off yet with every list."""

    def __init__(self, answers: asyncio.StreamReader, wishes: asyncio.StreamWriter, ready_port: int) -> None:
        super().__init__(answers, wishes, ready_port)
        self._deaths: asyncio.Queue[Death] = asyncio.Queue()

    async def receive(self) -> None:
        """Give every answer to who waits for it, and every death to who watches."""
        while line := await self._answers.readline():
            said = json.loads(line)
            if "death" in said:
                self._deaths.put_nowait(_death(said["id"], said["death"]))
            elif not (waiting := self._waiting.pop(said["call"])).done():
                waiting.set_result(said["value"])

    async def list(self) -> Sequence[Observed]:
        found = await self._ask("list")
        return [
            Observed(name, record, facts, address, _death(name, cause) if cause else None)
            for name, record, facts, address, cause in found
        ]

    async def watch(self) -> AsyncIterator[Death]:
        while True:
            yield await self._deaths.get()


def _death(sandbox_id: str, cause: str) -> Death:
    (code,) = [code for code in TABLE if code == cause]
    return Death(sandbox_id, code, "it died in the played cluster")


if __name__ == "__main__":
    vars(plane)["PlayedCluster"] = MortalCluster
    vars(serve)["opened_cluster"] = plane.played_cluster
    raise SystemExit(program.main())
