"""inspect-ai's `SandboxEnvironment` on a rollbox sandbox: one sandbox a sample, deleted with it."""

from __future__ import annotations

import asyncio
import errno
import os
import posixpath
from logging import getLogger
from pathlib import Path
from typing import Any, ClassVar, Literal, cast, overload

from inspect_ai.log import transcript
from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxConnection,
    SandboxEnvironment,
    SandboxEnvironmentLimits,
    SandboxUnavailableError,
    sandboxenv,
)
from pydantic import BaseModel, JsonValue
from rich.console import Console

import rollbox
from rollbox import Client, LazySandbox, Sandbox, SandboxError
from rollbox.errors import FileNotFound, InvalidArgument, NoSpace, PermissionDenied
from rollbox_integrations import outcome
from rollbox_integrations.inspect.compose import resolved
from rollbox_integrations.inspect.config import Build, RollboxConfig

_logger = getLogger(__name__)
SOURCE = "rollbox"
_LABEL = "rollbox.host"
_ROOT = "0"
# What an exec may answer at most, whatever inspect is told to take.
_MOST_OUTPUT_BYTES = 16 * 1024**2
# A path that is none says so as the kernel does; inspect makes a tool error of each of these, and goes on.
_NO_FILE = {
    "not_directory": errno.ENOTDIR,
    "name_too_long": errno.ENAMETOOLONG,
    "symlink_loop": errno.ELOOP,
}


@sandboxenv(name="rollbox")
class RollboxSandboxEnvironment(SandboxEnvironment):
    """A sample's sandbox.

    A command's end is a result, whatever it was. That there is no sandbox any more, or that the platform does not
    answer, is a `SandboxUnavailableError`, and an event of the sample with `mask_sample` (`fault_of`).

    Attributes:
        sandbox: rollbox's own, for what inspect has no call for: ports, network policies, checkpoints, grading.
    """

    # Those of this process that are not deleted yet.
    _live: ClassVar[set[RollboxSandboxEnvironment]] = set()
    # Images that this process has built, by their Dockerfiles.
    _built: ClassVar[dict[Build, str]] = {}

    def __init__(self, sandbox: Sandbox, cwd: str = "") -> None:
        super().__init__()
        self.sandbox = sandbox
        self._cwd = cwd
        self._ended: SandboxError | None = None

    @classmethod
    def config_files(cls) -> list[str]:
        """See inspect: what is looked for beside a task that names no configuration."""
        return ["compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml", "Dockerfile"]

    @classmethod
    def is_docker_compatible(cls) -> bool:
        """See inspect: it takes compose files of one service, and Dockerfiles."""
        return True

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        """See inspect."""
        return RollboxConfig(**config)

    def default_polling_interval(self) -> float:
        """See inspect: seconds between two looks at a service of a sandbox; a look is a call of some milliseconds."""
        return 0.2

    @classmethod
    async def task_init(cls, task_name: str, config: BaseModel | str | None) -> None:
        """Check the configuration and the platform, and build its Dockerfile, before any sandbox is made."""
        _require_asyncio()
        # A compose file may need a sample's values: what it lacks is told with the sample.
        if isinstance(config, str) and "${SAMPLE_METADATA_" in await asyncio.to_thread(_text, config):
            config = None
        wanted = resolved(config, {})
        async with Client() as client:
            await client.list({_LABEL: "none"})
            if wanted.build is not None:
                cls._built[wanted.build] = await client.build(wanted.build.folder, file=wanted.build.file)
            else:
                LazySandbox(wanted.image, **wanted.options())

    @classmethod
    async def sample_init(
        cls, task_name: str, config: BaseModel | str | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        """Create the sandbox of a sample."""
        wanted = resolved(config, metadata)
        options = wanted.options()
        options["labels"] = {**wanted.labels, _LABEL: "inspect", "inspect.task": task_name}
        try:
            image = wanted.image if wanted.build is None else await cls._image(wanted.build)
            made = cls(await Sandbox.create(image, **options), wanted.cwd or "")
        except SandboxError as error:
            raise _told(error) from error
        cls._live.add(made)
        try:
            await made._enter()
        except BaseException:
            await cls.sample_cleanup(task_name, config, {"default": made}, interrupted=True)
            raise
        return {"default": made}

    async def _enter(self) -> None:
        """Make the working directory where the image lacks it, as Docker does."""
        if self._cwd:
            try:
                await self.sandbox.files.mkdir(self._cwd, user=_ROOT)
            except SandboxError as error:
                raise _told(error) from error

    @classmethod
    async def _image(cls, build: Build) -> str:
        if build not in cls._built:
            async with Client() as client:
                cls._built[build] = await client.build(build.folder, file=build.file)
        return cls._built[build]

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: BaseModel | str | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        """Delete the sandbox of a sample; its lease ends one that could not be deleted."""
        for environment in environments.values():
            own = environment.as_type(cls)
            cls._live.discard(own)
            try:
                await own.sandbox.delete()
            except SandboxError as error:
                _logger.warning("sandbox %s was not deleted, its lease ends it: %s", own.sandbox.id, error)

    @classmethod
    async def task_cleanup(cls, task_name: str, config: BaseModel | str | None, cleanup: bool) -> None:
        """With --no-sandbox-cleanup let the sandboxes outlive this program, and say which they are."""
        if not cleanup:
            for own in tuple(cls._live):
                cls._live.discard(own)
                kept = await own.sandbox.detach()
                Console().print(f"kept sandbox {kept}: rollbox exec -it {kept} -- sh; rollbox delete {kept}")

    @classmethod
    async def cli_cleanup(cls, id: str | None) -> None:
        """Delete the sandbox of this id, or all that inspect has made with this key."""
        async with Client() as client:
            report = await (client.delete(id) if id else client.delete(labels={_LABEL: "inspect"}))
        for sandbox_id in report.deleted:
            Console().print(f"deleted {sandbox_id}")
        for sandbox_id, error in report.failed.items():
            Console().print(f"not deleted {sandbox_id}: {error}")

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,  # noqa: ASYNC109 - inspect's name
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Run a command. See inspect for arguments and errors.

        The deadline is the command's own, kept by the sandbox: it is not repeated for it, whatever `timeout_retry`
        says, and all of its processes are dead. `concurrency` is for sandboxes that run on this machine.

        Raises:
            TimeoutError: the deadline has passed; `truncated_output` is what it wrote.
            PermissionError: the program may not be executed.
            SandboxUnavailableError: there is no sandbox any more, or the platform does not answer.
            ValueError: an argument has a null byte.
        """
        if any("\0" in word for word in cmd):
            raise ValueError("embedded null byte")
        if self._ended is not None:
            raise _told(self._ended)
        try:
            result = await self.sandbox.exec(
                cmd,
                stdin=b"" if input is None else input,
                cwd=posixpath.join(self._cwd, cwd or "") or None,
                env=env,
                user=user,
                timeout=timeout,
                max_output_bytes=min(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE, _MOST_OUTPUT_BYTES),
            )
            if result.timed_out:
                raise _late(result, timeout)
            ended = outcome.ended(result)
        except SandboxError as error:
            ended = self._failed(error, cmd)
        stdout, stderr = (stream.decode("utf-8", "replace") for stream in (ended.stdout, ended.stderr))
        return ExecResult(ended.status == 0, ended.status, stdout, stderr)

    def _failed(self, error: SandboxError, cmd: list[str]) -> outcome.Outcome:
        """What a command that has not ended by itself is to inspect: a result where it or its sandbox's code is why."""
        if error.details.get("reason") == "not_executable":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), cmd[0]) from error
        if (refused := outcome.refused(error)) is not None:
            return refused
        if (died := outcome.died(error)) is not None:
            self._ended = error
            return died
        raise _told(error) from error

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Write a file as a program would: into the old one, as the sandbox's user. See inspect for errors."""
        try:
            await self.sandbox.files.write(posixpath.join(self._cwd, file), contents, in_place=True)
        except SandboxError as error:
            raise _of_file(error, file) from error

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        """Read a file. See inspect for errors."""
        limit = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        try:
            data = await self.sandbox.files.read(posixpath.join(self._cwd, file), length=limit + 1)
        except SandboxError as error:
            raise _of_file(error, file) from error
        if len(data) > limit:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
        return data.decode() if text else data

    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        """Say how a person gets a shell in the sandbox.

        Raises:
            ConnectionError: it has ended.
        """
        try:
            record = await self.sandbox.refresh()
        except SandboxError as error:
            raise ConnectionError(outcome.sentence(error)) from error
        if record.state != "running":
            raise ConnectionError(f"sandbox {self.sandbox.id} is {record.state}: rollbox why {self.sandbox.id}")
        options = f"--user {user} " if user else ""
        command = f"rollbox exec -it {options}{self.sandbox.id} -- sh"
        return SandboxConnection(type="rollbox", command=command, container=self.sandbox.id)


def _late(result: rollbox.ExecResult, timeout: int | None) -> TimeoutError:
    late = TimeoutError(f"Command timed out after {timeout} seconds")
    late.truncated_output = result.stdout + result.stderr  # type: ignore[attr-defined]  # by this name inspect reads it
    return late


def _told(error: SandboxError) -> RuntimeError | ValueError:
    """Put a failure into the sample's events, and say it in inspect's words.

    Returns:
        SandboxUnavailableError where it says nothing about the sample, ValueError where the call itself was wrong.
    """
    transcript().info(cast("dict[str, JsonValue]", outcome.fault(error)), source=SOURCE)
    kind = SandboxUnavailableError if error.mask_sample or error.fault != "caller" else ValueError
    return kind(outcome.sentence(error))


def _of_file(error: SandboxError, file: str) -> Exception:
    """What happened to a file, as Python's own files say it; else as `_told`."""
    match error:
        case FileNotFound():
            number = errno.ENOENT
        case PermissionDenied():
            number = errno.EACCES
        case NoSpace():
            number = errno.ENOSPC
        case InvalidArgument(details={"reason": ("is_directory" | "not_regular") as reason}):
            number = {"is_directory": errno.EISDIR, "not_regular": errno.EACCES}[reason]
        case InvalidArgument(details={"reason": reason}) if reason in _NO_FILE:
            return FileNotFoundError(_NO_FILE[reason], os.strerror(_NO_FILE[reason]), file)
        case _:
            return _told(error)
    # Of a number Python makes the class.
    return OSError(number, os.strerror(number), file)


def _require_asyncio() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError("rollbox runs on asyncio: unset INSPECT_ASYNC_BACKEND") from None


def _text(path: str) -> str:
    return Path(path).read_text()
