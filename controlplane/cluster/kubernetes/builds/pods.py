"""``BuildPods``: runs the pod of a build, and says why one has ended."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from http import HTTPStatus
from typing import Final

import structlog

from controlplane.clock import Clock
from controlplane.cluster.finish import finish
from controlplane.cluster.kubernetes.api_server.client import Json, KubernetesClient
from controlplane.cluster.kubernetes.api_server.refusals import Refused
from controlplane.cluster.kubernetes.builds.builder import MOST_WORDS, Builder
from controlplane.cluster.kubernetes.builds.pod import LABEL_BUILD, PORT, pod, selector
from controlplane.cluster.kubernetes.pods.deaths import death, last_words, unscheduled
from controlplane.cluster.kubernetes.pods.podspec import PodDefaults
from controlplane.errors import Problem
from controlplane.settings import BuildSettings

LOOK_EVERY_S: Final = 0.3
# A node pulls the builder's image once, and a cluster may have to bring a node.
START_WITHIN_S: Final = 180.0
# For the reason of an end to be known.
REASON_WITHIN_S: Final = 12.0
# A pod that has ended is its control plane's to remove; one so old has none any more.
LEFT_MS: Final = 600_000
ENDED: Final = ("Succeeded", "Failed")
AT_ONCE: Final[Json] = {"gracePeriodSeconds": 1}


class BuildPods:
    """The pods of the builds of one installation.

    Args:
        client: of the API server.
        defaults: what all pods of the installation have in common.
        settings: of builds.
        clock: the time of day.
        port: of the program in each.
    """

    def __init__(
        self,
        client: KubernetesClient,
        defaults: PodDefaults,
        settings: BuildSettings,
        clock: Clock,
        *,
        port: int = PORT,
    ) -> None:
        self._client = client
        self._defaults = defaults
        self._settings = settings
        self._clock = clock
        self._port = port
        self._path = f"/api/v1/namespaces/{defaults.namespace}/pods"
        self._log = structlog.get_logger("builds")

    @asynccontextmanager
    async def running(self, architecture: str) -> AsyncIterator[tuple[str, Builder]]:
        """A builder that answers, with its pod's name, which is removed with the block.

        Raises:
            Problem: capacity_unavailable: no node has room for it; those of a start.
        """
        name, token = f"build-{secrets.token_hex(8)}", secrets.token_urlsafe(32)
        try:
            manifest = pod(name, token, self._defaults, self._settings, architecture)
            await self._client.create(self._path, manifest, answered=False)
            async with asyncio.timeout(START_WITHIN_S) as within:
                address = await self._address(name, within)
            async with Builder.open(f"http://{address}:{self._port}", token, self._settings.disk_bytes) as builder:
                await self._answers(name, builder)
                yield name, builder
        finally:
            await finish(asyncio.create_task(self._remove(name)))

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

    async def sweep(self) -> None:
        """Removes the pods of builds whose control plane has gone: their programs have ended by themselves."""
        seen = await self._client.list(self._path, {"labelSelector": selector(self._defaults.installation)})
        for one in seen.items:
            about, phase = one["metadata"], (one.get("status") or {}).get("phase")
            if LABEL_BUILD in (about.get("labels") or {}) and phase in ENDED and self._age_ms(about) > LEFT_MS:
                await self._remove(str(about["name"]))

    def _age_ms(self, about: Json) -> float:
        made_at = datetime.fromisoformat(str(about["creationTimestamp"]))
        return self._clock.now_ms() - made_at.timestamp() * 1000

    async def _address(self, name: str, within: asyncio.Timeout) -> str:
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
        path = f"/api/v1/namespaces/{self._defaults.namespace}/events"
        try:
            seen = await self._client.list(path, {"fieldSelector": f"involvedObject.name={name},type=Warning"})
        except Problem:
            return ""
        return str(seen.items[-1].get("message") or "")[:MOST_WORDS] if seen.items else ""

    async def _answers(self, name: str, builder: Builder) -> None:
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

    async def _remove(self, name: str) -> None:
        try:
            await self._client.delete(f"{self._path}/{name}", AT_ONCE)
        except Refused as refused:
            if refused.refusal.status != HTTPStatus.NOT_FOUND:
                self._log.warning("the pod of a build is left", pod=name, detail=refused.detail)
        except Problem as problem:
            # It ends by itself: its program once nobody asks any more, and each pod of a build after two hours.
            self._log.warning("the pod of a build is left", pod=name, detail=problem.detail)


def _lost(why: str) -> Problem:
    return Problem("upstream_timeout", f"no image was built, its builder has ended: {why}")
