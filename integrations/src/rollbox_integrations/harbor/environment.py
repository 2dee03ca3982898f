"""Harbor's environment on a rollbox sandbox: a prebuilt image, or the task's Dockerfile."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

from harbor.environments.base import (
    BaseEnvironment,
    ExecResult,
    HealthcheckError,
    OutputCallback,
    OutputStream,
    SandboxBuildFailedError,
)
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities
from harbor.environments.definition import (
    COMPOSE_FILE_NAME,
    require_agent_environment_definition,
    should_use_prebuilt_docker_image,
)
from harbor.environments.options import EnvironmentOptions
from harbor.models.task.config import NetworkPolicy
from harbor.models.trial.config import ResourceMode
from pydantic import Field

import rollbox
from rollbox import Client, Sandbox, SandboxError
from rollbox.options import CreateOptions
from rollbox_integrations import outcome
from rollbox_integrations.harbor.definition import amount, egress, mebibytes

# What an exec may answer at most; the end of a longer output is kept.
_MOST_OUTPUT_BYTES = 16 * 1024**2
_ORPHAN_GRACE_S = 900.0
_ROOT = "0"
# What does not get better by waiting.
_OF_THE_TASK = ("image_not_found", "build_failed", "unsupported", "invalid_argument", "payload_too_large")


class RollboxOptions(EnvironmentOptions):
    """What `--ek name=value` may say."""

    egress: str | None = Field(default=None, description="Preset of phases with a public network; else all is open.")
    build_args: dict[str, str] = Field(default_factory=dict, description="ARGs of the task's Dockerfile.")
    build_egress: str | None = Field(default=None, description="What the steps of a build may reach; nothing.")
    pull: Literal["auto", "full", "lazy"] = Field(default="auto", description="How its node gets the image.")
    labels: dict[str, str] = Field(default_factory=dict, description="Labels of the sandbox.")
    ttl: float = Field(default=24 * 3600.0, description="Seconds after which it ends in any case.")
    start_timeout: float = Field(default=600.0, description="Seconds that a create may take.")


class RollboxEnvironment(BaseEnvironment):
    """A sandbox of a trial.

        harbor run --path tasks --agent oracle --env rollbox_integrations.harbor:RollboxEnvironment

    A command's end is a result, whatever it was. What says nothing about the sample is one of the errors that Harbor
    tries again and gives no reward: `SandboxBuildFailedError` before it begins, else `HealthcheckError`.
    """

    options_model = RollboxOptions
    options: RollboxOptions

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - Harbor's, handed on
        self._sandbox: Sandbox | None = None
        self._dead: SandboxError | None = None
        super().__init__(*args, **kwargs)

    @staticmethod
    def type() -> str:
        """See Harbor."""
        return "rollbox"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        """See Harbor. IPv6 is left out: no test has shown it."""
        return EnvironmentCapabilities(
            gpus=True,
            disable_internet=True,
            network_allowlist=True,
            network_allowlist_hostnames=True,
            network_allowlist_wildcard_hostnames=True,
            network_allowlist_ipv4_addresses=True,
            network_allowlist_ipv4_cidrs=True,
            dynamic_network_policy=True,
        )

    @classmethod
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        """See Harbor."""
        return EnvironmentResourceCapabilities(
            cpu_limit=True, cpu_request=True, memory_limit=True, memory_request=True, fractional_cpus=True
        )

    @classmethod
    def preflight(cls, kwargs: dict[str, Any] | None = None) -> None:
        """Look whether there is an address and a key.

        Raises:
            SystemExit: there is none.
        """
        super().preflight(kwargs)
        try:
            Client()
        except SandboxError as error:
            raise SystemExit(str(error)) from error

    @property
    def sandbox(self) -> Sandbox:
        """The SDK's own, for what Harbor has no call for.

        Raises:
            RuntimeError: it was not started.
        """
        if self._sandbox is None:
            raise RuntimeError("the environment was not started")
        return self._sandbox

    def _validate_definition(self) -> None:
        if any((self.environment_dir / name).exists() for name in (COMPOSE_FILE_NAME, "docker-compose.yml")):
            raise ValueError("rollbox runs one sandbox a task: docker-compose.yaml is not supported")
        if self.task_env_config.gpu_types:
            raise ValueError("rollbox takes a number of devices: gpu_types is not supported")
        require_agent_environment_definition(self.environment_dir, docker_image=self.task_env_config.docker_image)

    async def start(self, force_build: bool) -> None:
        """See Harbor."""
        try:
            self._sandbox = await Sandbox.create(await self._image(force_build), **self._options())
            if self.task_env_config.workdir:
                await self._sandbox.files.mkdir(self.task_env_config.workdir, user=_ROOT)
        except SandboxError as error:
            kind = SandboxBuildFailedError if error.code in _OF_THE_TASK else HealthcheckError
            raise kind(outcome.sentence(error)) from error
        await self.ensure_dirs(self._mount_targets(writable_only=True))
        await self._upload_environment_dir_after_start()

    async def _image(self, force_build: bool) -> str:
        image = self.task_env_config.docker_image
        if should_use_prebuilt_docker_image(self.environment_dir, docker_image=image, force_build=force_build):
            return cast("str", image)
        options: dict[str, Any] = {"args": self.options.build_args}
        if self.options.build_egress is not None:
            options["egress"] = self.options.build_egress
        async with Client() as client:
            return await client.build(self.environment_dir, **options)

    def _options(self) -> CreateOptions:
        limit = ResourceMode.LIMIT
        cpu, memory = (
            (self._resource_request_value(name, auto_mode=limit), self._resource_limit_value(name, auto_mode=limit))
            for name in ("cpu", "memory")
        )
        given = {
            "cpu": amount(*cpu),
            "memory": amount(mebibytes(memory[0]), mebibytes(memory[1])),
            "disk": mebibytes(self._effective_storage_mb),
            "gpu": self._effective_gpus,
            "pull": self.options.pull,
            "env": self._startup_env(),
            "labels": {**self.options.labels, "rollbox.host": "harbor", "harbor.session": self.session_id},
            "egress": egress(self.network_policy, self.options.egress),
            "ttl": self.options.ttl,
            "start_timeout": self.options.start_timeout,
        }
        return cast("CreateOptions", {name: value for name, value in given.items() if value is not None})

    async def stop(self, delete: bool) -> None:
        """See Harbor. Its lease ends a sandbox that could not be deleted; one that is kept lives for its ttl."""
        if self._sandbox is None:
            return
        try:
            if delete:
                await self._sandbox.delete()
            else:
                kept = await self._sandbox.detach()
                self.logger.info("kept sandbox %s: rollbox exec -it %s -- sh", kept, kept)
        except SandboxError as error:
            self.logger.warning("sandbox %s was not ended, its lease ends it: %s", self._sandbox.id, error)
        self._sandbox = None

    async def _apply_network_policy(self, network_policy: NetworkPolicy) -> None:
        try:
            await self.sandbox.egress(egress(network_policy, self.options.egress))
        except SandboxError as error:
            raise _told(error) from error

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """See Harbor."""
        try:
            await self.sandbox.files.upload(source_path, target_path, user=_ROOT)
        except SandboxError as error:
            raise _told(error) from error

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """See Harbor. One stream."""
        try:
            await self.sandbox.files.upload_dir(source_dir, target_dir, user=_ROOT)
        except SandboxError as error:
            raise _told(error) from error

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """See Harbor."""
        await asyncio.to_thread(Path(target_path).parent.mkdir, parents=True, exist_ok=True)
        try:
            await self.sandbox.files.download(source_path, target_path, user=_ROOT)
        except SandboxError as error:
            raise _told(error) from error

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """See Harbor. One stream; what would lead out of the folder here is left out."""
        try:
            report = await self.sandbox.files.download_dir(source_dir, target_dir, user=_ROOT)
        except SandboxError as error:
            raise _told(error) from error
        if report.skipped:
            self.logger.warning("left out of %s: %s", source_dir, report.skipped)

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run a command by the image's shell. See Harbor.

        Raises:
            RuntimeError: the deadline has passed, as with Harbor's Docker; all that it has started is dead.
            HealthcheckError: there is no sandbox any more, or the platform does not answer.
        """
        if self._dead is not None:
            raise _told(self._dead) from self._dead
        who = self._resolve_user(user)
        options: dict[str, Any] = {
            "cwd": cwd or self.task_env_config.workdir,
            "env": self._merge_env(env),
            "user": None if who is None else str(who),
            "timeout": timeout_sec or None,
        }
        told = self._output_callback()
        try:
            if told is None:
                result = await self.sandbox.exec(command, max_output_bytes=_MOST_OUTPUT_BYTES, **options)
            else:
                result = await self._streamed(command, told, options)
            if result.timed_out:
                raise RuntimeError(f"Command timed out after {timeout_sec} seconds")
            ended = outcome.ended(result)
        except SandboxError as error:
            ended = self._failed(error)
        stdout, stderr = (stream.decode("utf-8", "replace") for stream in (ended.stdout, ended.stderr))
        return ExecResult(stdout=stdout, stderr=stderr, return_code=ended.status)

    async def _streamed(self, command: str, told: OutputCallback, options: dict[str, Any]) -> rollbox.ExecResult:
        """Run a command and hand its output on while it comes."""
        process = await self.sandbox.spawn(
            command, stdin=False, orphan_grace=_ORPHAN_GRACE_S, max_output_bytes=_MOST_OUTPUT_BYTES, **options
        )
        async with process:
            stdout, stderr = await asyncio.gather(
                _handed_on(process.stdout, "stdout", told), _handed_on(process.stderr, "stderr", told)
            )
            return replace(await process.wait(), stdout_bytes=stdout, stderr_bytes=stderr)

    def _failed(self, error: SandboxError) -> outcome.Outcome:
        """A result, where the command or its sandbox's code is why it has none of its own."""
        if (refused := outcome.refused(error)) is not None:
            return refused
        if (died := outcome.died(error)) is not None:
            self._dead = error
            return died
        raise _told(error) from error


def _told(error: SandboxError) -> Exception:
    """Say a failure in Harbor's words.

    Returns:
        FileNotFoundError or PermissionError of a file; else HealthcheckError, which Harbor tries again and gives no
        reward.
    """
    match error.code:
        case "file_not_found":
            return FileNotFoundError(str(error))
        case "permission_denied":
            return PermissionError(str(error))
    return HealthcheckError(outcome.sentence(error))


async def _handed_on(stream: rollbox.OutputStream, name: OutputStream, told: OutputCallback) -> bytes:
    """Hand an output on, and return the end of it; that the sandbox has ended is told by the process."""
    kept: deque[bytes] = deque()
    size = 0
    with contextlib.suppress(SandboxError):
        async for text in stream.text():
            await told(text, name)
            kept.append(text.encode())
            size += len(kept[-1])
            while size > _MOST_OUTPUT_BYTES:
                size -= len(kept.popleft())
    return b"".join(kept)
