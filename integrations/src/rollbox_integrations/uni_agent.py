"""uni-agent, of verl: the sandbox provider `rollbox`, by importing this module or by the name in its table of modules.

from uni_agent.sandbox.registry import SANDBOX_MODULES
SANDBOX_MODULES["rollbox"] = "rollbox_integrations.uni_agent"
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, cast, get_type_hints

try:
    from uni_agent.sandbox.base import ExecResult, Sandbox, SandboxConfig
    from uni_agent.sandbox.registry import register_sandbox
except ImportError as error:
    # It has no releases, and another project has its name on PyPI.
    _WANTED = "uni-agent's `uni_agent.sandbox` is not there: rollbox works with verl-project/uni-agent at 6f4a7c9"
    raise ImportError(f"{_WANTED} and newer, whose folder has to be on PYTHONPATH ({error})") from error

import rollbox
from rollbox.options import CreateOptions
from rollbox_integrations import outcome

_logger = logging.getLogger(__name__)
# What an exec may answer at most, each output; the end of a longer one is kept.
_MOST_OUTPUT_BYTES = 16 * 1024**2


class SandboxLostError(RuntimeError):
    """There is no sandbox, or the platform does not answer.

    Attributes:
        fault: whose fault it was, and whether to mask the sample.
    """

    fault: outcome.Fault


@register_sandbox("rollbox")
class RollboxSandbox(Sandbox):  # type: ignore[misc, unused-ignore] # the host may be absent
    """A sandbox of uni-agent's, from `start` to `stop`.

    Args:
        image: name of a container image.
        runtime_timeout: seconds that it lives at most.
        options: of `rollbox.Sandbox.create`.

    Attributes:
        fault: of the last call that had no sandbox to answer; None: none had.

    Raises:
        TypeError: an option is none.
    """

    supports_shell = True

    def __init__(self, *, image: str = "python:3.12", runtime_timeout: float = 3600.0, **options: Any) -> None:  # noqa: ANN401 - checked here
        if unknown := sorted(options.keys() - get_type_hints(CreateOptions).keys()):
            raise TypeError(f"sandbox_kwargs has {', '.join(unknown)}, which Sandbox.create does not take")
        labels = {**(options.get("labels") or {}), "rollbox.host": "uni-agent"}
        self.image = image
        self.fault: outcome.Fault | None = None
        self._options = cast("CreateOptions", {"ttl": runtime_timeout, **options, "labels": labels})
        self._sandbox: rollbox.Sandbox | None = None
        # What has ended the sandbox, and is a result of the command that did it.
        self._dead: rollbox.SandboxError | None = None

    @classmethod
    def from_config(cls, config: SandboxConfig) -> RollboxSandbox:
        """See uni-agent: `sandbox_kwargs` are options of `rollbox.Sandbox.create`."""
        return cls(image=config.image, runtime_timeout=config.runtime_timeout, **config.sandbox_kwargs)

    @property
    def sandbox(self) -> rollbox.Sandbox:
        """The SDK's own, for what uni-agent has no call for.

        Raises:
            RuntimeError: it was not started.
            SandboxLostError: its own code has ended it.
        """
        if self._dead is not None:
            raise self._lost(self._dead) from self._dead
        if self._sandbox is None:
            raise RuntimeError("the sandbox was not started")
        return self._sandbox

    async def start(self) -> None:
        """Create the sandbox, if it was not.

        Raises:
            SandboxLostError: there is none, and that says nothing about the sample.
            ValueError: an option is wrong.
        """
        if self._sandbox is not None:
            return
        try:
            self._sandbox = await rollbox.Sandbox.create(self.image, **self._options)
        except rollbox.SandboxError as error:
            if error.code == "invalid_argument":
                raise ValueError(outcome.sentence(error)) from error
            raise self._lost(error) from error

    async def stop(self) -> None:
        """Delete the sandbox; its lease ends one that could not be deleted. Idempotent."""
        sandbox, self._sandbox = self._sandbox, None
        if sandbox is None:
            return
        try:
            await sandbox.delete()
        except rollbox.SandboxError as error:
            _logger.warning("sandbox %s was not ended, its lease ends it: %s", sandbox.id, error)

    async def is_alive(self) -> bool:
        """Whether the last call had a sandbox to answer. Of a failure in one that is alive uni-agent makes a result."""
        return self._sandbox is not None and self.fault is None

    async def _exec(
        self,
        argv: list[str],
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - uni-agent's
        workdir: str | None = None,
        env: dict[str, str] | None = None,
    ) -> ExecResult:
        running = self.sandbox.exec(
            argv, timeout=timeout or None, cwd=workdir, env=env, max_output_bytes=_MOST_OUTPUT_BYTES
        )
        try:
            result = await running
            if result.timed_out:
                raise TimeoutError(f"it was killed; it had written {result.stdout!r}")
            ended = outcome.ended(result)
        except rollbox.SandboxError as error:
            ended = self._failed(error)
        self.fault = None
        return _said(ended)

    async def open_shell(self, *, cwd: str | None = None, env: dict[str, str] | None = None) -> RollboxShell:
        """Start a bash, or sh where there is none, that keeps its directory and variables. See uni-agent."""
        try:
            return RollboxShell(self, await self.sandbox.shell(cwd=cwd, env=env, max_output_bytes=_MOST_OUTPUT_BYTES))
        except rollbox.SandboxError as error:
            raise self._told(error) from error

    async def read_file(self, path: str) -> bytes:
        """See uni-agent: without a program in the image."""
        try:
            return await self.sandbox.files.read(path)
        except rollbox.SandboxError as error:
            raise self._told(error) from error

    async def write_file(self, path: str, content: bytes | str) -> None:
        """See uni-agent: the file is whole, and the directories above it are made."""
        try:
            await self.sandbox.files.write(path, content)
        except rollbox.SandboxError as error:
            raise self._told(error) from error

    async def upload_file(self, local_file: Path | str, remote_file: str) -> None:
        """See uni-agent: in constant memory."""
        try:
            await self.sandbox.files.upload(local_file, remote_file)
        except rollbox.SandboxError as error:
            raise self._told(error) from error

    async def download_file(self, remote_file: str, local_file: Path | str) -> None:
        """See uni-agent: in constant memory."""
        Path(local_file).parent.mkdir(parents=True, exist_ok=True)
        try:
            await self.sandbox.files.download(remote_file, local_file)
        except rollbox.SandboxError as error:
            raise self._told(error) from error

    async def expose_port(self, port: int) -> str:
        """See uni-agent. Anyone who has the address may use it until the sandbox ends."""
        try:
            return (await self.sandbox.ports.expose(port, public=True)).url.rstrip("/")
        except rollbox.SandboxError as error:
            raise self._told(error) from error

    def _failed(self, error: rollbox.SandboxError) -> outcome.Outcome:
        """A result, where the command or its sandbox's code is why it has none of its own."""
        if (refused := outcome.refused(error)) is not None:
            return refused
        if (died := outcome.died(error)) is not None:
            self._dead = error
            return died
        raise self._told(error) from error

    def _told(self, error: rollbox.SandboxError) -> Exception:
        """Say a failure: RuntimeError of a file, as uni-agent's own; else SandboxLostError."""
        gone = error.mask_sample or outcome.died(error) is not None
        return self._lost(error) if gone else RuntimeError(str(error))

    def _lost(self, error: rollbox.SandboxError) -> SandboxLostError:
        lost = SandboxLostError(outcome.sentence(error))
        lost.fault = self.fault = outcome.fault(error)
        return lost


class RollboxShell:
    """A shell as uni-agent's tool takes it; made by `open_shell`."""

    def __init__(self, owner: RollboxSandbox, shell: rollbox.Shell) -> None:
        self._owner = owner
        self._shell = shell

    async def run(self, command: str, *, timeout: float = 120.0) -> ExecResult:  # noqa: ASYNC109 - uni-agent's
        """Run a command line.

        Raises:
            TimeoutError: its time has passed; its processes are killed, and the shell goes on.
            SandboxLostError: there is no sandbox any more, or the platform does not answer.
            RuntimeError: a command has ended the shell.
        """
        if not command.strip():
            return ExecResult(exit_code=0, stdout="", stderr="")
        try:
            result = await self._shell.run(command, timeout=timeout)
            if result.timed_out:
                raise TimeoutError(f"it was killed after {timeout} s; it had written {result.stdout!r}")
            return _said(outcome.ended(result))
        except rollbox.SandboxError as error:
            raise self._owner._told(error) from error  # noqa: SLF001 - of this module

    async def close(self) -> None:
        """End the shell, with all that it left running. Idempotent."""
        await self._shell.aclose()


def _said(ended: outcome.Outcome) -> ExecResult:
    stdout, stderr = (stream.decode("utf-8", "replace") for stream in (ended.stdout, ended.stderr))
    return ExecResult(exit_code=ended.status, stdout=stdout, stderr=stderr)
