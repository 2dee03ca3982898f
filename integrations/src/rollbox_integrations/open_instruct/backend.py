"""open-instruct's `SandboxBackend` on a rollbox sandbox."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, cast, get_type_hints

from open_instruct.environments.backends import ExecutionResult, SandboxBackend

from rollbox import SandboxError
from rollbox.errors import FileNotFound, InvalidArgument
from rollbox.options import CreateOptions
from rollbox.sync import Sandbox
from rollbox_integrations import outcome
from rollbox_integrations.docker_sizes import size_bytes

_logger = logging.getLogger(__name__)
# As open-instruct's Docker: of each output the first part.
_MOST_OUTPUT_BYTES = 1_000_000


class SandboxLostError(RuntimeError):
    """There is no sandbox, or the platform does not answer.

    Attributes:
        fault: whose fault it was, and whether to mask the sample.
    """

    def __init__(self, error: SandboxError) -> None:
        super().__init__(outcome.sentence(error))
        self.fault = outcome.fault(error)


class RollboxBackend(SandboxBackend):
    """A sandbox, from `start` to `close`; its lease ends one that a killed program leaves behind.

    Attributes:
        sandbox: the SDK's own, for what open-instruct has no call for; None while it is not started.
        fault: of the last call that had no sandbox to answer; None: none had.
    """

    def __init__(
        self,
        image: str = "python:3.12-slim",
        timeout: int = 1800,
        mem_limit: str = "4g",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Make it; nothing is created before `start`.

        Args:
            image: name of a container image.
            timeout: seconds that a command may take.
            mem_limit: memory, as Docker writes it.
            options: of `rollbox.Sandbox.create`, over these.

        Raises:
            TypeError: an option is none.
            ValueError: the memory is none.
        """
        if unknown := sorted((options or {}).keys() - get_type_hints(CreateOptions).keys()):
            raise TypeError(f"options has {', '.join(unknown)}, which Sandbox.create does not take")
        given: dict[str, Any] = {"memory": size_bytes(mem_limit), **(options or {})}
        given["labels"] = {**(given.get("labels") or {}), "rollbox.host": "open-instruct"}
        self.sandbox: Sandbox | None = None
        self.fault: outcome.Fault | None = None
        self._image = image
        self._timeout_s = timeout
        self._options = cast("CreateOptions", given)
        # What has ended the sandbox, and is a result of the command that did it.
        self._dead: SandboxError | None = None

    def start(self) -> None:
        """Create the sandbox.

        Raises:
            SandboxLostError: there is none, and that says nothing about the sample.
            ValueError: an option is wrong.
        """
        try:
            self.sandbox = Sandbox.create(self._image, **self._options)
        except SandboxError as error:
            raise self._told(error) from error

    def run_command(self, command: str) -> ExecutionResult:
        """Run a command line of bash, or of sh where there is none. See open-instruct.

        Raises:
            SandboxLostError: there is no sandbox any more, or the platform does not answer.
        """
        try:
            result = self._started().exec(
                command, timeout=self._timeout_s, max_output_bytes=_MOST_OUTPUT_BYTES, keep="head"
            )
            ended = outcome.ended(result)
        except SandboxError as error:
            ended = self._failed(error)
        late = f"Command timed out after {self._timeout_s}s.\n" if ended.status == outcome.DEADLINE else ""
        stdout, stderr = (text.decode("utf-8", "replace") for text in (ended.stdout, ended.stderr))
        return ExecutionResult(stdout=stdout, stderr=late + stderr, exit_code=ended.status)

    def write_file(self, path: str, content: str | bytes) -> None:
        """Write a file: it is whole, and the directories above it are made. See open-instruct."""
        try:
            self._started().files.write(path, content)
        except SandboxError as error:
            raise self._told(error) from error

    def read_file(self, path: str, binary: bool = False) -> str | bytes:
        """Read a file. See open-instruct.

        Raises:
            FileNotFoundError: it is not there.
            IsADirectoryError: it is a directory.
        """
        try:
            data = self._started().files.read(path)
        except SandboxError as error:
            raise self._told(error) from error
        return data if binary else data.decode("utf-8", "replace")

    def close(self) -> None:
        """Delete the sandbox; its lease ends one that could not be deleted. Idempotent."""
        sandbox, self.sandbox = self.sandbox, None
        if sandbox is None:
            return
        try:
            sandbox.delete()
        except SandboxError as error:
            _logger.warning("sandbox %s was not ended, its lease ends it: %s", sandbox.id, error)

    def _started(self) -> Sandbox:
        if self._dead is not None:
            raise self._told(self._dead) from self._dead
        if self.sandbox is None:
            raise RuntimeError("the sandbox was not started")
        return self.sandbox

    def _failed(self, error: SandboxError) -> outcome.Outcome:
        """A result, where the command or its sandbox's code is why it has none of its own."""
        if (refused := outcome.refused(error)) is not None:
            return refused
        if (died := outcome.died(error)) is not None:
            self._dead, self.fault = error, outcome.fault(error)
            return died
        raise self._told(error) from error

    def _told(self, error: SandboxError) -> Exception:
        if isinstance(error, FileNotFound):
            return FileNotFoundError(str(error))
        if isinstance(error, InvalidArgument) and error.details.get("reason") == "is_directory":
            return IsADirectoryError(str(error))
        if error.fault == "caller" and not error.mask_sample:
            return ValueError(outcome.sentence(error))
        lost = SandboxLostError(error)
        self.fault = lost.fault
        return lost
