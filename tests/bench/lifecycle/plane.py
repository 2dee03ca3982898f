"""A real control plane (`python -m controlplane`, same settings) whose cluster is the stagehand's.

ROLLBOX_BENCH_STAGEHAND=SOCKET [ROLLBOX_BENCH_READY_PORT=PORT] python -m tests.bench.lifecycle.plane

The port is where sidecars push to, when it is not this control plane's own.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import controlplane.__main__ as program
from controlplane.api import serve
from controlplane.cluster.devices import refuse_gpu
from controlplane.cluster.one_machine import OneMachine
from controlplane.cluster.protocol import (
    Boot,
    Cluster,
    Death,
    Description,
    ImageState,
    Observed,
    Pulling,
    SandboxNode,
    Started,
)
from controlplane.errors import Problem
from controlplane.model import SandboxSpec
from controlplane.settings import Settings
from controlplane.telemetry import Metrics

MOST_MILLICORES = 512_000


class PlayedCluster(OneMachine):
    """As a cluster of Kubernetes is to the control plane: every call is a message to a server, starts end by push.

    It passes `ClusterSuite`.
    """

    annotates_behind = True
    stops_at_once = 64
    own_ports: frozenset[int] = frozenset()

    def __init__(self, answers: asyncio.StreamReader, wishes: asyncio.StreamWriter, ready_port: int) -> None:
        self._answers = answers
        self._wishes = wishes
        self._ready_port = ready_port
        self._calls = itertools.count()
        self._waiting: dict[int, asyncio.Future[Any]] = {}

    async def receive(self) -> None:
        """Give every answer to who waits for it."""
        while line := await self._answers.readline():
            answer = json.loads(line)
            waiting = self._waiting.pop(answer["call"])
            if not waiting.done():
                waiting.set_result(answer["value"])

    def describe(self) -> Description:
        return Description("kubernetes", "played", "1", "gvisor", "Played: nothing runs.", "none")

    def check(self, spec: SandboxSpec) -> None:
        """Nodes of any size are offered, but for what no node has."""
        refuse_gpu(spec, "this is no real cluster")
        if spec.cpu_millicores.limit > MOST_MILLICORES:
            raise Problem(
                "unsupported", f"cpu_millicores.limit is more than {MOST_MILLICORES}", option="cpu_millicores"
            )

    def check_kernel(self, kernel: str) -> None:
        """Every kernel is right."""

    def starts_at_once(self) -> int:
        return 1024

    node_images = None
    node_stores = None
    commits = None
    builds = None
    lazy = None
    mounts = None
    names = None

    async def image(self, name: str) -> ImageState:
        return "here"

    async def digest(self, name: str) -> str:
        return ""

    async def config(self, name: str) -> None:
        return None

    async def undo_start(self, sandbox_id: str) -> None:
        await self._ask("stop", id=sandbox_id)

    def architectures(self) -> frozenset[str]:
        return frozenset()

    async def start(self, sandbox_id: str, spec: SandboxSpec, boot: Boot) -> Started:
        wish = {"id": sandbox_id, "record": boot.record, "ready_token": boot.ready_token}
        await self._ask("start", ready_port=self._ready_port, **wish)
        return Started(None)

    async def stop(self, sandbox_id: str) -> None:
        await self._ask("stop", id=sandbox_id)

    async def pulling(self, sandbox_id: str) -> Pulling | None:
        del sandbox_id
        return None

    async def cpu_us(self, sandbox_id: str) -> int | None:
        return None

    def node_of(self, sandbox_id: str) -> SandboxNode | None:
        return SandboxNode("played", ready=True)

    def pushed(self, sandbox_id: str, address: str) -> None:
        del sandbox_id, address

    async def annotate(self, sandbox_id: str, facts: Mapping[str, str]) -> None:
        await self._ask("annotate", id=sandbox_id, facts=dict(facts))

    async def list(self) -> Sequence[Observed]:
        found = await self._ask("list")
        return [Observed(name, record, facts, address, None) for name, record, facts, address in found]

    async def watch(self) -> AsyncIterator[Death]:
        await asyncio.Event().wait()
        yield Death("", "internal", "nobody dies here")

    async def _ask(self, do: str, **wish: Any) -> Any:
        call = next(self._calls)
        waiting = self._waiting[call] = asyncio.get_running_loop().create_future()
        self._wishes.write(json.dumps({"call": call, "do": do, **wish}).encode() + b"\n")
        return await waiting


@asynccontextmanager
async def played_cluster(settings: Settings, _: Metrics) -> AsyncIterator[Cluster]:
    """Speak to the stagehand while the block runs."""
    answers, wishes = await asyncio.open_unix_connection(os.environ["ROLLBOX_BENCH_STAGEHAND"], limit=2**26)
    cluster = PlayedCluster(answers, wishes, int(os.environ.get("ROLLBOX_BENCH_READY_PORT", settings.ready.port)))
    async with asyncio.TaskGroup() as group:
        hearing = group.create_task(cluster.receive())
        try:
            yield cluster
        finally:
            hearing.cancel()
            wishes.close()


if __name__ == "__main__":
    vars(serve)["opened_cluster"] = played_cluster
    raise SystemExit(program.main())
