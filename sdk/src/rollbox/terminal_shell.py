"""A shell on a terminal, for programs that people use: pagers, editors, consoles of other languages."""

from __future__ import annotations

import asyncio
import re
import secrets
import signal

from rollbox import request, shell_dialects
from rollbox.errors import InvalidArgument
from rollbox.exec_output import ExecEnd
from rollbox.process import Process
from rollbox.request import Directory, Variables
from rollbox.result import ShellResult
from rollbox.shell_session import CleanupRunner, CommandRunner, ShellSession
from rollbox.terminal_screen import Screen

DEFAULT_SIZE = (120, 40)
_START_LIMIT_S = 60.0
# How long a shell may take to be ready again after its commands were killed; then it is killed too. A guess.
_RETURN_LIMIT_S = 5.0
_AGAIN_S = 1.0
_INTERRUPT = "\x03"
# A terminal takes lines of 4095 bytes; quoted, a character of a command may take four of its bytes.
_PIECE_CHARS = 250
# What a terminal takes for a key, and not for text.
_KEYS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_BASH = ["bash", "--norc", "--noprofile", "--noediting", "-i"]
_SETUP = (
    "stty -echo 2>/dev/null; %(bash)sPS2=; "
    """__rollbox_prompt() { PS1="%(first)s""%(second)s$1:"'$?;'; command export ROLLBOX_COMMAND_ID="%(id)s$1"; """
    """return "$2"; }; __rollbox_prompt 0 0\n"""
)
_ONLY_BASH = "set +o histexpand; unset PROMPT_COMMAND; "


class TerminalShell(ShellSession):
    """A shell on a terminal; made by `sandbox.shell(terminal=True)`. Runs one command at a time.

    What it writes is one text, as on a screen: stdout, stderr, and the control sequences of programs that draw. As an
    asynchronous context manager it kills the shell, with all that it left running, at the end.
    """

    def __init__(
        self, sandbox: CommandRunner, run_cleanup: CleanupRunner, process: Process, *, max_output_bytes: int
    ) -> None:
        """Use `Sandbox.shell` instead."""
        super().__init__(sandbox, run_cleanup, process)
        self._first, self._second, self._id = (secrets.token_hex(8) for _ in range(3))
        self._screen = Screen(process.stdout, self._first + self._second, max_output_bytes)
        self._running = asyncio.Lock()
        self._number = 0
        # How many prompts had come when something was typed that is no command of `run`; negative: nothing was since.
        self._typed_at = -1

    @classmethod
    async def start(
        cls,
        sandbox: CommandRunner,
        run_cleanup: CleanupRunner,
        *,
        cwd: Directory | None,
        env: Variables | None,
        user: str | None,
        size: tuple[int, int],
        max_output_bytes: int,
    ) -> TerminalShell:
        """Start a shell, bash or else sh; see `Sandbox.shell`.

        Args:
            sandbox: that the shell runs in.
            run_cleanup: runs the cleaning up that must not be lost when a call is cancelled.
            cwd: its working directory; None: the sandbox's.
            env: variables beside the sandbox's.
            user: that it runs as; None: the sandbox's.
            size: columns and rows.
            max_output_bytes: kept of what a command writes.

        Raises:
            InvalidArgument: the image has neither, or an argument is invalid.
        """
        kept = request.count("max_output_bytes", max_output_bytes)
        quiet = {**(env or {}), "PS1": "", "PS2": "", "ENV": ""}
        for argv in (_BASH, ["sh", "-i"]):
            try:
                process = await sandbox.spawn(argv, cwd=cwd, env=quiet, user=user, terminal=size)
            except InvalidArgument as error:
                if error.details.get("reason") != "command_not_found":
                    raise
                if argv is _BASH:
                    continue
                error.hint = "The image has neither bash nor sh: run programs with spawn and a list of arguments."
                raise
            shell = cls(sandbox, run_cleanup, process, max_output_bytes=kept)
            try:
                await shell._set_up(_ONLY_BASH if argv is _BASH else "")
            except BaseException:
                await shell.aclose()
                raise
            # Between its commands nothing of it counts as one of a run.
            process._connection.on_end()  # noqa: SLF001 - nobody else needs it
            return shell
        raise AssertionError("unreachable: the second shell returns or raises")

    async def run(
        self,
        command: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109
        check: bool = False,
    ) -> ShellResult:
        """Run a command line in the shell and return its result; what it wrote is all `stdout`.

        It reads the terminal: a program that waits for keys gets them by `send` and is ended by `interrupt`, so start
        it with `send` rather than with this. After a `send` the shell has to be at its prompt again, which this waits
        for.

        Args:
            command: any number of lines of the shell's language, without keys like Tab or Escape.
            timeout: seconds after which its processes are killed, also those that it has detached; the shell stays. One
                that is not ready again within 5 s is killed too.
            check: raise unless it exits with 0.

        Returns:
            the result: `end` is exited, deadline or oom_killed, or that of the shell itself when the command ended it.
            `shell_ended` says whether the shell has ended.

        Raises:
            InvalidArgument: the command is empty, holds a control character, or is not a string.
            ExecFailed, ExecDeadline, OomKilled: with `check`; they carry `.result`.
            Conflict: the shell has ended; the detail says how.
            SandboxLost, ...: the sandbox has ended.
        Cancel safety: the command's processes are killed; the shell remains usable.
        """
        if not isinstance(command, str) or not command.strip() or _KEYS.search(command):
            raise InvalidArgument(f"the command {command!r} is empty, holds a control character, or is not a string")
        if timeout is not None:
            request.milliseconds("timeout", timeout)
        async with self._running:
            self._require_running()
            result = await self._noted(self._run(command, timeout))
        return result.check() if check else result

    async def send(self, text: str) -> None:
        r"""Type a text: it is sent as it is. `"\n"` is the Enter key for most programs, `"\r"` for those that draw.

        Raises:
            Conflict: the shell has ended.
        """
        self._require_running()
        self._typed_at = self._screen.prompts
        await self._process.stdin.write(request.text("the text", text))

    async def expect(self, pattern: str | re.Pattern[str], *, timeout: float = 30) -> str:  # noqa: ASYNC109
        r"""Wait until the terminal shows what matches, and return all up to there; the rest is for the next call.

        Args:
            pattern: a regular expression (`re.search`), over text with `\n` at the end of lines.
            timeout: seconds.

        Raises:
            TimeoutError: it has not come in time; nothing is taken.
            Conflict: the shell has ended before.
            InvalidArgument: it is no regular expression.
        """
        try:
            wanted = re.compile(pattern)
        except (re.error, TypeError) as error:
            raise InvalidArgument(f"the pattern {pattern!r} is no regular expression: {error}") from error
        async with asyncio.timeout(request.milliseconds("timeout", timeout) / 1000):
            seen = await self._screen.pattern(wanted)
        if seen is None:
            await self._process.wait()
            raise self._over()
        return seen

    async def interrupt(self, *, timeout: float = 5) -> str:  # noqa: ASYNC109
        """Type Ctrl-C until the shell is at its prompt, and return what the terminal has shown since the last call.

        Args:
            timeout: seconds after which a program that takes Ctrl-C for something else is killed.

        Raises:
            Conflict: the shell has ended.
        """
        limit_s = request.milliseconds("timeout", timeout) / 1000
        async with self._running:
            self._require_running()
            shown, _ = self._screen.take()
            try:
                async with asyncio.timeout(limit_s):
                    await self._process.stdin.write(_INTERRUPT)
                    while (seen := await self._until_prompt(_AGAIN_S)) is None:
                        await self._process.stdin.write(_INTERRUPT)
                    shown += seen
            except TimeoutError:
                shown += await self._recover()
            self._typed_at = -1
            return shown

    async def _set_up(self, only_bash: str) -> None:
        names = {"bash": only_bash, "first": self._first, "second": self._second, "id": self._id}
        async with asyncio.timeout(_START_LIMIT_S):
            await self._process.stdin.write(_SETUP % names)
            _, ready = await self._screen.prompt()
        if not ready:
            await self._process.wait()
            raise self._over()

    async def _run(self, command: str, timeout: float | None) -> ShellResult:  # noqa: ASYNC109
        end: ExecEnd = "exited"
        began = asyncio.get_running_loop().time()
        shown, answered = "", False
        try:
            async with asyncio.timeout(timeout):
                if self._typed_at == self._screen.prompts:
                    await self._screen.prompt()
                self._typed_at = -1
                self._screen.take()
                self._number += 1
                await self._process.stdin.write(_typed(command, self._number))
                shown, answered = await self._screen.prompt(self._number)
        except TimeoutError:
            end = "deadline"
            shown = self._screen.take()[0] + await self._recover()
        except BaseException:
            await self._run_cleanup(self._recovered())
            raise
        run_ms = (asyncio.get_running_loop().time() - began) * 1000
        return await self._result(end, shown, run_ms, answered=answered)

    async def _recovered(self) -> None:
        await self._recover()

    async def _recover(self) -> str:
        """Kill what runs in the foreground and what it has started, and wait for the prompt; returns what was shown."""
        shown, left_s = "", _RETURN_LIMIT_S
        while not self._process.ended:
            await self._abandon(int(signal.SIGINT), f"{self._id}{self._screen.last.number}", ())
            if self._process.ended or (seen := await self._until_prompt(_AGAIN_S)) is not None:
                return shown + (seen if not self._process.ended else "")
            left_s -= _AGAIN_S
            if left_s <= 0:
                await self._give_up(f"it was not at its prompt {_RETURN_LIMIT_S:g} s after a command was stopped")
        return shown

    async def _until_prompt(self, limit_s: float) -> str | None:
        """Take what comes up to a prompt; None when none has come within the limit."""
        try:
            async with asyncio.timeout(limit_s):
                seen, _ = await self._screen.prompt()
        except TimeoutError:
            return None
        return seen

    async def _result(self, end: ExecEnd, shown: str, run_ms: float, *, answered: bool) -> ShellResult:
        code, number = None, None
        if answered:
            code = self._screen.last.exit_code
            if await self._died_of_memory(code):
                end, code, number = "oom_killed", None, int(signal.SIGKILL)
        elif end == "exited":
            last = await self._process.wait()
            end, code, number = last.end, last.exit_code, last.signal
        data, (_, dropped) = shown.encode(), self._screen.take()
        return ShellResult(
            end=end,
            exit_code=code,
            signal=number,
            stdout_bytes=data,
            stdout_truncated=dropped > 0,
            stdout_total_bytes=len(data) + dropped,
            run_ms=run_ms,
            exec_id=self.exec_id,
            sandbox_id=self._sandbox.id,
            shell_ended=self._process.ended,
        )


def _typed(command: str, number: int) -> str:
    """Write a command as it is typed: in lines that a terminal takes, and with a prompt of its own behind it."""
    pieces = [command[at : at + _PIECE_CHARS] for at in range(0, len(command), _PIECE_CHARS)]
    return "eval " + "\\\n".join(map(shell_dialects.quoted, pieces)) + f'; __rollbox_prompt {number} "$?"\n'
