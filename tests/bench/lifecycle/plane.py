"""A real control plane (`python -m controlplane`, same settings) whose cluster is the stagehand's.

ROLLBOX_BENCH_STAGEHAND=SOCKET [ROLLBOX_BENCH_READY_PORT=PORT] python -m tests.bench.lifecycle.plane

The port is where sidecars push to, when it is not this control plane's own.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import controlplane.__main__ as program
from controlplane.api import serve
from controlplane.capacity import NOTHING, Amounts
from controlplane.cluster.devices import refuse_gpu
from controlplane.cluster.protocol import (
    NO_LAYERS,
    Boot,
    Cluster,
    Committed,
    CommittedImage,
    Death,
    Description,
    ImageState,
    NodeImage,
    NodeStore,
    Observed,
    OpenedFiles,
    Placement,
    PrefetchProgress,
    Pulling,
    SandboxNode,
    Started,
)
from controlplane.errors import Problem
from controlplane.model import SandboxSpec
from controlplane.settings import Settings
from controlplane.telemetry import Metrics

MOST_MILLICORES = 512_000


class PlayedCluster:
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
        refuse_gpu(spec)
        if spec.cpu_millicores.limit > MOST_MILLICORES:
            raise Problem(
                "unsupported", f"cpu_millicores.limit is more than {MOST_MILLICORES}", option="cpu_millicores"
            )

    def check_kernel(self, kernel: str) -> None:
        """Every kernel is right."""

    def starts_at_once(self) -> int:
        return 1024

    starts_per_node = 0

    def placement(self, sandbox_id: str) -> Placement | None:
        return None

    async def placements(self) -> AsyncIterator[Placement]:
        await asyncio.Event().wait()
        yield Placement("", "")

    room = None
    node_drains = None
    names = None

    def request(self, spec: SandboxSpec) -> Amounts:
        return NOTHING

    async def image(self, name: str) -> ImageState:
        return "here"

    async def digest(self, name: str) -> str:
        return ""

    commits = ""

    async def images(self) -> Sequence[NodeImage]:
        return []

    async def node_stores(self) -> Sequence[NodeStore]:
        return ()

    async def remove_image(self, image: NodeImage) -> bool:
        raise Problem("unsupported", f"no node has {image.names}", value="a real cluster")

    def check_prefetch(self) -> None:
        """See ``Cluster.check_prefetch``."""

    async def prefetch(
        self, name: str, nodes: int | None = None, layers: Mapping[str, int] = NO_LAYERS
    ) -> AsyncGenerator[PrefetchProgress, None]:
        yield PrefetchProgress("played", "here")

    async def commit(self, sandbox_id: str, target: str, max_bytes: int, *, squash: bool = False) -> Committed:
        raise Problem("unsupported", "nothing runs here", value="a real cluster")

    async def committed_digest(self, name: str) -> str:
        raise Problem("unsupported", f"there is no {name}", value="a real cluster")

    def lazily(self, spec: SandboxSpec) -> bool:
        return False

    def holding(self, spec: SandboxSpec, layers: Mapping[str, int]) -> Sequence[str]:
        return ()

    def kept_off(self, spec: SandboxSpec, *, lazily: bool) -> frozenset[str]:
        return frozenset()

    def lazy_trouble(self) -> str:
        return ""

    def check_record(self) -> None:
        """See ``Cluster.check_record``."""

    async def opened(self, sandbox_id: str, during: Callable[[], Awaitable[None]]) -> OpenedFiles:
        """See ``Cluster.opened``."""
        await during()
        return OpenedFiles()

    def broken(self, digest: str) -> str:
        return ""

    async def undo_start(self, sandbox_id: str) -> None:
        await self._ask("stop", id=sandbox_id)

    async def committed_images(self, folder: str) -> Sequence[CommittedImage]:
        raise Problem("unsupported", f"nothing is below {folder}", value="a real cluster")

    async def expired_checkpoints(self, before_ms: int) -> Sequence[CommittedImage]:
        raise Problem("unsupported", "nothing is made here", value="a real cluster")

    async def remove_committed(self, image: CommittedImage) -> None:
        raise Problem("unsupported", f"there is no {image.name}", value="a real cluster")

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
