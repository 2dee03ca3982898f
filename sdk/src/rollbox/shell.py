"""A shell that keeps directory, variables and functions from one command to the next."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Protocol, TypeAlias

from rollbox import request, shell_dialects
from rollbox._problem import SandboxError
from rollbox.errors import Conflict, InvalidArgument
from rollbox.exec_output import ExecEnd
from rollbox.process import Process
from rollbox.recording import current
from rollbox.request import Directory, Variables
from rollbox.result import ExecResult
from rollbox.shell_dialects import Dialect, Mark
from rollbox.shell_reader import MarkedReader

CleanupRunner: TypeAlias = Callable[[Coroutine[Any, Any, None]], Awaitable[None]]
"""Runs a cleanup call within a time limit, in spite of a cancellation; see `Gateway.run_cleanup`."""

DEFAULT_OUTPUT_BYTES = 2**22
# How long a shell may take to be ready again after its commands were killed; then it is killed too. A guess.
_RETURN_LIMIT_S = 5.0
# The shell is interrupted again at this interval: an interrupt does not reach a line that it had not read yet.
_AGAIN_S = 1.0
# How long the first start may take: a gateway may restart meanwhile, and a dead connection is detected after 15 s.
_START_LIMIT_S = 60.0
_KILLER_LIMIT_S = 10.0


class CommandRunner(Protocol):
    """What a shell needs of its sandbox; the methods are those of `Sandbox`."""

    @property
    def id(self) -> str:
        """The id of the sandbox."""

    async def spawn(
        self, cmd: Sequence[str], *, cwd: Directory | None, env: Variables | None, user: str | None
    ) -> Process:
        """Start a command, as `Sandbox.spawn` does.

        Args:
            cmd: program and arguments.
            cwd: its working directory; None: the sandbox's.
            env: variables beside the sandbox's.
            user: that it runs as; None: the sandbox's.
        """

    async def exec(
        self,
        cmd: Sequence[str],
        *,
        cwd: Directory | None,
        user: str | None,
        timeout: float | None,  # noqa: ASYNC109
    ) -> ExecResult:
        """Run a command to its end, as `Sandbox.exec` does.

        Args:
            cmd: program and arguments.
            cwd: its working directory; None: the sandbox's.
            user: that it runs as; None: the sandbox's.
            timeout: seconds after which it is killed; None: never.
        """


class Shell:
    """A shell in a sandbox; made by `sandbox.shell()`. Runs one command at a time.

    As an asynchronous context manager it kills the shell, with all that it left running, at the end.
    """

    def __init__(
        self,
        sandbox: CommandRunner,
        run_cleanup: CleanupRunner,
        process: Process,
        dialect: Dialect,
        max_output_bytes: int,
    ) -> None:
        """Use `Sandbox.shell` instead."""
        self._sandbox = sandbox
        self._run_cleanup = run_cleanup
        self._process = process
        self._dialect = dialect
        self._stdout = MarkedReader(process.stdout, max_output_bytes)
        self._stderr = MarkedReader(process.stderr, max_output_bytes)
        self._running = asyncio.Lock()
        # Processes that earlier commands left in the background: a timeout spares them.
        self._background_pids: list[str] = []
        # The mark of an interrupted command: the shell has to print a new mark before it gets the next command.
        self._interrupted: Mark | None = None
        # Marks that the shell did not print in time: they may still come.
        self._late_marks: list[bytes] = []
        self._unanswering = False

    @classmethod
    async def start(
        cls,
        sandbox: CommandRunner,
        run_cleanup: CleanupRunner,
        *,
        cwd: Directory | None,
        env: Variables | None,
        user: str | None,
        max_output_bytes: int,
    ) -> Shell:
        """Start a shell, bash or else sh; see `Sandbox.shell`.

        Args:
            sandbox: that the shell runs in.
            run_cleanup: runs the cleaning up that must not be lost when a call is cancelled.
            cwd: its working directory; None: the sandbox's.
            env: variables beside the sandbox's.
            user: that it runs as; None: the sandbox's.
            max_output_bytes: kept of each stream of a command.

        Raises:
            InvalidArgument: the image has neither, or an argument is invalid.
        """
        cap = request.count("max_output_bytes", max_output_bytes)
        prompt = secrets.token_hex(16)
        for dialect in (shell_dialects.BASH, shell_dialects.posix(prompt)):
            try:
                process = await sandbox.spawn(dialect.argv, cwd=cwd, env={**(env or {}), **dialect.env}, user=user)
            except InvalidArgument as error:
                if dialect is shell_dialects.BASH and error.details.get("reason") == "command_not_found":
                    continue
                if error.details.get("reason") == "command_not_found":
                    error.hint = "The image has neither bash nor sh: run programs with exec and a list of arguments."
                raise
            shell = cls(sandbox, run_cleanup, process, dialect, cap)
            try:
                await shell._write(dialect.setup)
                await shell._make_ready(_START_LIMIT_S, None)
                shell._take_output(None)
            except BaseException:
                await shell.aclose()
                raise
            # Between its commands nothing of it counts as one of a run.
            process._connection.on_end()  # noqa: SLF001 - nobody else needs it
            return shell
        raise AssertionError("unreachable: the second dialect returns or raises")

    async def run(self, command: str, *, timeout: float | None = None) -> ExecResult:  # noqa: ASYNC109
        """Run a command line in the shell and return its result.

        Its stdin is at end of file; use `< file` or a here-document for input. Processes that it leaves in the
        background go on, and may print into the results of later commands.

        Args:
            command: any number of lines of the shell's language.
            timeout: seconds after which its processes are killed; directory, variables and background processes of
                earlier commands stay. A shell that is not ready again within 5 s is killed too.

        Returns:
            the result: `end` is exited or deadline, or that of the shell itself when the command ended it.

        Raises:
            InvalidArgument: the command is empty, holds NUL, or is not a string.
            Conflict: the shell has ended; the detail says how.
            SandboxLost, ...: the sandbox has ended.
        Cancel safety: the command's processes are killed; the shell remains usable.
        """
        if not isinstance(command, str) or not command.strip() or "\0" in command:
            raise InvalidArgument(f"the command {command!r} is empty, holds NUL, or is not a string")
        if timeout is not None:
            request.milliseconds("timeout", timeout)
        async with self._running:
            if self._interrupted is not None:
                await self._make_ready()
                self._take_output(None)
            self._require_running()
            return await self._noted(command, timeout)

    @property
    def ended(self) -> bool:
        """Whether the shell has ended, by `exit` or otherwise."""
        return self._process.ended

    @property
    def exec_id(self) -> str:
        """Its id among the sandbox's processes."""
        return self._process.exec_id

    async def aclose(self) -> None:
        """Kill the shell and all that it left running. Idempotent."""
        await self._process.__aexit__(None, None, None)

    async def __aenter__(self) -> Shell:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _noted(self, command: str, timeout: float | None) -> ExecResult:  # noqa: ASYNC109
        """Run a command, which counts for a run as an exec does."""
        run = current.current()
        if run is None:
            return await self._run(command, timeout)
        with run.executing(self._sandbox.id) as answered:
            result = await self._run(command, timeout)
            answered({"end": result.end, "exit_code": result.exit_code, "run_ms": result.run_ms})
            return result

    async def _run(self, command: str, timeout: float | None) -> ExecResult:  # noqa: ASYNC109
        mark = self._interrupted = Mark.fresh()
        end: ExecEnd = "exited"
        began = asyncio.get_running_loop().time()
        report = b""
        try:
            async with asyncio.timeout(timeout):
                line = shell_dialects.run(command, has_prompt=bool(self._dialect.prompt))
                report = await self._read_until_mark(mark, line)
            self._interrupted = None
        except TimeoutError:
            end = "deadline"
            await self._interrupt()
            await self._make_ready()
        except BaseException:
            await self._run_cleanup(self._interrupt())
            raise
        run_ms = (asyncio.get_running_loop().time() - began) * 1000
        return await self._result(end, report, mark, run_ms)

    async def _read_until_mark(self, mark: Mark, line: str = "") -> bytes:
        """Write a line and the request for a mark, and read both streams up to the mark.

        Returns the status that the shell prints with the mark; empty when the shell has ended.
        """
        ask = shell_dialects.mark_request(mark)
        if not (line and self._dialect.prompt):
            # The empty line: after an unterminated quote, bash takes the braces of the next line for words.
            await self._write(f"{line}\n{ask}" if line else ask)
            ask = ""
        else:
            await self._write(line)
        try:
            async with asyncio.TaskGroup() as group:
                status = group.create_task(self._read_status(mark.printed))
                group.create_task(self._read_stderr(mark.printed, ask))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return status.result()

    async def _read_status(self, mark: bytes) -> bytes:
        return await self._stdout.between(mark) if await self._stdout.until(mark) else b""

    async def _read_stderr(self, mark: bytes, ask: str) -> None:
        """Read stderr up to the mark.

        After an error, a shell with a prompt discards input that it has not read, so it gets the request for the mark
        only when its prompt is there.
        """
        if ask:
            if not await self._stderr.until(self._dialect.prompt):
                return
            await self._write(ask)
        if await self._stderr.until(mark) and self._dialect.prompt:
            await self._stderr.until(self._dialect.prompt)

    async def _make_ready(self, limit_s: float = _RETURN_LIMIT_S, again_s: float | None = _AGAIN_S) -> None:
        """Make the shell ready again, or kill it: afterwards no output of earlier commands can follow."""
        try:
            async with asyncio.timeout(limit_s):
                while not await self._answers(again_s):
                    await self._interrupt()
        except TimeoutError:
            self._unanswering = True
            await self._process.kill()
            await self._process.wait()

    async def _answers(self, limit_s: float | None) -> bool:
        """Whether the shell has answered or ended within the limit."""
        mark = Mark.fresh()
        try:
            async with asyncio.timeout(limit_s):
                await self._read_until_mark(mark)
        except TimeoutError:
            self._late_marks.append(mark.printed)
            return False
        return True

    def _take_output(self, mark: Mark | None) -> tuple[tuple[bytes, int], tuple[bytes, int]]:
        marks = self._late_marks if mark is None else [mark.printed, *self._late_marks]
        self._late_marks = []
        prompt = [self._dialect.prompt] if self._dialect.prompt else []
        return self._stdout.take(*marks), self._stderr.take(*marks, *prompt)

    async def _write(self, text: str) -> None:
        try:
            await self._process.stdin.write(text)
        except Conflict:
            # The shell has ended: its streams end too, and its result says how.
            await self._process.wait()

    async def _interrupt(self) -> None:
        """Kill the command's processes, then make the shell abandon the rest of the command."""
        if self._process.ended:
            return
        argv = [
            "sh",
            "-c",
            shell_dialects.KILLER,
            "sh",
            str(int(self._dialect.signal)),
            str(self._process.pid),
            *self._background_pids,
        ]
        try:
            # As the superuser: the command may have changed its user.
            await self._sandbox.exec(argv, cwd="/", user="0", timeout=_KILLER_LIMIT_S)
        except SandboxError:
            await self._process.kill()

    async def _result(self, end: ExecEnd, report: bytes, mark: Mark, run_ms: float) -> ExecResult:
        code, number = None, None
        if report:
            code, self._background_pids = shell_dialects.status(report)
        elif end == "exited":
            last = await self._process.wait()
            end, code, number = last.end, last.exit_code, last.signal
        self._interrupted = None
        (stdout, stdout_total), (stderr, stderr_total) = self._take_output(mark)
        return ExecResult(
            end=end,
            exit_code=code,
            signal=number,
            stdout_bytes=stdout,
            stderr_bytes=stderr,
            stdout_truncated=stdout_total > len(stdout),
            stderr_truncated=stderr_total > len(stderr),
            stdout_total_bytes=stdout_total,
            stderr_total_bytes=stderr_total,
            run_ms=run_ms,
            exec_id=self._process.exec_id,
            sandbox_id=self._sandbox.id,
        )

    def _require_running(self) -> None:
        result = self._process.result
        if result is not None:
            how = f"it exited with code {result.exit_code}" if result.end == "exited" else f"it ended as {result.end}"
            if self._unanswering:
                how = "the shell no longer answers after a time limit or a cancelled call, and was killed"
            raise Conflict(f"shell {self.exec_id} has ended: {how}", hint="Start another with sandbox.shell().")
