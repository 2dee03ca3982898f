"""deepagents' `BaseSandbox` on a rollbox sandbox: commands and files of an agent, with and without `await`."""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import Self, Unpack

from deepagents.backends.protocol import (
    DeleteResult,
    EditResult,
    ExecuteResponse,
    FileDownloadResponse,
    FileUploadResponse,
    GrepResult,
    LsResult,
    ReadResult,
    WriteResult,
)
from deepagents.backends.sandbox import BaseSandbox

import rollbox
import rollbox.sync
from rollbox import SandboxError
from rollbox.options import CreateOptions
from rollbox.sync.loop_thread import on_background_loop, run
from rollbox_integrations import outcome
from rollbox_integrations.deepagents import faults
from rollbox_integrations.deepagents.files import AgentFiles

# What a command may answer at most; the end of a longer output is kept.
_MOST_OUTPUT_BYTES = 16 * 1024**2
# deepagents' search has no other words for a grep that it cannot use than that nothing was found.
_CAN_GREP = "command -v rg >/dev/null 2>&1 || printf a | grep -HnFZ a >/dev/null 2>&1"


class RollboxSandbox(BaseSandbox):
    """A sandbox of an agent, deleted by `close`; its lease ends one that a killed program leaves behind.

        with RollboxSandbox("python:3.12", egress="offline") as backend:
            create_deep_agent(model, backend=backend).invoke(...)

        async with await RollboxSandbox.acreate("python:3.12") as backend:
            await create_deep_agent(model, backend=backend).ainvoke(...)

    Calls may come from any thread, and from any event loop.

    Attributes:
        sandbox: the SDK's own, for what deepagents has no call for.
        fault: of the last call that had no sandbox to answer; None: none had.
    """

    def __init__(
        self,
        image: str | None = None,
        *,
        sandbox: rollbox.sync.Sandbox | None = None,
        timeout: float = 1800.0,
        **options: Unpack[CreateOptions],
    ) -> None:
        """Create the sandbox.

        Args:
            image: any that has a shell; `glob` needs a `python3` in it, `grep` that of GNU or ripgrep.
            sandbox: one that is there, in place of an image; `close` leaves it.
            timeout: seconds that a command may take, where its call does not say; 0: without limit.
            options: of `Sandbox.create`.

        Raises:
            SandboxUnavailable: there is none, and that says nothing about the sample.
            ValueError: an option is wrong.
            TypeError: an option is none, or stands beside a sandbox that is there.
        """
        if sandbox is not None and (image is not None or options):
            raise TypeError("a sandbox that is there takes no image and no options")
        self.sandbox = rollbox.sync.Sandbox(run(_created(image, options))) if sandbox is None else sandbox
        self.fault: outcome.Fault | None = None
        self._own = sandbox is None
        self._timeout_s = timeout
        self._files = AgentFiles(self.sandbox.inner.files, self._told)
        # What has ended the sandbox, and is a result of the command that did it.
        self._dead: SandboxError | None = None
        self._can_grep = False

    @classmethod
    async def acreate(
        cls,
        image: str | None = None,
        *,
        timeout: float = 1800.0,  # noqa: ASYNC109 - of each command
        **options: Unpack[CreateOptions],
    ) -> Self:
        """Create the sandbox in an asynchronous program; else as the class itself.

        Cancel safety: no sandbox is left.
        """
        made = await on_background_loop(_created(image, options), lambda sandbox: sandbox.delete())
        backend = cls(sandbox=rollbox.sync.Sandbox(made), timeout=timeout)
        backend._own = True
        return backend

    @property
    def id(self) -> str:
        """See deepagents: the sandbox's own."""
        return self.sandbox.id

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Run a command line; Ctrl-C kills it. See deepagents.

        Raises:
            SandboxUnavailable: there is no sandbox any more, or the platform does not answer.
            ValueError: the command or the timeout is none.
        """
        return run(self._execute(command, timeout))

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:  # noqa: ASYNC109
        """As `execute`.

        Cancel safety: the command is killed with all that it has started.
        """
        return await on_background_loop(self._execute(command, timeout))

    async def _execute(self, command: str, limit_s: float | None) -> ExecuteResponse:
        if self._dead is not None:
            raise self._told(self._dead) from self._dead
        limit_s = self._timeout_s if limit_s is None else limit_s
        truncated = False
        try:
            result = await self.sandbox.inner.exec(
                command, timeout=limit_s or None, merge=True, max_output_bytes=_MOST_OUTPUT_BYTES
            )
            ended, truncated = outcome.ended(result), result.stdout_truncated
        except SandboxError as error:
            ended = self._failed(error)
        output = (ended.stdout + ended.stderr).decode("utf-8", "replace")
        return ExecuteResponse(output=output, exit_code=ended.status, truncated=truncated)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """See deepagents: each file is whole or not there, and the directories above it are made."""
        return run(self._files.upload(files))

    async def aupload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """As `upload_files`."""
        return await on_background_loop(self._files.upload(files))

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """See deepagents; a file may have 256 MiB."""
        return run(self._files.download(paths))

    async def adownload_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """As `download_files`."""
        return await on_background_loop(self._files.download(paths))

    def ls(self, path: str) -> LsResult:
        """See deepagents."""
        return run(self._files.ls(path))

    async def als(self, path: str) -> LsResult:
        """As `ls`."""
        return await on_background_loop(self._files.ls(path))

    def read(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        """See deepagents."""
        return run(self._files.read(file_path, offset, limit)) or super().read(file_path, offset, limit)

    async def aread(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        """As `read`."""
        shown = await on_background_loop(self._files.read(file_path, offset, limit))
        return shown or await super().aread(file_path, offset, limit)

    def write(self, file_path: str, content: str) -> WriteResult:
        """See deepagents: the old content stays until all of the new has come."""
        return run(self._files.write(file_path, content))

    async def awrite(self, file_path: str, content: str) -> WriteResult:
        """As `write`."""
        return await on_background_loop(self._files.write(file_path, content))

    def edit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> EditResult:
        """See deepagents; edits that come at once are made one after the other."""
        return run(self._files.edit(file_path, old_string, new_string, every=replace_all))

    async def aedit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> EditResult:
        """As `edit`."""
        return await on_background_loop(self._files.edit(file_path, old_string, new_string, every=replace_all))

    def delete(self, file_path: str) -> DeleteResult:
        """Delete a file, or a directory with all in it. See deepagents; `close` deletes the sandbox."""
        return run(self._files.delete(file_path))

    async def adelete(self, file_path: str) -> DeleteResult:
        """As `delete`."""
        return await on_background_loop(self._files.delete(file_path))

    def grep(
        self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None
    ) -> GrepResult:
        """See deepagents; of an image whose grep is of no use that is said, and not that nothing was found."""
        found = super().grep(pattern, path, glob, max_count=max_count)
        return self._believed(found, self.execute(_CAN_GREP)) if self._doubtful(found) else found

    async def agrep(
        self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None
    ) -> GrepResult:
        """As `grep`."""
        found = await super().agrep(pattern, path, glob, max_count=max_count)
        return self._believed(found, await self.aexecute(_CAN_GREP)) if self._doubtful(found) else found

    def _doubtful(self, found: GrepResult) -> bool:
        return not (self._can_grep or found.error or found.matches)

    def _believed(self, found: GrepResult, tried: ExecuteResponse) -> GrepResult:
        self._can_grep = tried.exit_code == 0
        return found if self._can_grep else GrepResult(error="The image has neither GNU grep nor ripgrep: use execute")

    def close(self) -> None:
        """Delete the sandbox, unless it was there before; its lease ends one that could not be deleted. Idempotent."""
        run(self._close())

    async def aclose(self) -> None:
        """As `close`."""
        await on_background_loop(self._close())

    async def _close(self) -> None:
        if self._own:
            with contextlib.suppress(SandboxError):
                await self.sandbox.inner.delete()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _failed(self, error: SandboxError) -> outcome.Outcome:
        """A result, where the command or its sandbox's code is why it has none of its own."""
        if (refused := outcome.refused(error)) is not None:
            return refused
        if (died := outcome.died(error)) is not None:
            self._dead, self.fault = error, outcome.fault(error)
            return died
        raise self._told(error) from error

    def _told(self, error: SandboxError) -> Exception:
        told = faults.of_call(error)
        self.fault = told.fault if isinstance(told, faults.SandboxUnavailable) else self.fault
        return told


async def _created(image: str | None, options: CreateOptions) -> rollbox.Sandbox:
    options["labels"] = {**(options.get("labels") or {}), "rollbox.host": "deepagents"}
    try:
        return await rollbox.Sandbox.create(image, **options)
    except SandboxError as error:
        raise faults.of_call(error) from error
