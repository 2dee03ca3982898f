"""SWE-ReX's deployment on a rollbox sandbox, and its configuration."""

from __future__ import annotations

import contextlib
import logging
from typing import Any, Literal, Self, cast

from pydantic import BaseModel, ConfigDict
from swerex.deployment.abstract import AbstractDeployment
from swerex.deployment.hooks.abstract import CombinedDeploymentHook, DeploymentHook
from swerex.exceptions import DeploymentNotStartedError
from swerex.runtime.abstract import IsAliveResponse
from swerex.utils import log

from rollbox import Sandbox, SandboxError
from rollbox.options import CreateOptions
from rollbox.sync import loop_thread
from rollbox.sync.loop_thread import on_background_loop
from rollbox_integrations.swe_rex.faults import not_started
from rollbox_integrations.swe_rex.runtime import RollboxRuntime


class RollboxDeploymentConfig(BaseModel):
    """What the configuration's `deployment` may say: names of SWE-ReX, and of `Sandbox.create`."""

    model_config = ConfigDict(extra="forbid")
    type: Literal["rollbox"] = "rollbox"
    """Tells the configurations of deployments apart."""
    image: str = "python:3.11"
    startup_timeout: float = 180.0
    """Seconds that a create may take."""
    cwd: str | None = None
    env: dict[str, str] = {}
    user: str | None = None
    cpu: float | str | None = None
    memory: int | str | None = None
    disk: int | str | None = None
    egress: str | None = None
    pull: Literal["auto", "full", "lazy"] = "auto"
    labels: dict[str, str] = {}
    ttl: float = 24 * 3600.0
    lease: float = 600.0
    """Seconds that it outlives a program that was killed."""

    def get_deployment(self) -> RollboxDeployment:
        """See SWE-ReX."""
        return RollboxDeployment.from_config(self)

    def options(self) -> CreateOptions:
        """What `Sandbox.create` is called with, besides the image."""
        given = self.model_dump(exclude={"type", "image", "startup_timeout"}, exclude_none=True)
        labels = {**self.labels, "rollbox.host": "swe-rex"}
        return cast("CreateOptions", {**given, "labels": labels, "start_timeout": self.startup_timeout})


class RollboxDeployment(AbstractDeployment):
    """A sandbox of an agent, from `start` to `stop`.

    Its calls may come from event loops of their own each (`asyncio.run`), as SWE-agent makes them.
    """

    def __init__(self, *, logger: logging.Logger | None = None, **options: Any) -> None:  # noqa: ANN401 - of the config
        """Make it; nothing is created before `start`.

        Args:
            logger: SWE-ReX's own, where it is None.
            options: those of `RollboxDeploymentConfig`.
        """
        self._config = RollboxDeploymentConfig(**options)
        self._sandbox: Sandbox | None = None
        self._runtime: RollboxRuntime | None = None
        self._hooks = CombinedDeploymentHook()
        self.logger = logger or log.get_logger("rex-deploy")

    @classmethod
    def from_config(cls, config: RollboxDeploymentConfig) -> Self:
        """See SWE-ReX."""
        return cls(**config.model_dump())

    def add_hook(self, hook: DeploymentHook) -> None:
        """See SWE-ReX."""
        self._hooks.add_hook(hook)

    @property
    def runtime(self) -> RollboxRuntime:
        """See SWE-ReX.

        Raises:
            DeploymentNotStartedError: it was not started.
        """
        if self._runtime is None:
            raise DeploymentNotStartedError
        return self._runtime

    @property
    def sandbox(self) -> Sandbox:
        """The SDK's own, for what SWE-ReX has no call for; await its calls by `on_background_loop` of
        `rollbox.sync.loop_thread`.

        Raises:
            DeploymentNotStartedError: it was not started.
        """
        if self._sandbox is None:
            raise DeploymentNotStartedError
        return self._sandbox

    async def is_alive(self, *, timeout: float | None = None) -> IsAliveResponse:  # noqa: ASYNC109 - SWE-ReX's
        """See SWE-ReX."""
        return await self.runtime.is_alive(timeout=timeout)

    async def start(self) -> None:
        """Create the sandbox.

        Raises:
            SandboxNotStartedError: there is none, and that says nothing about the sample.
            ValueError: the configuration is wrong.
            RuntimeError: it was started before.
        """
        if self._sandbox is not None:
            raise RuntimeError("the deployment was started before, and not stopped")
        self._hooks.on_custom_step("Starting sandbox")
        try:
            await on_background_loop(self._create())
        except SandboxError as error:
            raise not_started(error) from error
        self._runtime = RollboxRuntime(self.sandbox, logger=self.logger)

    async def _create(self) -> None:
        # Kept here, so that a caller who is cancelled meanwhile can still stop it.
        self._sandbox = await Sandbox.create(self._config.image, **self._config.options())

    async def stop(self) -> None:
        """Delete the sandbox, with all that runs in it; its lease ends one that could not be deleted. Idempotent."""
        sandbox, self._sandbox, self._runtime = self._sandbox, None, None
        if sandbox is None:
            return
        try:
            await on_background_loop(sandbox.delete())
        except SandboxError as error:
            self.logger.warning("sandbox %s was not ended, its lease ends it: %s", sandbox.id, error)

    def __del__(self) -> None:
        """As SWE-ReX's own deployments do."""
        sandbox = getattr(self, "_sandbox", None)
        if sandbox is not None:
            with contextlib.suppress(SandboxError):
                loop_thread.run(sandbox.delete())
