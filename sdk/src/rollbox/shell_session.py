"""What a shell on pipes and a shell on a terminal share: the process behind them, and its end."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Protocol, Self, TypeAlias

from rollbox._problem import SandboxError
from rollbox.errors import Conflict, InvalidArgument, OomKilled
from rollbox.files import Files
from rollbox.process import Process
from rollbox.recording import current
from rollbox.request import ORPHAN_GRACE_S, Directory, Variables
from rollbox.result import ShellResult
from rollbox.shell_dialects import Dialect

CleanupRunner: TypeAlias = Callable[[Coroutine[Any, Any, None]], Awaitable[None]]
"""Runs a cleanup call within a time limit, in spite of a cancellation; see `Gateway.run_cleanup`."""

# How long the first start may take: a gateway may restart meanwhile, and a dead connection is detected after 15 s.
START_LIMIT_S = 60.0
# How long a shell may take to be ready again after its commands were killed; then it is killed too. A guess.
RETURN_LIMIT_S = 5.0
# The shell is interrupted again at this interval: an interrupt does not reach a line that it had not read yet.
AGAIN_S = 1.0
# A command that runs for so long makes the client look whether the shell still waits for it.
LOOK_AFTER_S = 10.0
_STOPPED = "T"
_ASLEEP = "S"
# The signals that a process takes up, as proc(5) has them.
_CAUGHT = re.compile(r"^SigCgt:\s*([0-9a-f]+)$", re.MULTILINE)
_KILLED_BY_MEMORY = 128 + signal.SIGKILL


class CommandRunner(Protocol):
    """What a shell needs of its sandbox; the methods are those of `Sandbox`."""

    @property
    def id(self) -> str:
        """The id of the sandbox."""

    @property
    def files(self) -> Files:
        """Its files."""

    async def spawn(
        self,
        cmd: Sequence[str],
        *,
        cwd: Directory | None,
        env: Variables | None,
        user: str | None,
        stdin: bool | bytes | str = True,
        terminal: tuple[int, int] | None = None,
        orphan_grace: float | None = None,
    ) -> Process:
        """Start a command, as `Sandbox.spawn` does.

        Args:
            cmd: program and arguments.
            cwd: its working directory; None: the sandbox's.
            env: variables beside the sandbox's.
            user: that it runs as; None: the sandbox's.
            stdin: what its input begins with; it stays open.
            terminal: columns and rows of its terminal; None: it has none.
            orphan_grace: seconds after which it is killed without a client; None: never.
        """


async def spawned(
    sandbox: CommandRunner,
    dialects: Sequence[Dialect],
    *,
    cwd: Directory | None,
    env: Variables | None,
    user: str | None,
    terminal: tuple[int, int] | None = None,
) -> tuple[Process, Dialect]:
    """Start the first of some shells that the image has.

    Args:
        sandbox: that it runs in.
        dialects: the shells.
        cwd: its working directory; None: the sandbox's.
        env: variables beside the sandbox's.
        user: that it runs as; None: the sandbox's.
        terminal: columns and rows of its terminal; None: it has none.

    Raises:
        InvalidArgument: the image has none of them, or an argument is invalid.
    """
    for dialect in dialects:
        variables = {**(env or {}), **dialect.env}
        try:
            return (
                await sandbox.spawn(
                    dialect.argv, cwd=cwd, env=variables, user=user, terminal=terminal, orphan_grace=ORPHAN_GRACE_S
                ),
                dialect,
            )
        except InvalidArgument as error:
            if error.details.get("reason") != "command_not_found":
                raise
            if dialect is dialects[-1]:
                error.hint = (
                    "The image has neither bash nor sh: run programs with exec or spawn and a list of arguments."
                )
                raise
    raise AssertionError("unreachable: the last dialect returns or raises")


class ShellSession:
    """A shell that runs in a sandbox.

    As an asynchronous context manager it kills the shell, with all that it left running, at the end.
    """

    def __init__(self, sandbox: CommandRunner, run_cleanup: CleanupRunner, process: Process) -> None:
        """Use `Sandbox.shell` instead."""
        self._sandbox = sandbox
        self._run_cleanup = run_cleanup
        self._process = process
        # Why this program killed it.
        self._killed = ""
        # What ended its sandbox with it.
        self._lost: OomKilled | None = None
        self._oom_kills = 0

    @property
    def ended(self) -> bool:
        """Whether the shell has ended, by `exit` or otherwise."""
        return self._process.ended or self._lost is not None

    @property
    def exec_id(self) -> str:
        """Its id among the sandbox's processes."""
        return self._process.exec_id

    async def _begin(self, setting_up: Awaitable[None]) -> Self:
        """Set it up; it is killed if that fails."""
        try:
            await setting_up
        except BaseException:
            await self.aclose()
            raise
        # Between its commands nothing of it counts as one of a run.
        self._process._connection.on_end()  # noqa: SLF001 - nobody else needs it
        return self

    async def aclose(self) -> None:
        """Kill the shell and all that it left running. Idempotent."""
        await self._process.__aexit__(None, None, None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _noted(self, running: Coroutine[Any, Any, ShellResult]) -> ShellResult:
        """Run a command, which counts for a run as an exec does."""
        run = current.current()
        if run is None:
            return await self._kept_going(running)
        with run.executing(self._sandbox.id) as answered:
            result = await self._kept_going(running)
            answered({"end": result.end, "exit_code": result.exit_code, "run_ms": result.run_ms})
            return result

    async def _kept_going(self, running: Coroutine[Any, Any, ShellResult]) -> ShellResult:
        going: list[asyncio.Task[None]] = []
        # Most commands end before that, and then there is no task.
        timer = asyncio.get_running_loop().call_later(
            LOOK_AFTER_S, lambda: going.append(asyncio.ensure_future(self._keep_going()))
        )
        try:
            return await running
        finally:
            timer.cancel()
            for one in going:
                one.cancel()
                await asyncio.wait([one])

    async def _abandon(self, number: int, command_id: str, spared: Sequence[int]) -> None:
        """Kill the command's processes and continue the shell with a signal.

        The shell is killed if that fails, and where it does not take the signal up.
        """
        try:
            if await self._is_deaf(number):
                name = signal.Signals(number).name
                await self._give_up(f"a command has set a trap for {name} that ignores it, or has replaced the shell")
                return
            await self._process._abandon(number, command_id, spared)  # noqa: SLF001 - its own
        except SandboxError as error:
            await self._give_up(f"its command could not be stopped ({error.detail})")

    async def _state(self) -> tuple[str, int, str]:
        """Look at the shell's process: its state as proc(5) has it, the group that has its terminal, and all of that.

        Empty when nobody can tell.
        """
        try:
            text = (await self._sandbox.files.read(f"/proc/{self._process.pid}/stat")).decode("utf-8", "replace")
            state, _, _, _, _, terminal_group = text.rpartition(")")[2].split()[:6]
        except (SandboxError, ValueError):
            return "", 0, ""
        return state, int(terminal_group), text

    async def _command_line(self) -> str:
        """Return the program that the process runs, with its arguments; empty when nobody can tell."""
        with suppress(SandboxError):
            data = await self._sandbox.files.read(f"/proc/{self._process.pid}/cmdline")
            return data.decode("utf-8", "replace").rstrip("\0").replace("\0", " ")
        return ""

    async def _is_deaf(self, number: int) -> bool:
        """Whether the shell does not take a signal up, so that it would go on with the rest of a line; False: unknown.

        gVisor does not tell.
        """
        with suppress(SandboxError, ValueError):
            text = (await self._sandbox.files.read(f"/proc/{self._process.pid}/status")).decode("utf-8", "replace")
            if caught := _CAUGHT.search(text):
                return not int(caught[1], 16) >> (number - 1) & 1
        return False

    async def _is_idle(self, spared: Sequence[int]) -> bool:
        """Whether the shell sleeps for a second, with no children but the spared; True also where nobody can tell."""
        path = f"/proc/{self._process.pid}/task/{self._process.pid}/children"
        looks = list[str]()
        for pause_s in (AGAIN_S, 0):
            state, _, text = await self._state()
            looks.append(text)
            try:
                children = {int(pid) for pid in (await self._sandbox.files.read(path)).split()}
            except (SandboxError, ValueError):
                children = set()
            if state not in ("", _ASLEEP) or not children <= set(spared):
                return False
            await asyncio.sleep(pause_s)
        return looks[0] == looks[1]

    async def _keep_going(self) -> None:
        """Continue the shell whenever a command has stopped it, which nobody else would; never returns."""
        while True:
            if (await self._state())[0] == _STOPPED:
                with suppress(SandboxError):
                    await self._process.signal(signal.SIGCONT)
            await asyncio.sleep(LOOK_AFTER_S)

    async def _give_up(self, why: str) -> None:
        """Kill a shell that cannot be used any more."""
        self._killed = f"the shell no longer answers: {why}; it was killed"
        await self._process.kill()
        await self._process.wait()

    async def _died_of_memory(self, exit_code: int) -> bool:
        """Whether a code is that of a process that was killed for memory since this was last asked."""
        if exit_code != _KILLED_BY_MEMORY:
            return False
        try:
            before, self._oom_kills = self._oom_kills, await self._process._oom_kills()  # noqa: SLF001 - its own
        except SandboxError:
            return False
        return self._oom_kills > before

    def _require_running(self) -> None:
        if self._lost is not None:
            raise self._lost
        if self._process.ended:
            raise self._over()

    def _over(self) -> Conflict:
        how = self._killed
        if not how and (result := self._process.result) is not None:
            how = f"it exited with code {result.exit_code}" if result.end == "exited" else f"it ended as {result.end}"
        return Conflict(f"shell {self.exec_id} has ended: {how}", hint="Start another with sandbox.shell().")
