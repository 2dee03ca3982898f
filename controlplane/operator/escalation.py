"""Reports pods that their kubelet does not stop: in the log, as Events on the pod and its node, to the node's agent."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import structlog

from controlplane.clock import Clock
from controlplane.cluster.kubernetes.pods.unstopped import ADVICE, Unstopped
from controlplane.operator.kernels import Kernels
from controlplane.operator.notices import Notices

# How often an Event is repeated: API servers delete Events after an hour.
AGAIN_MS: Final = 50 * 60_000


class Escalation:
    """Reports each pod about once an hour, and once when it has stopped.

    Args:
        kernels: end what runs of them; None: there are no node agents, and people have to.
    """

    def __init__(self, notices: Notices, clock: Clock, kernels: Kernels | None = None) -> None:
        self._notices = notices
        self._kernels = kernels
        self._clock = clock
        self._told_ms: dict[str, int] = {}
        self._log = structlog.get_logger("escalation")

    async def report(self, unstopped: Sequence[Unstopped], pods: Mapping[str, Mapping[str, Any]]) -> None:
        """Reports the pods that are not stopped at present, and has their kernels ended where there are node agents.

        Args:
            unstopped: all of these pods.
            pods: pod objects by name, at least for ``unstopped``.
        """
        for name in [*self._told_ms.keys() - {one.name for one in unstopped}]:
            del self._told_ms[name]
            self._log.info("sandbox stopped", sandbox_id=name)
        now_ms = self._clock.now_ms()
        for one in unstopped:
            if now_ms - self._told_ms.get(one.name, now_ms - AGAIN_MS) >= AGAIN_MS:
                self._told_ms[one.name] = now_ms
                await self._report_one(one, pods[one.name])
        if self._kernels is not None:
            await self._kernels.end(unstopped, pods)

    async def _report_one(self, one: Unstopped, pod: Mapping[str, Any]) -> None:
        for_s = one.for_ms // 1000
        self._log.error("node does not stop an ended sandbox", sandbox_id=one.name, node=one.node, for_s=for_s)
        words = f"its kubelet was asked {for_s} s ago to stop sandbox {one.name} and has not confirmed it. {ADVICE}"
        await self._notices.write(pod, "SandboxNotStopped", words)
        await self._notices.write_for_node(one.node, "SandboxNotStopped", words)
