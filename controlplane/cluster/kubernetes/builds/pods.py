"""``BuildPods``: runs the pods of builds, and says why one has ended."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Final

import structlog

from controlplane.clock import Clock
from controlplane.cluster.finish import finish
from controlplane.cluster.kubernetes.api_server.client import Json, KubernetesClient
from controlplane.cluster.kubernetes.api_server.refusals import Refused
from controlplane.cluster.kubernetes.builds.builder import Builder
from controlplane.cluster.kubernetes.builds.kept import BuilderPod, KeptBuilders, Use
from controlplane.cluster.kubernetes.builds.looks import BuilderLooks
from controlplane.cluster.kubernetes.builds.pod import LABEL_BUILD, PORT, selector
from controlplane.cluster.kubernetes.builds.pod import pod as manifest_of
from controlplane.cluster.kubernetes.pods.podspec import PodDefaults
from controlplane.errors import Problem
from controlplane.settings import BuildSettings

# How often it is looked which builders have waited for long enough.
LET_GO_EVERY_S: Final = 1.0
# A pod that has ended is its control plane's to remove; one so old has none any more.
LEFT_MS: Final = 600_000
ENDED: Final = ("Succeeded", "Failed")
AT_ONCE: Final[Json] = {"gracePeriodSeconds": 1}


@dataclass(slots=True)
class Running:
    """A builder that answers.

    Attributes:
        pod: where it runs.
        builder: speaks with it.
        has_built: its build has made an image: another one may follow.
    """

    pod: BuilderPod
    builder: Builder
    has_built: bool = False


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
        self.looks = BuilderLooks(client, defaults.namespace, settings)
        self._kept = KeptBuilders(settings.keep_ms)
        self._building = 0

    @asynccontextmanager
    async def keeping(self) -> AsyncIterator[None]:
        """Builders wait for the next build of their owner while the block runs; none is left behind it."""
        await self.sweep()
        letting_go = asyncio.create_task(self._let_go())
        try:
            yield
        finally:
            letting_go.cancel()
            with suppress(asyncio.CancelledError):
                await letting_go
            await finish(asyncio.create_task(self._remove_all(self._kept.overdue(float("inf")))))

    @asynccontextmanager
    async def running(self, use: Use, *, is_new: bool = False) -> AsyncIterator[Running]:
        """A builder that answers: one that has built for the same use, or a new one.

        It is removed with the block, unless it `has_built` and may build again.

        Args:
            use: what it is for.
            is_new: no build was there.

        Raises:
            Problem: capacity_unavailable: no node has room for it; those of a start.
        """
        self._building += 1
        pod = (None if is_new else self._kept.take(use, self._clock.now_ms())) or self._new(use)
        keeps = False
        try:
            await self._remove_all(self._kept.beyond(self._building))
            if not pod.is_new and not await self._is_ready(pod):
                await self._remove(pod.name)
                pod = self._new(use)
            if pod.is_new:
                await self._start(pod)
            async with Builder.open(pod.address, pod.token, self._settings.disk_bytes) as builder:
                if pod.is_new:
                    await self.looks.answers(pod.name, builder)
                running = Running(pod, builder)
                yield running
                keeps = running.has_built and await builder.ready()
        finally:
            self._building -= 1
            pod.builds += 1
            if not (keeps and self._kept.put(pod, self._clock.now_ms())):
                await finish(asyncio.create_task(self._remove(pod.name)))

    def _new(self, use: Use) -> BuilderPod:
        return BuilderPod(f"build-{secrets.token_hex(8)}", secrets.token_urlsafe(32), use, self._clock.now_ms())

    async def _is_ready(self, pod: BuilderPod) -> bool:
        async with Builder.open(pod.address, pod.token, self._settings.disk_bytes) as builder:
            return await builder.ready()

    async def _start(self, pod: BuilderPod) -> None:
        manifest = manifest_of(pod.name, pod.token, self._defaults, self._settings, pod.use.architecture)
        await self._client.create(self._path, manifest, answered=False)
        pod.address = f"http://{await self.looks.address(pod.name)}:{self._port}"

    async def _let_go(self) -> None:
        while True:
            await asyncio.sleep(LET_GO_EVERY_S)
            await self._remove_all(self._kept.overdue(self._clock.now_ms()))

    async def _remove_all(self, pods: list[BuilderPod]) -> None:
        for pod in pods:
            await self._remove(pod.name)

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

    async def _remove(self, name: str) -> None:
        try:
            await self._client.delete(f"{self._path}/{name}", AT_ONCE)
        except Refused as refused:
            if refused.refusal.status != HTTPStatus.NOT_FOUND:
                self._log.warning("the pod of a build is left", pod=name, detail=refused.detail)
        except Problem as problem:
            # It ends by itself: its program once nobody asks any more, and each pod of a build after four hours.
            self._log.warning("the pod of a build is left", pod=name, detail=problem.detail)
