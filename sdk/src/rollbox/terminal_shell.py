"""A shell on a terminal, for programs that people use: pagers, editors, consoles of other languages."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

from rollbox import request, shell_dialects
from rollbox.errors import Conflict, InvalidArgument, OomKilled
from rollbox.exec_output import ExecEnd
from rollbox.process import Process
from rollbox.request import Directory, Variables
from rollbox.result import ShellResult
from rollbox.shell_dialects import Mark
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
from rollbox.terminal_screen import Screen

DEFAULT_SIZE = (120, 40)
_INTERRUPT = "\x03"
# What a terminal takes for a key, and not for text.
_KEYS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
# After Ctrl-C or a kill the shell has to be at rest, and is looked at again after this time.
_LOOK_AGAIN_S = 0.05
_ASLEEP = "S"
# How often a shell that shows a prompt from before is asked again. A guess.
_ASK_TIMES = 10
# How proc(5) says that no process group has a terminal; gVisor never tells.
_NOBODY = (0, -1)


class TerminalShell(ShellSession):
    """A shell on a terminal; made by `sandbox.shell(terminal=True)`. Runs one command at a time.

    What it writes is one text, as on a screen: stdout, stderr, and the control sequences of programs that draw. As an
    asynchronous context manager it kills the shell, with all that it left running, at the end.
    """

    def __init__(
        self,
        sandbox: CommandRunner,
        run_cleanup: CleanupRunner,
        process: Process,
        mark: Mark,
        *,
        max_output_bytes: int,
    ) -> None:
        """Use `Sandbox.shell` instead."""
        super().__init__(sandbox, run_cleanup, process)
        self._mark = mark
        self._screen = Screen(process.stdout, mark.first + mark.second, max_output_bytes)
        self._running = asyncio.Lock()
        # Set while no `run` is under way.
        self._idle = asyncio.Event()
        self._idle.set()
        self._number = 0
        # What was typed for the call under way.
        self._typed: list[str] = []
        # How many prompts had come when something was typed that is no command of `run`; negative: nothing was since.
        self._typed_at = -1
        # What the process runs, and what a command has replaced that by.
        self._program = ""
        self._replaced_by = ""

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
        mark = Mark.fresh()
        dialects = shell_dialects.on_terminal(mark)
        process, dialect = await spawned(sandbox, dialects, cwd=cwd, env=env, user=user, terminal=size)
        shell = cls(sandbox, run_cleanup, process, mark, max_output_bytes=kept)
        return await shell._begin(shell._set_up(dialect.setup))

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
            `shell_ended` says whether the shell has ended; with oom_killed its sandbox may have ended too.

        Raises:
            InvalidArgument: the command is empty, holds a control character, or is not a string.
            ExecFailed, ExecDeadline, OomKilled: with `check`; they carry `.result`.
            Conflict: the shell has ended; the detail says how. Or it no longer answers, since the command took away its
                prompt: it is killed then. Or a command has replaced it by another program (`exec cat`), which has been
                idle for 10 s: `send` and `expect` still reach that. With a timeout it is waited for.
            SandboxLost, ...: the sandbox has ended.
        Cancel safety: the command's processes are killed; the shell remains usable.
        """
        if not isinstance(command, str) or not command.strip() or _KEYS.search(command):
            raise InvalidArgument(f"the command {command!r} is empty, holds a control character, or is not a string")
        request.text("the command", command)
        if timeout is not None:
            request.milliseconds("timeout", timeout)
        async with self._running:
            self._require_running()
            self._require_own_program()
            self._idle.clear()
            try:
                result = await self._noted(self._run(command, timeout))
            finally:
                self._idle.set()
        return result.check() if check else result

    async def send(self, text: str) -> None:
        r"""Type a text: it is sent as it is. `"\n"` is the Enter key for most programs, `"\r"` for those that draw.

        Raises:
            Conflict: the shell has ended.
        """
        self._require_running()
        self._typed_at = self._screen.prompts
        await self._process.stdin.write(request.text("the text", text))

    async def expect(
        self,
        pattern: str | re.Pattern[str] | None,
        *,
        timeout: float | None = 30,  # noqa: ASYNC109
        prompt: bool = False,
    ) -> str:
        r"""Wait until the terminal shows what matches, and return all up to there; the rest is for the next call.

        Args:
            pattern: a regular expression (`re.search`), over text with `\n` at the end of lines. None: only the prompt
                is waited for.
            timeout: seconds; None: without limit.
            prompt: the shell's prompt ends the wait too: what was typed before has ended, and the text has no match.

        Raises:
            TimeoutError: it has not come in time; nothing is taken.
            Conflict: the shell has ended before.
            InvalidArgument: it is no regular expression, or there is nothing to wait for.
        """
        if pattern is None and not prompt:
            raise InvalidArgument("there is neither a pattern nor a prompt to wait for")
        limit_s = None if timeout is None else request.milliseconds("timeout", timeout) / 1000
        async with asyncio.timeout(limit_s):
            seen = await self._screen.pattern(None if pattern is None else _compiled(pattern), prompt=prompt)
        if seen is None:
            await self._process.wait()
            raise self._over()
        return seen

    async def interrupt(self, *, timeout: float = 5) -> str:  # noqa: ASYNC109
        """Type Ctrl-C until the shell is at its prompt, and return what the terminal has shown since the last call.

        While another task waits in `run`, that returns, and has what was shown.

        Args:
            timeout: seconds after which a program that takes Ctrl-C for something else is killed.

        Raises:
            Conflict: the shell has ended. Or it no longer answers: it is killed then.
        Cost: a look or two at the shell's process before each Ctrl-C, 0.1 s at least. One that works itself, in a loop
            without programs, gets it after a second.
        """
        limit_s = request.milliseconds("timeout", timeout) / 1000
        if not self._idle.is_set():
            await self._end_run(limit_s)
            return ""
        async with self._running:
            self._require_running()
            shown = [self._screen.take()[0]]
            try:
                async with asyncio.timeout(limit_s):
                    while not (await self._settled(partial(self._prompted, shown)) and await self._answers(shown)):
                        await self._type(_INTERRUPT)
                        if await self._rested(shown):
                            break
            except TimeoutError:
                await self._recover(shown)
            self._require_running()
            return self._without_echo(shown)

    async def _set_up(self, setup: str) -> None:
        async with asyncio.timeout(START_LIMIT_S):
            await self._process.stdin.write(setup)
            _, ready = await self._screen.prompt()
        if not ready:
            await self._process.wait()
            raise self._over()
        self._program = await self._command_line()

    async def _run(self, command: str, timeout: float | None) -> ShellResult:  # noqa: ASYNC109
        end: ExecEnd = "exited"
        began = asyncio.get_running_loop().time()
        shown, answered = list[str](), False
        try:
            async with asyncio.timeout(timeout):
                if self._typed_at == self._screen.prompts:
                    await self._screen.prompt()
                if self._typed_at >= 0:
                    await self._ask([])
                self._screen.take()
                self._number += 1
                answering = self._answered(shell_dialects.typed(command, self._number), shown)
                answered = await (self._unless_replaced(answering) if timeout is None else answering)
        except TimeoutError:
            end = "deadline"
            shown.append(self._screen.take()[0])
            await self._recover(shown)
        except OomKilled as error:
            end, self._lost = "oom_killed", error
            shown.append(self._screen.take()[0])
        except BaseException:
            await self._run_cleanup(self._recover([]))
            raise
        self._require_own_program()
        run_ms = (asyncio.get_running_loop().time() - began) * 1000
        return await self._result(end, self._without_echo(shown), run_ms, answered=answered)

    async def _unless_replaced(self, answering: Coroutine[Any, Any, bool]) -> bool:
        """Return what a wait returns; False where another program has taken the shell's place, and does nothing."""
        tasks = [asyncio.ensure_future(answering), asyncio.ensure_future(self._replaced())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return tasks[0].done() and tasks[0].result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _replaced(self) -> bool:
        """Wait until the process runs another program, which neither works nor writes between two looks."""
        before: tuple[str, int] | None = None
        while True:
            await asyncio.sleep(LOOK_AFTER_S)
            program, (_, _, now) = await self._command_line(), await self._state()
            seen = (now, self._process.stdout.received) if program and now and program != self._program else None
            if seen is not None and seen == before:
                self._replaced_by = program
                return True
            before = seen

    def _require_own_program(self) -> None:
        if self._replaced_by and not self._process.ended:
            detail = f"a command has replaced it by {self._replaced_by[:100]!r}, which is idle"
            raise Conflict(
                f"shell {self.exec_id} no longer answers: {detail}", hint="Start another with sandbox.shell()."
            )

    async def _end_run(self, limit_s: float) -> None:
        """Type Ctrl-C until the `run` under way returns; what does not take that is killed after the limit."""
        try:
            async with asyncio.timeout(limit_s):
                while not await self._settled(self._ran):
                    await self._type(_INTERRUPT)
                    if await self._ran(AGAIN_S):
                        break
        except TimeoutError:
            await self._abandon(int(signal.SIGINT), f"{self._mark.first}{self._screen.last.number}", ())
            if not await self._ran(RETURN_LIMIT_S):
                await self._give_up(f"it was not at its prompt {RETURN_LIMIT_S:g} s after a command was stopped")
        self._require_running()

    async def _ran(self, limit_s: float) -> bool:
        """Whether the `run` under way returns soon."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                return await self._idle.wait()
        return False

    async def _settled(self, came: Callable[[float], Awaitable[bool]]) -> bool:
        """Wait until the shell is at rest or a program has its terminal, for a second at most.

        A Ctrl-C that meets the shell while it reads a line or starts a program would leave the rest of the line, or
        that program, to run beside the prompt.

        Args:
            came: waits so many seconds for what makes a Ctrl-C needless.

        Returns:
            whether that has come meanwhile.
        """
        before, ends_s = "", asyncio.get_running_loop().time() + AGAIN_S
        while asyncio.get_running_loop().time() < ends_s:
            state, group, now = await self._state()
            if group not in (*_NOBODY, self._process.pid):
                return False
            if await came(_LOOK_AGAIN_S):
                return True
            if not state or (state == _ASLEEP and now == before):
                return False
            before = now
        return False

    async def _recover(self, shown: list[str]) -> None:
        """Kill what runs in the foreground and what it has started, and wait until the shell is at rest."""
        try:
            async with asyncio.timeout(RETURN_LIMIT_S):
                while not self._process.ended:
                    command_id = f"{self._mark.first}{self._screen.last.number}"
                    await self._abandon(int(signal.SIGINT), command_id, ())
                    if self._process.ended or await self._rested(shown):
                        return
        except Conflict:
            # It was given up.
            return
        except TimeoutError:
            await self._give_up(f"it was not at its prompt {RETURN_LIMIT_S:g} s after a command was stopped")

    async def _rested(self, shown: list[str]) -> bool:
        """Whether the shell is at its prompt and has read all that was typed: it shows the prompt that it is asked for.

        The first prompt alone may be one from before, or have the rest of a line behind it.
        """
        return await self._prompted(shown, AGAIN_S) and await self._answers(shown)

    async def _answers(self, shown: list[str]) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(AGAIN_S):
                await self._ask(shown)
                return True
        return False

    async def _ask(self, shown: list[str]) -> None:
        self._number += 1
        await self._answered(shell_dialects.prompt_request(self._number), shown)
        self._typed_at = -1

    async def _answered(self, line: str, shown: list[str]) -> bool:
        """Type a line that ends by asking for the prompt of the newest number, and wait for that.

        A shell that has discarded the line, or its rest after an error of syntax, shows a prompt from before, and is
        asked again. The newest prompt is the answer to what was typed last, so nothing that was typed waits behind it.

        Returns:
            whether it has come; not so when the shell has ended.

        Raises:
            Conflict: the shell shows prompts, but not this one.
        """
        first, left = self._number, _ASK_TIMES
        await self._type(line)
        while True:
            text, came = await self._screen.prompt()
            shown.append(text)
            number = self._screen.last.number
            if not came or number == self._number:
                return came
            if number < first:
                if left == 0:
                    await self._give_up("it shows no prompt of its own any more")
                    raise self._over()
                left -= 1
                self._number += 1
                line = shell_dialects.prompt_request(self._number)
                await self._type(line)

    async def _prompted(self, shown: list[str], limit_s: float) -> bool:
        """Whether a prompt comes soon, or the end of the shell."""
        try:
            async with asyncio.timeout(limit_s):
                text, came = await self._screen.prompt()
        except TimeoutError:
            return False
        shown.append(text)
        if not came:
            await self._process.wait()
        return True

    def _without_echo(self, shown: list[str]) -> str:
        """Leave out what was typed here: a program may have set the terminal to echo."""
        text, typed = "".join(shown), self._typed
        self._typed = []
        for line in typed:
            text = text.replace(line, "")
        return shell_dialects.without_own(text.encode()).decode()

    async def _type(self, text: str) -> None:
        self._typed.append(text)
        # The end of the shell is told by its screen.
        with suppress(Conflict):
            await self._process.stdin.write(text)

    async def _result(self, end: ExecEnd, shown: str, run_ms: float, *, answered: bool) -> ShellResult:
        code, number = None, int(signal.SIGKILL) if self._lost else None
        if answered:
            code = self._screen.last.exit_code
            if await self._died_of_memory(code):
                end, code, number = "oom_killed", None, int(signal.SIGKILL)
        elif end == "exited":
            last = await self._process.wait()
            if self._killed:
                raise self._over()
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
            shell_ended=self.ended,
        )


def _compiled(pattern: str | re.Pattern[str]) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except (re.error, TypeError) as error:
        raise InvalidArgument(f"the pattern {pattern!r} is no regular expression: {error}") from error
