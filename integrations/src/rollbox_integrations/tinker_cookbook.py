"""tinker-cookbook: its `SandboxInterface`, and the factories that its recipes and benchmarks take.

HarborDatasetBuilder(..., sandbox_factory=HarborSandboxFactory())
BenchmarkConfig(..., sandbox_factory=SandboxFactory("python:3.12"))
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from rollbox_integrations.versions import require

require("tinker-cookbook", "0.6.1", "tinker-cookbook")

from tinker_cookbook.exceptions import SandboxError as TinkerSandboxError  # noqa: E402 - not before its version is known
from tinker_cookbook.sandbox import SandboxResult, SandboxTerminatedError  # noqa: E402

import rollbox  # noqa: E402
from rollbox import Client, Sandbox  # noqa: E402
from rollbox.build import BuildOptions  # noqa: E402
from rollbox.options import CreateOptions  # noqa: E402
from rollbox_integrations import outcome  # noqa: E402

_T = TypeVar("_T")
logger = logging.getLogger(__name__)
# What tinker-cookbook's own sandbox keeps of each output.
_MOST_OUTPUT_BYTES = 128 * 1024
# What a file may have that is read without a limit.
_MOST_FILE_BYTES = 16 * 1024**2
_TTL_S = 24 * 3600.0
_FAILED = 1


class SandboxLostError(SandboxTerminatedError):
    """There is no sandbox any more, or the platform does not answer.

    Attributes:
        fault: whose fault it was, and whether to mask the sample.
    """

    fault: outcome.Fault


class SandboxNotCreatedError(TinkerSandboxError):
    """There was no sandbox to be had.

    Attributes:
        fault: whose fault it was, and whether to mask the sample.
    """

    fault: outcome.Fault


class RollboxSandbox:
    """A sandbox as `SandboxInterface` has it; made by `create`.

    Attributes:
        sandbox: the SDK's own, for what tinker-cookbook has no call for.
        fault: of the last call that had no sandbox to answer, for those whose caller swallows errors; None: none had.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.fault: outcome.Fault | None = None
        # What has ended the sandbox, and is a result of the command that did it.
        self._dead: rollbox.SandboxError | None = None

    @classmethod
    async def create(cls, image: str, options: CreateOptions | None = None) -> RollboxSandbox:
        """Create a sandbox, which lives for a day at most where `ttl` does not say otherwise.

        Args:
            image: name of a container image.
            options: of `rollbox.Sandbox.create`.

        Raises:
            SandboxNotCreatedError: there is none, and that says nothing about the sample.
            ValueError: an option is wrong.
        """
        given: dict[str, Any] = {"ttl": _TTL_S, **(options or {})}
        given["labels"] = {**given.get("labels", {}), "rollbox.host": "tinker-cookbook"}
        try:
            return cls(await Sandbox.create(image, **cast("CreateOptions", given)))
        except rollbox.SandboxError as error:
            raise _not_created(error) from error

    @property
    def sandbox_id(self) -> str:
        """See tinker-cookbook."""
        return self.sandbox.id

    async def send_heartbeat(self, timeout: int = 30) -> None:  # noqa: ASYNC109 - tinker-cookbook's
        """Ask for a file, which counts as use; the lease keeps the sandbox as long as its program lives.

        Raises:
            SandboxTerminatedError: there is no sandbox any more, or the platform does not answer.
            TimeoutError: the answer takes longer.
        """
        self._require_alive()
        try:
            async with asyncio.timeout(timeout):
                await self.sandbox.files.exists("/")
        except rollbox.SandboxError as error:
            raise self._lost(error) from error

    async def run_command(
        self,
        command: str,
        workdir: str | None = None,
        timeout: int = 60,  # noqa: ASYNC109 - tinker-cookbook's
        max_output_bytes: int | None = None,
    ) -> SandboxResult:
        """Run a command line by bash, or sh where there is none. See tinker-cookbook.

        Returns:
            its first `max_output_bytes` of each output and its code: 124 with a last line of stderr when it was killed
            for its timeout, 137 for memory.

        Raises:
            SandboxTerminatedError: there is no sandbox any more, or the platform does not answer.
        """
        self._require_alive()
        kept = _MOST_OUTPUT_BYTES if max_output_bytes is None else max_output_bytes
        try:
            running = self.sandbox.exec(command, cwd=workdir, timeout=timeout, max_output_bytes=kept, keep="head")
            ended = outcome.ended(await running)
        except rollbox.SandboxError as error:
            ended = self._failed(error)
        stdout, stderr = (stream.decode("utf-8", "replace") for stream in (ended.stdout, ended.stderr))
        return SandboxResult(stdout=stdout, stderr=stderr, exit_code=ended.status)

    async def read_file(
        self,
        path: str,
        max_bytes: int | None = None,
        timeout: int = 60,  # noqa: ASYNC109 - tinker-cookbook's
    ) -> SandboxResult:
        """Read a file, or its first `max_bytes`, as `stdout`.

        Returns:
            code 1 with the reason in stderr where it cannot be read, or has more than 16 MiB without `max_bytes`.

        Raises:
            SandboxTerminatedError: there is no sandbox any more, or the platform does not answer.
        """
        length = _MOST_FILE_BYTES + 1 if max_bytes is None else max_bytes
        data = await self._file_call(self.sandbox.files.read(path, length=length), timeout)
        if isinstance(data, SandboxResult):
            return data
        if max_bytes is None and len(data) > _MOST_FILE_BYTES:
            return _refused(f"{path} has more than {_MOST_FILE_BYTES} bytes: say max_bytes, or run a command")
        return SandboxResult(stdout=data.decode("utf-8", "replace"), stderr="", exit_code=0)

    async def write_file(
        self,
        path: str,
        content: str | bytes,
        executable: bool = False,
        timeout: int = 60,  # noqa: ASYNC109 - tinker-cookbook's
    ) -> SandboxResult:
        """Write a file whole, and make the directories above it.

        Returns:
            code 1 with the reason in stderr where it cannot be written.

        Raises:
            SandboxTerminatedError: there is no sandbox any more, or the platform does not answer.
        """
        mode = 0o755 if executable else None
        written = await self._file_call(self.sandbox.files.write(path, content, mode=mode), timeout)
        return written if isinstance(written, SandboxResult) else SandboxResult(stdout="", stderr="", exit_code=0)

    async def cleanup(self) -> None:
        """Delete the sandbox; its lease ends one that could not be deleted. Idempotent."""
        try:
            await self.sandbox.delete()
        except rollbox.SandboxError as error:
            logger.warning("sandbox %s was not ended, its lease ends it: %s", self.sandbox_id, error)

    async def _file_call(self, call: Coroutine[Any, Any, _T], limit_s: float) -> _T | SandboxResult:
        """Return what a call of a file returns; a result with the reason, where the file is why there is none."""
        if self._dead is not None:
            call.close()
            raise self._lost(self._dead) from self._dead
        try:
            async with asyncio.timeout(limit_s):
                return await call
        except TimeoutError:
            return _refused(f"it took longer than {limit_s} s")
        except rollbox.SandboxError as error:
            if outcome.died(error) is not None:
                self._dead = error
            if outcome.died(error) is not None or error.mask_sample:
                raise self._lost(error) from error
            return _refused(str(error))

    def _lost(self, error: rollbox.SandboxError) -> SandboxLostError:
        lost = SandboxLostError(outcome.sentence(error))
        lost.fault = self.fault = outcome.fault(error)
        return lost

    def _require_alive(self) -> None:
        if self._dead is not None:
            raise self._lost(self._dead) from self._dead

    def _failed(self, error: rollbox.SandboxError) -> outcome.Outcome:
        """A result, where the command or its sandbox's code is why it has none of its own."""
        if (refused := outcome.refused(error)) is not None:
            return refused
        if (died := outcome.died(error)) is not None:
            self._dead = error
            return died
        raise self._lost(error) from error


@dataclass(frozen=True)
class SandboxFactory:
    """Makes sandboxes of one image, as `BenchmarkConfig` takes it.

    Attributes:
        image: name of a container image.
        options: of `rollbox.Sandbox.create`.
    """

    image: str
    options: CreateOptions | None = None

    async def __call__(self) -> RollboxSandbox:
        """Create one; see `RollboxSandbox.create`."""
        return await RollboxSandbox.create(self.image, self.options)


@dataclass(frozen=True)
class HarborSandboxFactory:
    """Makes sandboxes of tasks' Dockerfiles, as the recipe `harbor_rl` takes it. The same content is built once.

    Attributes:
        options: of `rollbox.Sandbox.create`.
        build: of `rollbox.Client.build`.
    """

    options: CreateOptions | None = None
    build: BuildOptions | None = None

    async def __call__(self, env_dir: Path, timeout: int) -> RollboxSandbox:  # noqa: ASYNC109 - tinker-cookbook's
        """Build the image of a task where it was not, and create a sandbox of it.

        Args:
            env_dir: the task's folder `environment`.
            timeout: seconds that the sandbox may live, where `ttl` does not say otherwise.

        Raises: as `RollboxSandbox.create`.
        """
        try:
            async with Client() as client:
                image = await client.build(env_dir, **(self.build or {}))
        except rollbox.SandboxError as error:
            raise _not_created(error) from error
        return await RollboxSandbox.create(
            image, cast("CreateOptions", {"ttl": float(timeout), **(self.options or {})})
        )


def _refused(why: str) -> SandboxResult:
    return SandboxResult(stdout="", stderr=f"rollbox: {why}\n", exit_code=_FAILED)


def _not_created(error: rollbox.SandboxError) -> SandboxNotCreatedError | ValueError:
    if error.code == "invalid_argument":
        return ValueError(outcome.sentence(error))
    none = SandboxNotCreatedError(outcome.sentence(error))
    none.fault = outcome.fault(error)
    return none
