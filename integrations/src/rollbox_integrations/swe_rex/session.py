"""A session of SWE-ReX: a bash on a terminal of a sandbox."""

from __future__ import annotations

import asyncio
import re
import shlex
from contextlib import suppress
from typing import NoReturn, Self

from swerex.exceptions import (
    BashIncorrectSyntaxError,
    CommandTimeoutError,
    NoExitCodeError,
    NonZeroExitCodeError,
    SessionNotInitializedError,
)
from swerex.runtime.abstract import Action, BashAction, BashInterruptAction, BashObservation, CreateBashSessionRequest

from rollbox import Sandbox, SandboxError, TerminalShell
from rollbox_integrations import outcome

# What a command may answer at most; the end of a longer output is kept.
MOST_OUTPUT_BYTES = 16 * 1024**2
# As the terminals of SWE-ReX's own sessions, which programs fit their output to.
_SIZE = (80, 24)
_SYNTAX_LIMIT_S = 30.0
# The time that SWE-ReX waits after each Ctrl-C, beside that of the action.
_BETWEEN_S = 0.2
_LEAST_PATIENCE_S = 1.0
# A terminal takes lines of 4095 bytes; quoted, a character may take four of them.
_PIECE_CHARS = 250
# What a terminal takes for a key, and not for text.
_KEYS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])")
# A command that keeps the exit code of the one before.
_SAME_CODE = "(exit $?)"


class Session:
    """A shell, and whether a program has its terminal; made by `start`."""

    def __init__(self, sandbox: Sandbox, shell: TerminalShell) -> None:
        self._sandbox = sandbox
        self._shell = shell
        # Whether an interactive command has started a program that has not ended.
        self._in_program = False

    @classmethod
    async def start(cls, sandbox: Sandbox, request: CreateBashSessionRequest) -> tuple[Self, str]:
        """Start a shell and source files in it; it is ended if that fails.

        Returns:
            the session, and what the files wrote.

        Raises:
            CommandTimeoutError: they took longer than `startup_timeout`.
            SessionNotInitializedError: the image has no bash.
        """
        shell = await sandbox.shell(terminal=_SIZE, max_output_bytes=MOST_OUTPUT_BYTES)
        try:
            return cls(sandbox, shell), await _sourced(shell, request)
        except BaseException:
            await shell.aclose()
            raise

    @property
    def ended(self) -> bool:
        """Whether the shell has ended."""
        return self._shell.ended

    async def close(self) -> None:
        """End the shell, with all that it left running. Idempotent."""
        await self._shell.aclose()

    async def run(self, action: Action) -> BashObservation:
        """Do what an action of SWE-ReX's says; see `RollboxRuntime.run_in_session`."""
        if isinstance(action, BashInterruptAction):
            return await self._interrupt(action)
        if action.is_interactive_command or action.is_interactive_quit:
            return await self._interactive(action)
        observed = await (self._until_expected(action) if action.expect else self._command(action))
        if action.check == "raise" and observed.exit_code != 0:
            told = f"{action.error_msg}: " if action.error_msg else ""
            why = f"command {action.command!r} failed with exit code {observed.exit_code}"
            raise NonZeroExitCodeError(f"{told}{why}. Here is the output:\n{observed.output!r}")
        return observed

    async def _command(self, action: BashAction) -> BashObservation:
        if not action.command.strip():
            return BashObservation(exit_code=None if action.check == "ignore" else 0)
        await self._check_syntax(action.command)
        result = await self._shell.run(action.command, timeout=action.timeout)
        self._in_program = False
        if result.timed_out:
            _late(action)
        ended = outcome.ended(result)
        output = _plain((ended.stdout + ended.stderr).decode("utf-8", "backslashreplace"))
        return BashObservation(output=output, exit_code=None if action.check == "ignore" else ended.status)

    async def _until_expected(self, action: BashAction) -> BashObservation:
        """Run a command until it writes what is expected, or ends."""
        await self._check_syntax(action.command)
        pieces = [action.command[at : at + _PIECE_CHARS] for at in range(0, len(action.command), _PIECE_CHARS)]
        output, matched = await self._typed("eval " + "\\\n".join(map(shlex.quote, pieces)), action)
        code = None
        if not matched:
            code = (await self._shell.run(_SAME_CODE)).exit_code
        elif action.check == "raise":
            raise NoExitCodeError(f"command {action.command!r} still runs: it has written {matched!r}")
        return BashObservation(
            output=output, exit_code=None if action.check == "ignore" else code, expect_string=matched
        )

    async def _interactive(self, action: BashAction) -> BashObservation:
        """Type a line for a program, until it writes what is expected or the prompt of the shell is back."""
        output, matched = await self._typed(action.command, action)
        if not action.is_interactive_quit:
            # A program may have set its terminal to echo.
            output = output.lstrip().removeprefix(action.command).strip()
        return BashObservation(output=output, exit_code=0, expect_string=matched)

    async def _typed(self, line: str, action: BashAction) -> tuple[str, str]:
        """Type a line, and return what came before the first match and which pattern that was; "": the prompt."""
        wanted = _Expected(action.expect)
        if not self._in_program:
            # No prompt from before is taken for the end of this one.
            await self._shell.run(_SAME_CODE)
        await self._shell.send(f"{line}\n")
        self._in_program = True
        try:
            seen = await self._shell.expect(wanted.any, timeout=action.timeout, prompt=True)
        except TimeoutError:
            _late(action)
        except asyncio.CancelledError:
            with suppress(SandboxError):
                await self._shell.interrupt(timeout=_LEAST_PATIENCE_S)
            raise
        before, matched = wanted.split(seen)
        self._in_program = bool(matched)
        return _plain(before), matched

    async def _interrupt(self, action: BashInterruptAction) -> BashObservation:
        """Type Ctrl-C until what is expected comes, else until the prompt is back; what goes on is killed."""
        wanted = _Expected(action.expect)
        for _ in range(action.n_retry if action.expect else 0):
            await self._shell.send("\x03")
            try:
                seen = await self._shell.expect(wanted.any, timeout=action.timeout, prompt=True)
            except TimeoutError:
                continue
            before, matched = wanted.split(seen)
            self._in_program = bool(matched)
            return BashObservation(output=_plain(before).strip(), exit_code=0, expect_string=matched)
        patience_s = max(_LEAST_PATIENCE_S, action.n_retry * (action.timeout + _BETWEEN_S))
        shown = await self._shell.interrupt(timeout=patience_s)
        self._in_program = False
        return BashObservation(output=_plain(shown).strip(), exit_code=0)

    async def _check_syntax(self, command: str) -> None:
        """Let a bash read the command without running it.

        Raises:
            BashIncorrectSyntaxError: it is not bash, or nothing that can be typed on a terminal.
        """
        if key := _KEYS.search(command):
            raise _wrong(command, "a key", "", f"{key[0]!r} cannot be typed on a terminal; write it as $'...' has it")
        result = await self._sandbox.exec(["bash", "-n"], stdin=f"{command}\n", timeout=_SYNTAX_LIMIT_S)
        if result.exit_code:
            raise _wrong(command, f"exit code {result.exit_code}", result.stdout, result.stderr)


class _Expected:
    """Patterns of which the first match counts, as pexpect has it."""

    def __init__(self, patterns: list[str]) -> None:
        """Compile them.

        Raises:
            ValueError: one is no regular expression.
        """
        try:
            self._each = [re.compile(pattern, re.DOTALL) for pattern in patterns]
            joined = "|".join(f"(?:{pattern})" for pattern in patterns)
            self.any = re.compile(joined, re.DOTALL) if patterns else None
        except re.error as error:
            raise ValueError(f"expect {patterns!r} has no regular expression: {error}") from error

    def split(self, seen: str) -> tuple[str, str]:
        """Return what is before the first match, and its pattern; all of it and "" where there is none."""
        found = [match for one in self._each if (match := one.search(seen))]
        if not found:
            return seen, ""
        first = min(found, key=re.Match.start)
        return seen[: first.start()], first.re.pattern


async def _sourced(shell: TerminalShell, request: CreateBashSessionRequest) -> str:
    if not (await shell.run('test "$BASH_VERSION"')).ok:
        raise SessionNotInitializedError("the image has no bash, which sessions are made of")
    if not request.startup_source:
        return ""
    line = " ; ".join(f"source {path}" for path in request.startup_source)
    result = await shell.run(line, timeout=request.startup_timeout)
    if result.timed_out:
        raise CommandTimeoutError(f"timeout after {request.startup_timeout} seconds while running {line!r}")
    return _plain(result.stdout)


def _late(action: BashAction) -> NoReturn:
    raise CommandTimeoutError(f"timeout after {action.timeout} seconds while running command {action.command!r}")


def _plain(shown: str) -> str:
    return _ESCAPES.sub("", shown)


def _wrong(command: str, why: str, stdout: str, stderr: str) -> BashIncorrectSyntaxError:
    text = f"Error ({why}) while checking bash command \n{command!r}\n---- Stderr ----\n{stderr}"
    return BashIncorrectSyntaxError(text, extra_info={"bash_stdout": stdout, "bash_stderr": stderr})
