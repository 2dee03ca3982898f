"""llm-sandbox's `BaseSession` on a rollbox sandbox: code, commands, files and artefacts."""

from __future__ import annotations

import contextlib
import io
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path, PurePosixPath
from typing import Any

from llm_sandbox.const import DefaultImage, SupportedLanguage
from llm_sandbox.core.session_base import BaseSession
from llm_sandbox.data import ConsoleOutput, StreamCallback
from llm_sandbox.exceptions import CommandEmptyError, CommandFailedError, NotOpenSessionError

from rollbox import ExecResult, FileInfo, SandboxError
from rollbox.errors import FileNotFound
from rollbox.request import SpawnOptions
from rollbox.sync import Client, Sandbox
from rollbox_integrations import outcome
from rollbox_integrations.llm_sandbox import faults, listening, settings

# What a command may answer at most, each output; the end of a longer one is kept.
_MOST_OUTPUT_BYTES = 16 * 1024**2
# Of an archive that is held in memory here.
_MOST_ARCHIVE_BYTES = 256 * 1024**2
# When the call that runs is to end, by this machine's clock, and how many seconds it has in all.
_until: ContextVar[tuple[float, float] | None] = ContextVar("until", default=None)


class RollboxSession(BaseSession):
    """A sandbox of a session, from `open` to `close`; its lease ends one that a killed program leaves behind.

        with SandboxSession(backend="rollbox", image="python:3.12", egress="packages") as session:
            session.run("print(6 * 7)")

    Attributes:
        container: the SDK's sandbox, for what llm-sandbox has no call for; None while the session is not open.
        fault: of the last call that had no sandbox to answer; None: none had.
    """

    container: Sandbox | None

    def __init__(self, **given: Any) -> None:  # noqa: ANN401 - checked here
        """Make it; nothing is created before `open`.

        Args:
            given: arguments of llm-sandbox's sessions, and options of `rollbox.Sandbox.create`.

        Raises:
            ValidationError: one of them is none, or is of Docker alone.
        """
        # Output is told as it comes where there is a callback, and is whole at the end, whatever this says.
        self.stream = bool(given.pop("stream", False))
        libraries = given.pop("libraries", None)
        config = settings.config(given)
        self._options = settings.options(config.runtime_configs, given)
        super().__init__(config, libraries=libraries)
        self.fault: outcome.Fault | None = None
        # What has ended the sandbox, and is a result of the command that did it.
        self._dead: SandboxError | None = None
        self._last = ConsoleOutput()

    def open(self) -> None:
        """Create the sandbox, or find that of `container_id`, and make its language ready.

        Raises:
            SandboxUnavailable: there is none, and that says nothing about the sample.
            ValidationError: an option is wrong, or the Dockerfile.
            CommandFailedError: a library could not be installed.
        """
        if self.config.container_id:
            self._connect_to_existing_container(self.config.container_id)
        else:
            with self._telling():
                self.container = Sandbox.create(self._image(), **self._options)
        super().open()
        try:
            self.environment_setup()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Delete the sandbox, unless it was there before; its lease ends one that could not be deleted. Idempotent."""
        super().close()
        sandbox, self.container = self.container, None
        if sandbox is not None and not self.using_existing_container:
            with contextlib.suppress(SandboxError):
                sandbox.delete()

    def environment_setup(self) -> None:
        """See llm-sandbox. Python needs nothing but its folder."""
        if self.using_existing_container or self.config.skip_environment_setup or not self._of_python:
            super().environment_setup()
            return
        with self._telling():
            self._sandbox().files.mkdir(self.config.workdir)
        self.install(self._initial_libraries)

    def install(self, libraries: list[str] | None = None) -> None:
        """Install libraries by the language's own package manager. See llm-sandbox.

        Raises:
            CommandFailedError: one could not be installed.
        """
        if not libraries:
            return
        super().install(libraries)
        if self._last.exit_code:
            said = self._last.stderr or self._last.stdout
            raise CommandFailedError(f"install {', '.join(libraries)}", self._last.exit_code, said)

    def execute_commands(
        self,
        commands: list[str | tuple[str, str | None]],
        workdir: str | None = None,
        on_stdout: StreamCallback | None = None,
        on_stderr: StreamCallback | None = None,
    ) -> ConsoleOutput:
        """See llm-sandbox, whose `install` does not look at what came out."""
        self._last = super().execute_commands(commands, workdir, on_stdout, on_stderr)
        return self._last

    @property
    def python_executable_path(self) -> str:
        """The image's Python: the sandbox is the session's alone, and needs no environment within."""
        return "python3"

    @property
    def pip_executable_path(self) -> str:
        """The pip of the image's Python."""
        return "python3 -m pip"

    def execute_command(
        self,
        command: str,
        workdir: str | None = None,
        on_stdout: StreamCallback | None = None,
        on_stderr: StreamCallback | None = None,
    ) -> ConsoleOutput:
        """Run a command line of the image's shell; Ctrl-C kills it. See llm-sandbox.

        Raises:
            SandboxTimeoutError: the call or the session has passed its time; the command was killed.
            SandboxUnavailable: there is no sandbox any more, or the platform does not answer.
        """
        if not command:
            raise CommandEmptyError
        sandbox, until = self._sandbox(), _until.get()
        left_s = None if until is None else max(until[0] - time.monotonic(), 0.001)
        try:
            if on_stdout or on_stderr:
                options: SpawnOptions = {"cwd": workdir, "timeout": left_s}
                errors, most = self.config.encoding_errors, _MOST_OUTPUT_BYTES
                told = (on_stdout, on_stderr)
                result = listening.run(sandbox, command, options, told, errors=errors, most_bytes=most)
            else:
                result = sandbox.exec(command, cwd=workdir, timeout=left_s, max_output_bytes=_MOST_OUTPUT_BYTES)
            if result.timed_out and until is not None:
                raise faults.CommandTimeoutError(until[1], result)
            return self._output(outcome.ended(result), result)
        except SandboxError as error:
            return self._output(self._failed(error))

    def copy_to_runtime(self, src: str, dest: str) -> None:
        """Copy a file or a folder into the sandbox; the directories above it are made. See llm-sandbox."""
        sandbox, source = self._sandbox(), Path(src)
        target = self._validate_container_path(dest)
        if not source.exists():
            raise FileNotFoundError(f"{src} is not there")
        with self._telling():
            if source.is_dir():
                sandbox.files.upload_dir(source, target)
            else:
                sandbox.files.upload(source, target)

    def copy_from_runtime(self, src: str, dest: str) -> None:
        """Copy a file to a path, or a folder into a folder. See llm-sandbox."""
        found = self._found(src)
        if found is None:
            raise FileNotFoundError(f"{src} is not in the sandbox")
        self._fetch(src, found, Path(dest) / PurePosixPath(src).name if found.kind == "directory" else Path(dest))

    def get_archive(self, path: str) -> tuple[bytes, dict[str, Any]]:
        """Return a file or a folder of at most 256 MiB as an archive, with what it is. See llm-sandbox."""
        found, name = self._found(path), PurePosixPath(path).name
        if found is None:
            return b"", {"size": 0}
        if found.size_bytes > _MOST_ARCHIVE_BYTES:
            raise ValueError(f"{path} is over {_MOST_ARCHIVE_BYTES >> 20} MiB: copy it by copy_from_runtime")
        with tempfile.TemporaryDirectory() as folder, io.BytesIO() as archive:
            self._fetch(path, found, Path(folder, name))
            with tarfile.open(fileobj=archive, mode="w") as tar:
                tar.add(Path(folder, name), arcname=name)
            stat = {"name": name, "size": found.size_bytes, "mode": found.mode, "mtime": found.modified_at_ms // 1000}
            return archive.getvalue(), stat

    def _fetch(self, path: str, found: FileInfo, local: Path) -> None:
        local.parent.mkdir(parents=True, exist_ok=True)
        with self._telling():
            if found.kind == "directory":
                local.mkdir(exist_ok=True)
                self._sandbox().files.download_dir(path, local)
            else:
                self._sandbox().files.download(path, local)

    def _found(self, path: str) -> FileInfo | None:
        with self._telling(), contextlib.suppress(FileNotFound):
            return self._sandbox().files.stat(path)
        return None

    def _image(self) -> str:
        if not self.config.dockerfile:
            return self.config.image or str(getattr(DefaultImage, self.config.lang.name))
        with Client() as client:
            file = Path(self.config.dockerfile)
            return client.build(file.parent, file=file)

    @property
    def _of_python(self) -> bool:
        return bool(self.language_handler.name == SupportedLanguage.PYTHON)

    def _sandbox(self) -> Sandbox:
        if self._dead is not None:
            raise self._told(self._dead) from self._dead
        if self.container is None:
            raise NotOpenSessionError
        return self.container

    def _output(self, ended: outcome.Outcome, result: ExecResult | None = None) -> ConsoleOutput:
        # The begin of what is kept of a longer output may be in the middle of a character.
        cut = result is not None and (result.stdout_truncated or result.stderr_truncated)
        errors = "replace" if cut else self.config.encoding_errors
        stdout, stderr = (text.decode("utf-8", errors) for text in (ended.stdout, ended.stderr))
        return ConsoleOutput(exit_code=ended.status, stdout=stdout, stderr=stderr)

    def _failed(self, error: SandboxError) -> outcome.Outcome:
        """A result, where the command or its sandbox's code is why it has none of its own."""
        if (refused := outcome.refused(error)) is not None:
            return refused
        if (died := outcome.died(error)) is not None:
            self._dead, self.fault = error, outcome.fault(error)
            return died
        raise self._told(error) from error

    def _told(self, error: SandboxError) -> Exception:
        # The timer of a session deletes its sandbox.
        self._check_session_timeout()
        told = faults.told(error)
        self.fault = told.fault if isinstance(told, faults.SandboxUnavailable) else self.fault
        return told

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except SandboxError as error:
            raise self._told(error) from error

    def _execute_with_timeout(
        self,
        func: Any,  # noqa: ANN401 - llm-sandbox's
        *args: Any,  # noqa: ANN401
        timeout: float | None = None,
        force_kill_on_timeout: bool = True,
        **kwargs: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """Call in this thread: the commands of the call are killed where they run, so that none goes on unseen."""
        within = _until.set(None if timeout is None else (time.monotonic() + timeout, timeout))
        try:
            return func(*args, **kwargs)
        finally:
            _until.reset(within)

    def _connect_to_existing_container(self, container_id: str) -> None:
        with self._telling():
            self.container = Sandbox.connect(container_id)
            self.container.refresh()

    def _handle_timeout(self) -> None:
        """Nothing is left to be ended."""

    def _ensure_directory_exists(self, path: str) -> None:
        with self._telling():
            self._sandbox().files.mkdir(path)

    def _ensure_ownership(self, paths: list[str]) -> None:
        """What is copied belongs to the sandbox's user already."""

    def _process_non_stream_output(self, output: tuple[bytes, bytes]) -> tuple[str, str]:
        stdout, stderr = (text.decode("utf-8", self.config.encoding_errors) for text in output)
        return stdout, stderr

    def _process_stream_output(
        self,
        output: Any,  # noqa: ANN401 - llm-sandbox's
        on_stdout: StreamCallback | None = None,
        on_stderr: StreamCallback | None = None,
    ) -> tuple[str, str]:
        raise NotImplementedError("execute_command tells its output itself")
