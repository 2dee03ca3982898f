"""The played cluster of a soak: it takes its time, and it is the witness of what was started, stopped, run and died.

    python -m tests.chaos.cluster SOCKET BOOT_MS SEED LOG

Speaks as the stagehand of the benchmarks. It tells deaths too, and lets die what the storm wants dead.
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
NODES = 4


class Witness(Stagehand):
    """The cluster: acts a little after it was asked, answers a little after it has acted."""

    def __init__(self, boot_s: float, port: int, sidecars: Watched, draw: random.Random, log: Log) -> None:
        super().__init__(boot_s, port)
        self._sidecars = sidecars
        self._draw = draw
        self._log = log
        self._dead: dict[str, str] = {}  # the cause, until it is taken off
        self._watching: set[asyncio.StreamWriter] = set()
        sidecars.die = self._dies

    async def serve(self, lines: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        """Serve one control plane until it leaves; what it has asked for is done also when it dies."""
        self._watching.add(answers)
        async with asyncio.TaskGroup() as group:
            try:
                while line := await lines.readline():
                    group.create_task(self._answer(json.loads(line), answers))
            except OSError:
                pass
        self._watching.discard(answers)
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
            self._dead.pop(name, None)
            self._log.tell("cluster.stop", id=name)
        return value

    def _do(self, wish: dict[str, Any]) -> Any:
        match wish["do"]:
            case "die":
                return self._let_die(wish["how"])
            case "list":
                return [[*one, self._dead.get(one[0], "")] for one in super()._do(wish)]
        return super()._do(wish)

    def _let_die(self, how: str) -> int:
        """Let a pod, a node or a sidecar die, or whichever pod is configured next; how many died now."""
        alive = sorted(self._held.keys() - self._dead.keys())
        if how == "claim":
            self._sidecars.doomed += 1
        if how == "claim" or not alive:
            return 0
        victim = self._draw.choice(alive)
        if how == "sidecar":
            self._log.tell("cluster.died", id=victim, code="sandbox_lost")
            self._sidecars.gone(victim)
            return 1
        victims = [victim] if how == "pod" else [name for name in alive if _node(name) == _node(victim)]
        for name in victims:
            self._dies(name, "sandbox_lost" if how == "pod" else "node_lost")
        return len(victims)

    def _dies(self, name: str, cause: str = "sandbox_lost") -> None:
        self._log.tell("cluster.died", id=name, code=cause)
        self._dead[name] = cause
        self._sidecars.gone(name)
        for watching in self._watching:
            if not watching.is_closing():
                watching.write(json.dumps({"death": cause, "id": name}).encode() + b"\n")

    async def _push(self, name: str, one: Held) -> int:
        status = await super()._push(name, one)
        if 200 <= status < 300 and name in self._sidecars.lives:
            self._sidecars.acknowledged.add(name)
        return status


def _node(name: str) -> int:
    """On which node a pod is."""
    return sum(name.encode()) % NODES


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
