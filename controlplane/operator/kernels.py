"""Has the node's agent end the gVisor kernel of a pod that its kubelet does not stop."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import structlog

from controlplane.cluster.kubernetes.pods.unstopped import Unstopped
from controlplane.errors import Problem

# Kills at the same time; the rest waits for the next look.
AT_ONCE: Final = 16
# A later look would get the same answer: there is no such kernel on the node, or it is not of gVisor.
_FINAL: Final = frozenset({"sandbox_not_found", "unsupported", "invalid_argument"})


class Agents(Protocol):
    """The part of ``NodeAgents`` that is used."""

    async def kill(self, node: str, sandbox_id: str) -> Sequence[int]:
        """Ends the kernel of a sandbox."""
        ...


class Events(Protocol):
    """The part of ``Notices`` that is used."""

    async def write(self, pod: Mapping[str, Any], reason: str, message: str) -> None:
        """Writes one Event about a pod."""
        ...

    async def write_for_node(self, node: str, reason: str, message: str) -> None:
        """Writes one Event about a node."""
        ...


class Kernels:
    """Asks once for each pod; asks again only where no agent has answered."""

    def __init__(self, agents: Agents, notices: Events) -> None:
        self._agents = agents
        self._notices = notices
        self._answered: set[str] = set()
        self._killed = 0
        self._log = structlog.get_logger("kernels")

    async def end(self, unstopped: Sequence[Unstopped], pods: Mapping[str, Mapping[str, Any]]) -> None:
        """Ends what runs of these pods; the kubelet then sees them end.

        Args:
            unstopped: all pods that are not stopped at present.
            pods: pod objects by name, at least for ``unstopped``.
        """
        self._answered &= {one.name for one in unstopped}
        waiting = [one for one in unstopped if one.name not in self._answered][:AT_ONCE]
        await asyncio.gather(*(self._end(one, pods[one.name]) for one in waiting))

    async def _end(self, one: Unstopped, pod: Mapping[str, Any]) -> None:
        where = {"sandbox_id": one.name, "node": one.node}
        try:
            pids = await self._agents.kill(one.node, one.name)
        except Problem as problem:
            if problem.code in _FINAL:
                self._answered.add(one.name)
            self._log.warning("kernel not ended", **where, code=problem.code, detail=problem.detail)
            return
        self._answered.add(one.name)
        if not pids:
            self._log.info("nothing of the kernel runs any more", **where)
            return
        self._killed += 1
        self._log.warning("kernel ended", **where, pids=[*pids], killed_since_start=self._killed)
        for_s = one.for_ms // 1000
        words = f"the gVisor kernel of sandbox {one.name} was killed, which its kubelet had not stopped for {for_s} s"
        await self._notices.write(pod, "SandboxKernelKilled", words)
        await self._notices.write_for_node(one.node, "SandboxKernelKilled", words)
