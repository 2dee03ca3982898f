"""A shell that keeps directory, variables and functions from one command to the next."""

from __future__ import annotations

import asyncio
import re
import secrets
import signal

from rollbox import request, shell_dialects
from rollbox._problem import SandboxError
from rollbox.errors import Conflict, InvalidArgument, OomKilled
from rollbox.exec_output import ExecEnd
from rollbox.process import Process
from rollbox.request import Directory, Stdin, Variables
from rollbox.result import ShellResult
from rollbox.shell_dialects import Dialect, Line, Mark
from rollbox.shell_reader import MarkedReader
from rollbox.shell_session import (
    AGAIN_S,
    LOOK_AFTER_S,
    RETURN_LIMIT_S,
    START_LIMIT_S,
    CleanupRunner,
    CommandRunner,
    ShellSession,
    spawned,
)

DEFAULT_OUTPUT_BYTES = 2**22
# How often that time is given while output comes: over a slow network it takes long, and another process may go on.
_LAST_OUTPUT_TIMES = 24
# The name of a variable in any shell.
_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


class Shell(ShellSession):
    """A shell in a sandbox; made by `sandbox.shell()`. Runs one command at a time.

    As an asynchronous context manager it kills the shell, with all that it left running, at the end.
    """

    def __init__(
        self,
        sandbox: CommandRunner,
        run_cleanup: CleanupRunner,
        process: Process,
        dialect: Dialect,
        *,
        user: str | None,
        max_output_bytes: int,
    ) -> None:
        """Use `Sandbox.shell` instead."""
        super().__init__(sandbox, run_cleanup, process)
        self._dialect = dialect
        self._user = user
        self._max_output_bytes = max_output_bytes
        self._stdout = MarkedReader(process.stdout, max_output_bytes)
        self._stderr = MarkedReader(process.stderr, max_output_bytes)
        self._running = asyncio.Lock()
        # Processes that earlier commands left in the background: a timeout spares them.
        self._background_pids: list[int] = []
        # What the processes of the next command have among their variables.
        self._command_id = ""
        # The mark of an interrupted command: the shell has to print a new mark before it gets the next command.
        self._interrupted: Mark | None = None
        # Marks that the shell did not print in time: they may still come.
        self._late_marks: list[bytes] = []

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
        dialects = (shell_dialects.BASH, shell_dialects.posix(secrets.token_hex(16)))
        process, dialect = await spawned(sandbox, dialects, cwd=cwd, env=env, user=user)
        shell = cls(sandbox, run_cleanup, process, dialect, user=user, max_output_bytes=cap)
        return await shell._begin(shell._set_up())

    async def run(
        self,
        command: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109
        check: bool = False,
        cwd: Directory | None = None,
        env: Variables | None = None,
        stdin: Stdin = b"",
        max_output_bytes: int | None = None,
    ) -> ShellResult:
        """Run a command line in the shell and return its result.

        Processes that it leaves in the background go on, and may print into the results of later commands. With `cwd`
        or `env` it runs in a subshell: directory, variables and functions that it sets are its own too.

        Args:
            command: any number of lines of the shell's language.
            timeout: seconds after which its processes are killed, also those that it has detached; directory, variables
                and background processes of earlier commands stay. A shell that is not ready again within 5 s is killed
                too.
            check: raise unless it exits with 0.
            cwd: its directory, over that of the shell; a relative one begins there.
            env: its variables, over those of the shell.
            stdin: what it reads, then end of file, as for `Sandbox.exec`. It is written to a file in /tmp, which the
                shell opens and removes.
            max_output_bytes: how much of its stdout and stderr to keep, each, over that of the shell.

        Returns:
            the result: `end` is exited, deadline or oom_killed, or that of the shell itself when the command ended it.
            `shell_ended` says whether the shell has ended; with oom_killed its sandbox may have ended too.

        Raises:
            InvalidArgument: the command is empty, holds NUL, or is not a string; another argument is invalid, or there
                is no such directory.
            ExecFailed, ExecDeadline, OomKilled: with `check`; they carry `.result`.
            Conflict: the shell has ended; the detail says how. Or it no longer answers, since the command took away
                what it answers with (its descriptors, a trap, a function in place of a builtin): it is killed then,
                within 15 s on an engine and 30 s under gVisor.
            SandboxLost, ...: the sandbox has ended.
        Cancel safety: the command's processes are killed; the shell remains usable.
        """
        line = _checked(command, cwd, env)
        if timeout is not None:
            request.milliseconds("timeout", timeout)
        kept = (
            self._max_output_bytes if max_output_bytes is None else request.count("max_output_bytes", max_output_bytes)
        )
        async with self._running:
            if self._interrupted is not None:
                await self._make_ready()
                self._take_output(None)
            self._require_running()
            if stdin not in (b"", ""):
                line = line._replace(input_path=await self._written(stdin))
            self._stdout.max_bytes = self._stderr.max_bytes = kept
            result = await self._noted(self._run(line, timeout))
        if line.cwd and result.stderr_bytes.endswith(line.lost.encode()):
            detail = f"the directory {line.cwd!r} cannot be entered"
            raise InvalidArgument(detail, details={"reason": "cwd_not_found"}, sandbox_id=self._sandbox.id)
        return result.check() if check else result

    async def _set_up(self) -> None:
        await self._write(self._dialect.setup)
        await self._make_ready(START_LIMIT_S, None)
        self._take_output(None)

    async def _written(self, stdin: Stdin) -> str:
        path = f"/tmp/.rollbox-stdin-{secrets.token_hex(8)}"  # noqa: S108 - random, and for its user alone
        await self._sandbox.files.write(path, stdin, mode=0o600, user=self._user)
        return path

    async def _run(self, line: Line, timeout: float | None) -> ShellResult:  # noqa: ASYNC109
        mark = self._interrupted = Mark.fresh()
        end: ExecEnd = "exited"
        began = asyncio.get_running_loop().time()
        report = b""
        try:
            async with asyncio.timeout(timeout):
                text = self._dialect.command(line, mark)
                # A limit ends it anyway.
                asked = self._answered if timeout is None else self._read_until_mark
                report = await asked(mark, text)
            self._interrupted = None
        except TimeoutError:
            end = "deadline"
            await self._interrupt()
            await self._make_ready()
        except OomKilled as error:
            end, self._lost = "oom_killed", error
        except BaseException:
            await self._run_cleanup(self._interrupt())
            raise
        run_ms = (asyncio.get_running_loop().time() - began) * 1000
        return await self._result(end, report, mark, run_ms)

    async def _answered(self, mark: Mark, line: str) -> bytes:
        """Run a line as `_read_until_mark` does; Conflict when the shell has read on, and does not answer.

        Only one that does nothing is asked: bash reads byte by byte, which under gVisor takes seconds.
        """
        reading = asyncio.ensure_future(self._read_until_mark(mark, line))
        tasks = [reading]
        try:
            await asyncio.wait(tasks, timeout=LOOK_AFTER_S)
            while not reading.done() and not await self._is_idle(self._background_pids):
                await asyncio.wait(tasks, timeout=LOOK_AFTER_S)
            if not reading.done():
                tasks.append(asyncio.ensure_future(self._read_on()))
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                await self._last_output(reading)
            if reading.done():
                return reading.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await self._give_up("it read on and did not say how the last command ended")
        raise self._over()

    async def _last_output(self, reading: asyncio.Task[bytes]) -> None:
        """Wait for the answer of a shell that has read on, as long as output comes before it."""
        streams = (self._process.stdout, self._process.stderr)
        for _ in range(_LAST_OUTPUT_TIMES):
            before = [stream.received for stream in streams]
            await asyncio.wait([reading], timeout=RETURN_LIMIT_S)
            if reading.done() or before == [stream.received for stream in streams]:
                return

    async def _read_on(self) -> bytes:
        """Wait until the shell reads beyond the command that it was given, which it does not before that has ended."""
        try:
            await self._process.stdin.write(shell_dialects.FILLER)
            await self._process.stdin.drain()
        except SandboxError:
            # It has ended, or the sandbox has: the reader of the streams says which.
            await asyncio.Event().wait()
        return b""

    async def _read_until_mark(self, mark: Mark, line: str = "") -> bytes:
        """Write a command with the request for a mark, or that alone, and read both streams up to the mark.

        Returns the status that the shell prints with the mark; empty when the shell has ended.
        """
        ask = self._dialect.mark_request(mark) if self._dialect.prompt or not line else ""
        await self._write(line or ask)
        ask = ask if line else ""
        erring = asyncio.ensure_future(self._read_stderr(mark.printed, ask))
        try:
            status = await self._read_status(mark.printed)
            await erring
        finally:
            erring.cancel()
            await asyncio.gather(erring, return_exceptions=True)
        self._command_id = mark.first
        return status

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

    async def _make_ready(self, limit_s: float = RETURN_LIMIT_S, again_s: float | None = AGAIN_S) -> None:
        """Make the shell ready again, or kill it: afterwards no output of earlier commands can follow."""
        try:
            async with asyncio.timeout(limit_s):
                while not await self._answers(again_s):
                    await self._interrupt()
        except TimeoutError:
            await self._give_up(f"it was not ready again {limit_s:g} s after a command was stopped")

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
        stderr, total = self._stderr.take(*marks, *prompt)
        clean = shell_dialects.without_own(stderr)
        return self._stdout.take(*marks), (clean, total - len(stderr) + len(clean))

    async def _write(self, text: str) -> None:
        try:
            await self._process.stdin.write(text)
        except Conflict:
            # The shell has ended: its streams end too, and its result says how.
            await self._process.wait()

    async def _interrupt(self) -> None:
        """Kill the command's processes, then make the shell abandon the rest of the command."""
        if not self._process.ended:
            await self._abandon(int(self._dialect.signal), self._command_id, self._background_pids)

    async def _result(self, end: ExecEnd, report: bytes, mark: Mark, run_ms: float) -> ShellResult:
        code, number = None, int(signal.SIGKILL) if self._lost else None
        if report:
            code, self._background_pids = shell_dialects.status(report)
            if await self._died_of_memory(code):
                end, code, number = "oom_killed", None, int(signal.SIGKILL)
        elif end == "exited":
            last = await self._process.wait()
            end, code, number = last.end, last.exit_code, last.signal
        self._interrupted = None
        (stdout, stdout_total), (stderr, stderr_total) = self._take_output(mark)
        return ShellResult(
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
            shell_ended=self.ended,
        )


def _checked(command: str, cwd: Directory | None, env: Variables | None) -> Line:
    if not isinstance(command, str) or not command.strip() or "\0" in command:
        raise InvalidArgument(f"the command {command!r} is empty, holds NUL, or is not a string")
    request.text("the command", command)
    settings = request.command_settings(env, cwd, None)
    variables = settings.get("env", {})
    for name in variables:
        if not _NAME.fullmatch(name):
            raise InvalidArgument(f"the name {name!r} in env is none that a shell takes")
    return Line(command, settings.get("cwd", ""), variables, lost=secrets.token_hex(16))
