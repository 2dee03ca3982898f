"""The played cluster of a soak: it takes its time, and it is the witness of what was started, stopped and run.

    python -m tests.chaos.cluster SOCKET BOOT_MS SEED LOG

Speaks as the stagehand of the benchmarks.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from pathlib import Path
from typing import Any

import uvloop
from grpc import aio

from controlplane.wire import agent_pb2_grpc
from tests.bench.lifecycle.stagehand import Held, Stagehand
from tests.chaos.events import Log
from tests.chaos.sidecars import Life, Watched

# What an API server takes to answer, before it acts and after it, at most.
SLOW_S = 0.1


class Witness(Stagehand):
    """The cluster: acts a little after it was asked, answers a little after it has acted."""

    def __init__(self, boot_s: float, port: int, sidecars: Watched, draw: random.Random, log: Log) -> None:
        super().__init__(boot_s, port)
        self._sidecars = sidecars
        self._draw = draw
        self._log = log

    async def serve(self, lines: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        """Serve one control plane until it leaves; what it has asked for is done also when it dies."""
        async with asyncio.TaskGroup() as group:
            try:
                while line := await lines.readline():
                    group.create_task(self._answer(json.loads(line), answers))
            except OSError:
                pass
        answers.close()

    async def _answer(self, wish: dict[str, Any], answers: asyncio.StreamWriter) -> None:
        slow = wish["do"] in ("start", "stop", "annotate")
        if slow:
            await asyncio.sleep(self._draw.uniform(0, SLOW_S))
        value = self._acted(wish)
        if slow:
            await asyncio.sleep(self._draw.uniform(0, SLOW_S))
        if not answers.is_closing():
            answers.write(json.dumps({"call": wish["call"], "value": value}).encode() + b"\n")

    def _acted(self, wish: dict[str, Any]) -> Any:
        name, before = wish.get("id", ""), len(self._held)
        value = self._do(wish)
        if len(self._held) > before:
            self._sidecars.lives[name] = Life()
            self._log.tell("cluster.start", id=name)
        elif len(self._held) < before:
            self._sidecars.gone(name)
            self._log.tell("cluster.stop", id=name)
        return value

    async def _push(self, name: str, one: Held) -> int:
        status = await super()._push(name, one)
        if 200 <= status < 300 and name in self._held:
            self._sidecars.acknowledged.add(name)
        return status


async def main(socket: Path, boot_ms: float, seed: int, log: Log) -> None:
    """Serve until killed."""
    server, sidecars = aio.server(options=[("grpc.so_reuseport", 0)]), Watched(random.Random(seed), log)
    agent_pb2_grpc.add_AgentServicer_to_server(sidecars, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("0.0.0.0:0")
    cluster = Witness(boot_ms / 1000, port, sidecars, random.Random(seed + 1), log)
    await server.start()
    async with await asyncio.start_unix_server(cluster.serve, str(socket), limit=2**26) as listening:
        print(port, flush=True)
        await listening.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), Log(Path(sys.argv[4]))))
