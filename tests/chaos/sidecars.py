"""The sidecars of the played cluster: a command ends after a while; a repeated exec id joins it, as in the real one."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from controlplane.errors import Problem
from controlplane.errors.rpc import abort
from controlplane.wire import agent_pb2
from tests.bench.lifecycle.stagehand import KERNEL, Sidecars, subject
from tests.chaos.events import Log

# Most commands are short, one in twenty is not.
SHORT_S, LONG_S = 0.2, 2.0


@dataclass
class Run:
    """One command: its end, once it is there."""

    cancelled: asyncio.Event
    ended: asyncio.Task[agent_pb2.ExecResult]


@dataclass
class Life:
    """What the sidecar of one sandbox knows."""

    runs: dict[str, Run] = field(default_factory=dict)
    running: int = 0
    quiet_since_s: float = field(default_factory=time.monotonic)


class Watched(Sidecars):
    """The sidecars: each is the one of the sandbox that the caller's token names.

    Attributes:
        lives: by sandbox; the cluster puts them there and takes them away.
        acknowledged: those whose readiness push was answered.
        doomed: so many of those that are configured next die before they have answered.
        die: lets a sandbox die.
    """

    def __init__(self, draw: random.Random, log: Log) -> None:
        self.lives: dict[str, Life] = {}
        self.acknowledged: set[str] = set()
        self.doomed = 0
        self.die: Callable[[str], None] = self.gone
        self._draw = draw
        self._log = log

    def gone(self, name: str) -> None:
        """The sandbox has been stopped: its commands with it."""
        self.acknowledged.discard(name)
        for run in self.lives.pop(name, Life()).runs.values():
            run.ended.cancel()

    async def Configure(self, _: agent_pb2.ConfigureRequest, context: Any) -> agent_pb2.Configured:  # noqa: N802
        name, _life = await self._life(context)
        if self.doomed:
            # Between the claim, which is stored, and its answer.
            self.doomed -= 1
            self.die(name)
            await abort(context, Problem("sandbox_unreachable", f"{name} has died"))
        return agent_pb2.Configured()

    async def Exec(self, request: agent_pb2.ExecRequest, context: Any) -> agent_pb2.ExecResult:  # noqa: N802
        name, life = await self._life(context)
        known = life.runs.get(request.exec_id)
        run = known or self._begun(name, life, request)
        try:
            result = await asyncio.shield(run.ended)
        except asyncio.CancelledError:
            if run.ended.cancelled():
                await abort(context, Problem("sandbox_unreachable", f"{name} has ended"))
            raise
        if known is None:
            return result
        again = agent_pb2.ExecResult(replayed=True)
        again.MergeFrom(result)
        return again

    async def Cancel(self, request: agent_pb2.CancelRequest, context: Any) -> agent_pb2.ExecResult:  # noqa: N802
        _, life = await self._life(context)
        run = life.runs.get(request.exec_id)
        if run is None:
            await abort(context, Problem("exec_not_found", f"no exec {request.exec_id}"))
        run.cancelled.set()
        return await asyncio.shield(run.ended)

    async def Health(self, request: agent_pb2.HealthRequest, context: Any) -> agent_pb2.HealthResponse:  # noqa: N802
        name, life = await self._life(context)
        quiet_s = 0.0 if life.running else time.monotonic() - life.quiet_since_s
        return agent_pb2.HealthResponse(
            sandbox_id=name,
            kernel=KERNEL,
            uptime_ms=1000,
            running_execs=life.running,
            acknowledged=name in self.acknowledged,
            quiet_us=round(quiet_s * 1e6),
        )

    async def Usage(self, _: agent_pb2.UsageRequest, context: Any) -> agent_pb2.UsageReport:  # noqa: N802
        """What the control plane asks through a gateway, too, before it takes a silent sandbox for lost."""
        await self._life(context)
        return agent_pb2.UsageReport()

    def _begun(self, name: str, life: Life, request: agent_pb2.ExecRequest) -> Run:
        self._log.tell("cluster.ran", id=name, op=request.exec_id, nonce=request.argv[-1])
        cancelled = asyncio.Event()
        task = asyncio.get_running_loop().create_task(self._run(life, request.exec_id, cancelled))
        life.runs[request.exec_id] = Run(cancelled, task)
        return life.runs[request.exec_id]

    async def _run(self, life: Life, exec_id: str, cancelled: asyncio.Event) -> agent_pb2.ExecResult:
        takes_s, life.running = (
            self._draw.uniform(0, LONG_S if self._draw.random() < 0.05 else SHORT_S),
            life.running + 1,
        )
        try:
            async with asyncio.timeout(takes_s):
                await cancelled.wait()
            end = agent_pb2.CANCELLED
        except TimeoutError:
            end = agent_pb2.EXITED
        finally:
            life.running, life.quiet_since_s = life.running - 1, time.monotonic()
        return agent_pb2.ExecResult(exec_id=exec_id, end=end, spawn_us=300, run_us=round(takes_s * 1e6))

    async def _life(self, context: Any) -> tuple[str, Life]:
        name = subject(dict(context.invocation_metadata())["authorization"])
        life = self.lives.get(name)
        if life is None:
            # As an address behind which nobody is any more.
            await abort(context, Problem("sandbox_unreachable", f"{name} is not here"))
        return name, life
