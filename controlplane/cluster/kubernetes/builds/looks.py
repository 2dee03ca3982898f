"""``BuilderLooks``: whether the pod of a build is there, and why it is not any more."""

import asyncio
from typing import Final

from controlplane.cluster.kubernetes.api_server.client import KubernetesClient
from controlplane.cluster.kubernetes.api_server.refusals import Refused
from controlplane.cluster.kubernetes.builds.builder import MOST_WORDS, Builder
from controlplane.cluster.kubernetes.pods.deaths import death, last_words, unscheduled
from controlplane.errors import Problem
from controlplane.settings import BuildSettings

LOOK_EVERY_S: Final = 0.3
# A node pulls the builder's image once, and a cluster may have to bring a node.
START_WITHIN_S: Final = 180.0
# For the reason of an end to be known.
REASON_WITHIN_S: Final = 12.0


class BuilderLooks:
    """Looks at the pods of builds.

    Args:
        client: of the API server.
        namespace: of the pods.
        settings: of builds, for the words of an end.
    """

    def __init__(self, client: KubernetesClient, namespace: str, settings: BuildSettings) -> None:
        self._client = client
        self._settings = settings
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._events = f"/api/v1/namespaces/{namespace}/events"

    async def ended(self, name: str) -> Problem:
        """Why the builder in a pod does not answer any more."""
        until_s = asyncio.get_running_loop().time() + REASON_WITHIN_S
        while asyncio.get_running_loop().time() < until_s:
            try:
                seen = await self._client.get(f"{self._path}/{name}")
            except Refused as refused:
                return _lost(f"its pod is gone: {refused.detail}")
            if (dead := death(seen)) is not None:
                return self._judged(dead.cause, dead.detail)
            await asyncio.sleep(LOOK_EVERY_S)
        return _lost("its connection broke")

    async def address(self, name: str) -> str:
        """The address of a pod, once it runs.

        Raises:
            Problem: capacity_unavailable: it does not run in time; those of a start.
        """
        async with asyncio.timeout(START_WITHIN_S) as within:
            return await self._running(name, within)

    async def _running(self, name: str, within: asyncio.Timeout) -> str:
        why = "it was not scheduled yet"
        try:
            while True:
                seen = await self._client.get(f"{self._path}/{name}")
                if (dead := death(seen)) is not None:
                    words = f"; its last words: {said}" if (said := last_words(seen)) else ""
                    raise Problem(dead.cause, f"no image was built, its builder did not start: {dead.detail}{words}")
                why = unscheduled(seen) or why
                status = seen.get("status") or {}
                if status.get("podIP") and status.get("phase") == "Running":
                    return str(status["podIP"])
                await asyncio.sleep(LOOK_EVERY_S)
        except asyncio.CancelledError:
            if not within.expired():
                raise
            why = await self._told(name) or why
            detail = f"no image was built: its builder did not start in {START_WITHIN_S:.0f} s: {why}"
            raise Problem("capacity_unavailable", detail) from None

    async def _told(self, name: str) -> str:
        """What the node has said last of a pod; empty: nothing, or nobody says it."""
        try:
            seen = await self._client.list(self._events, {"fieldSelector": f"involvedObject.name={name},type=Warning"})
        except Problem:
            return ""
        return str(seen.items[-1].get("message") or "")[:MOST_WORDS] if seen.items else ""

    async def answers(self, name: str, builder: Builder) -> None:
        """Returns once the builder in a pod does.

        Raises:
            Problem: it has ended, or does not answer.
        """
        until_s = asyncio.get_running_loop().time() + START_WITHIN_S
        while not await builder.ready():
            seen = await self._client.get(f"{self._path}/{name}")
            if (dead := death(seen)) is not None or asyncio.get_running_loop().time() > until_s:
                raise await self.ended(name) if dead else _lost("it does not answer")
            await asyncio.sleep(LOOK_EVERY_S)

    def _judged(self, cause: str, detail: str) -> Problem:
        if cause == "oom_killed":
            most = self._settings.memory_bytes
            said = f"no image was built: its steps took more memory than the {most} bytes that a build may have"
            return Problem("build_failed", said, reason="build_out_of_memory")
        if cause == "disk_full":
            most = self._settings.disk_bytes
            said = f"no image was built: its files, with the images that it reads, may have {most} bytes: {detail}"
            return Problem("build_failed", said, reason="build_disk_full")
        return _lost(detail)


def _lost(why: str) -> Problem:
    return Problem("upstream_timeout", f"no image was built, its builder has ended: {why}")
