"""SWE-ReX's runtime on a sandbox: sessions, commands and files."""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from swerex.exceptions import CommandTimeoutError, NonZeroExitCodeError, SessionDoesNotExistError, SessionExistsError
from swerex.runtime.abstract import (
    AbstractRuntime,
    Action,
    BashObservation,
    CloseBashSessionResponse,
    CloseResponse,
    CloseSessionRequest,
    Command,
    CommandResponse,
    CreateBashSessionResponse,
    CreateSessionRequest,
    IsAliveResponse,
    ReadFileRequest,
    ReadFileResponse,
    UploadRequest,
    UploadResponse,
    WriteFileRequest,
    WriteFileResponse,
)
from swerex.utils import log

from rollbox import Sandbox, SandboxError
from rollbox.errors import Conflict
from rollbox.sync.loop_thread import on_background_loop
from rollbox_integrations import outcome
from rollbox_integrations.outcome import Outcome
from rollbox_integrations.swe_rex.faults import unavailable
from rollbox_integrations.swe_rex.session import MOST_OUTPUT_BYTES, Session

_T = TypeVar("_T")


class RollboxRuntime(AbstractRuntime):
    """What runs in a sandbox; made by `RollboxDeployment.start`.

    Args:
        sandbox: made on the loop of `rollbox.sync`, on which all its calls run.
        logger: SWE-ReX's own, where it is None.
    """

    def __init__(self, sandbox: Sandbox, *, logger: logging.Logger | None = None) -> None:
        self._sandbox = sandbox
        self._sessions: dict[str, Session] = {}
        # What has ended the sandbox, and is a result of the command that did it.
        self._dead: SandboxError | None = None
        self.logger = logger or log.get_logger("rex-runtime")

    async def is_alive(self, *, timeout: float | None = None) -> IsAliveResponse:  # noqa: ASYNC109 - SWE-ReX's
        """Ask the control plane whether the sandbox runs; `message` says why not."""
        try:
            async with asyncio.timeout(timeout):
                record = await on_background_loop(self._sandbox.refresh())
        except SandboxError as error:
            return IsAliveResponse(is_alive=False, message=outcome.sentence(error))
        except TimeoutError:
            return IsAliveResponse(is_alive=False, message=f"the platform has not answered within {timeout} s")
        return IsAliveResponse(is_alive=record.state == "running", message=f"sandbox {record.id} is {record.state}")

    async def create_session(self, request: CreateSessionRequest) -> CreateBashSessionResponse:
        """Start a bash on a terminal.

        Raises:
            SessionExistsError: there is one of this name that has not ended.
            CommandTimeoutError: the files to source took longer than `startup_timeout`.
        """
        kept = self._sessions.get(request.session)
        if kept is not None and not kept.ended:
            raise SessionExistsError(f"session {request.session} already exists")
        session, output = await self._in_session(Session.start(self._sandbox, request))
        self._sessions[request.session] = session
        return CreateBashSessionResponse(output=output)

    async def run_in_session(self, action: Action) -> BashObservation:
        """Run a command in a session, or interrupt what runs there. See SWE-ReX.

        Raises:
            CommandTimeoutError: its time has passed; its processes are killed, and the session goes on.
            SessionDoesNotExistError: there is none of this name, or a command has ended its shell.
            BashIncorrectSyntaxError, NonZeroExitCodeError, NoExitCodeError: see SWE-ReX.
            SandboxUnavailableError: there is no sandbox any more, or the platform does not answer.
        """
        session = self._session(action.session)
        return await self._in_session(session.run(action))

    async def close_session(self, request: CloseSessionRequest) -> CloseBashSessionResponse:
        """End a session's shell, with all that it left running."""
        session = self._session(request.session)
        del self._sessions[request.session]
        await self._in_session(session.close())
        return CloseBashSessionResponse()

    async def execute(self, command: Command) -> CommandResponse:
        """Run a command beside the sessions; its variables are over those of the sandbox. See SWE-ReX.

        Raises:
            CommandTimeoutError: its time has passed; all its processes are killed.
            NonZeroExitCodeError: with `check`.
            SandboxUnavailableError: there is no sandbox any more, or the platform does not answer.
        """
        ended = await self._executed(command)
        stdout, stderr = (stream.decode("utf-8", "backslashreplace") for stream in (ended.stdout, ended.stderr))
        if command.check and ended.status != 0:
            told = f"{command.error_msg}: " if command.error_msg else ""
            why = f"command {command.command!r} failed with exit code {ended.status}"
            raise NonZeroExitCodeError(f"{told}{why}. Stdout:\n{stdout!r}\nStderr:\n{stderr!r}")
        return CommandResponse(stdout=stdout, stderr=stderr, exit_code=ended.status)

    async def _executed(self, command: Command) -> Outcome:
        words = [command.command] if isinstance(command.command, str) else command.command
        running = self._sandbox.exec(
            ["sh", "-c", *words] if command.shell else words,
            cwd=command.cwd,
            env=command.env,
            timeout=command.timeout,
            merge=command.merge_output_streams,
            max_output_bytes=MOST_OUTPUT_BYTES,
        )
        try:
            result = await self._on_loop(running)
            if result.timed_out:
                raise CommandTimeoutError(f"Timeout ({command.timeout}s) exceeded while running command")
            return outcome.ended(result)
        except SandboxError as error:
            if (refused := outcome.refused(error)) is not None:
                return refused
            if (died := outcome.died(error)) is not None:
                self._dead = error
                return died
            raise unavailable(error) from error

    async def read_file(self, request: ReadFileRequest) -> ReadFileResponse:
        r"""Read a text file, every end of a line as `\n`; a relative path begins at the sandbox's directory."""
        data = await self._call(self._sandbox.files.read(request.path))
        text = io.TextIOWrapper(io.BytesIO(data), encoding=request.encoding or "utf-8", errors=request.errors)
        return ReadFileResponse(content=text.read())

    async def write_file(self, request: WriteFileRequest) -> WriteFileResponse:
        """Write a text file, and make the directories above it."""
        await self._call(self._sandbox.files.write(request.path, request.content))
        return WriteFileResponse()

    async def upload(self, request: UploadRequest) -> UploadResponse:
        """Write a file of this machine, or what is in a folder of it, with their modes."""
        files, source = self._sandbox.files, request.source_path
        if await asyncio.to_thread(Path(source).is_dir):
            await self._call(files.upload_dir(source, request.target_path))
        else:
            await self._call(files.upload(source, request.target_path))
        return UploadResponse()

    async def close(self) -> CloseResponse:
        """End all sessions; the sandbox stays until the deployment stops."""
        sessions, self._sessions = list(self._sessions.values()), {}
        for session in sessions:
            await self._in_session(session.close())
        return CloseResponse()

    def _session(self, name: str) -> Session:
        if name not in self._sessions:
            raise SessionDoesNotExistError(f"session {name!r} does not exist")
        return self._sessions[name]

    async def _in_session(self, call: Coroutine[Any, Any, _T]) -> _T:
        try:
            return await self._on_loop(call)
        except Conflict as error:
            raise SessionDoesNotExistError(str(error)) from error
        except SandboxError as error:
            raise unavailable(error) from error

    async def _call(self, call: Coroutine[Any, Any, _T]) -> _T:
        try:
            return await self._on_loop(call)
        except SandboxError as error:
            raise unavailable(error) from error

    async def _on_loop(self, call: Coroutine[Any, Any, _T]) -> _T:
        if self._dead is not None:
            call.close()
            raise unavailable(self._dead) from self._dead
        return await on_background_loop(call)
