"""An interpreter in a sandbox that keeps its variables from one cell to the next."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from types import TracebackType
from typing import NamedTuple

from rollbox import request
from rollbox.errors import Conflict, InvalidArgument
from rollbox.interpreter.answer import Answer
from rollbox.interpreter.cell import Cell, CellEvent, Variable
from rollbox.interpreter.frames import encoded
from rollbox.interpreter.kernel import Kernel, cause
from rollbox.interpreter.options import OnDisconnect
from rollbox.interpreter.patience import Patience
from rollbox.interpreter.program import Program
from rollbox.process import Process
from rollbox.recording import current
from rollbox.request import Directory, Variables
from rollbox.shell_session import CommandRunner

_MOST_CODE_BYTES = 2**23
_Starting = Callable[[], Awaitable[Process]]


class Interpreter:
    """A Python in a sandbox; made by `sandbox.interpreter()`. Runs one cell at a time, in the order of the calls.

    As an asynchronous context manager it kills the interpreter, with all that it has started, at the end. What code in
    a cell says of itself (values, errors, times) it can forge; nothing else of the sandbox or the platform.
    """

    def __init__(self, sandbox_id: str, program: Program, starting: _Starting, max_output_bytes: int) -> None:
        """Use `Sandbox.interpreter` instead."""
        self._sandbox_id = sandbox_id
        self._program = program
        self._starting = starting
        self._most = max_output_bytes
        self._running = asyncio.Lock()
        self._kernel: Kernel | None = None
        self._version = ""
        self._restarted = False
        self._closed = False
        # The cell that was sent last, until its end has come, and what becomes of it without a caller.
        self._owed: tuple[str, OnDisconnect, Patience] | None = None
        self._leaving: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls,
        sandbox: CommandRunner,
        program: Program,
        *,
        cwd: Directory | None,
        env: Variables | None,
        user: str | None,
        max_output_bytes: int,
    ) -> Interpreter:
        """Start it.

        Args:
            sandbox: that it runs in.
            program: that runs its cells.
            cwd: its directory; None: the sandbox's.
            env: variables beside the sandbox's.
            user: that it runs as; None: the sandbox's.
            max_output_bytes: how much of each cell's stdout and stderr to keep, each.

        Raises:
            InvalidArgument: the image has not what the program needs, or an argument is invalid.
        """

        async def starting() -> Process:
            grace_s = request.ORPHAN_GRACE_S
            return await sandbox.spawn(
                program.argv, cwd=cwd, env=env, user=user, stdin=program.source, orphan_grace=grace_s
            )

        made = cls(sandbox.id, program, starting, request.count("max_output_bytes", max_output_bytes))
        await made._started()
        return made

    @property
    def version(self) -> str:
        """The version of the Python (or Node) that runs, as it says: "3.12.4"."""
        return self._version

    @property
    def exec_id(self) -> str | None:
        """Its id among the sandbox's processes; another one after a restart, None while it is not running."""
        return self._kernel.process.exec_id if self._kernel else None

    async def run(
        self,
        code: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109
        on_disconnect: OnDisconnect = "interrupt",
        max_output_bytes: int | None = None,
        cell_id: str | None = None,
    ) -> Cell:
        """Run a cell and return what it answers; an exception of the code is an answer, not an error.

        Args:
            code: Python, with `await` outside functions too. The value of a last expression is shown, unless a
                semicolon follows it.
            timeout: seconds, the wait for earlier cells not counted, after which the cell is interrupted
                (KeyboardInterrupt), so that variables survive; a second later what it has started is interrupted
                too, and what still runs 4 s after that is killed.
            on_disconnect: what becomes of the cell when this call is cancelled: "interrupt" it, as at its timeout, or
                let it "continue"; the next cell waits for that.
            max_output_bytes: how much of stdout and of stderr to keep, each: the first bytes.
            cell_id: the same id never runs twice in one interpreter: it gives the answer that is on record. Kept are
                the last 1024 answers, as far as they are below 4 MiB together; of one over a MiB only the end.

        Raises:
            StreamInterrupted: no gateway answered for 60 s; the cell may still run. The next call waits for it, and
                with the same `cell_id` it gets its answer.
            SandboxLost, OomKilled, TtlExpired, ...: the sandbox has ended. Under gVisor a cell that takes more memory
                than the sandbox has ends that; on an engine the interpreter died.
        Cancel safety: as `on_disconnect` says.
        Cost: one message each way on the connection of the interpreter.
        """
        events = self.stream(
            code, timeout=timeout, on_disconnect=on_disconnect, max_output_bytes=max_output_bytes, cell_id=cell_id
        )
        last: CellEvent | None = None
        # To its end, so that nothing of it has to be closed.
        async for event in events:
            last = event
        assert isinstance(last, Cell)  # noqa: S101 - as a stream ends
        return last

    def stream(
        self,
        code: str,
        *,
        timeout: float | None = None,
        on_disconnect: OnDisconnect = "interrupt",
        max_output_bytes: int | None = None,
        cell_id: str | None = None,
    ) -> AsyncGenerator[CellEvent, None]:
        """Run a cell and iterate over its output and its results as they come; last comes the whole `Cell`.

        An iteration that is left before its end counts as a cancelled call; use `contextlib.aclosing` where that has to
        be at once.

        Args:
            code: as for `run`, like all that follows.
            timeout: seconds.
            on_disconnect: what becomes of the cell without its caller.
            max_output_bytes: how much of stdout and of stderr to give, each.
            cell_id: its id.

        Raises:
            InvalidArgument: an argument is invalid. What `run` raises comes from the iteration.
        """
        if on_disconnect not in {"interrupt", "continue"}:
            raise InvalidArgument(f"on_disconnect is {on_disconnect!r}, not 'interrupt' or 'continue'")
        most = self._most if max_output_bytes is None else request.count("max_output_bytes", max_output_bytes)
        key = _new_key() if cell_id is None else request.key("cell_id", cell_id)
        data = request.text("code", code).encode()
        if len(data) > _MOST_CODE_BYTES:
            raise InvalidArgument(f"code has {len(data)} bytes, more than {_MOST_CODE_BYTES}: write data to a file")
        limit_s = None if timeout is None else request.milliseconds("timeout", timeout) / 1000
        return self._stream(_Asked(encoded(b"C", key.encode(), data, b"%d" % most), key, most, limit_s, on_disconnect))

    async def variables(self, *, timeout: float | None = 10) -> list[Variable]:  # noqa: ASYNC109
        """List the variables that cells have made, without those that begin with an underscore; at most 10,000.

        Raises:
            Conflict: the text of one of them did not come in `timeout` seconds, or the interpreter died over it.
        """
        key, most = _new_key(), self._most
        limit_s = None if timeout is None else request.milliseconds("timeout", timeout) / 1000
        asked = _Asked(encoded(b"V", key.encode(), b"%d" % most), key, most, limit_s, "interrupt")
        listed: list[Variable] = []
        async for event in self._stream(asked, listed):
            if isinstance(event, Cell) and not event.ok:
                said = event.reason or (event.error.value if event.error else "")
                raise Conflict(f"the variables could not be listed ({event.end}) {said}".rstrip())
        return listed

    async def interrupt(self) -> None:
        """Interrupt the cell that runs: it raises KeyboardInterrupt, and ends as `interrupted` unless it catches that.

        What ignores it goes on; `restart` ends that. Nothing happens where no cell runs.

        Raises:
            SandboxLost, ...: the sandbox has ended, or no gateway answers.
        """
        if self._owed is not None and self._kernel is not None:
            with suppress(Conflict):  # It has ended meanwhile, which its cell says.
                await self._kernel.process.signal(signal.SIGINT)

    async def restart(self) -> None:
        """Kill the interpreter with all that it has started, and start a new one; a cell that runs ends as `died`."""
        if self._kernel is not None:
            self._kernel.ended_by = "it was restarted while the cell ran"
            await self._kernel.process.kill()
        async with self._running:
            if self._kernel is not None:
                await self._lose(self._kernel)
            self._restarted = False
            self._kernel = await self._started()

    async def aclose(self) -> None:
        """Kill the interpreter and all that it has started. Idempotent."""
        self._closed = True
        leaving, self._leaving = self._leaving, None
        if leaving is not None:
            leaving.cancel()
            await asyncio.wait([leaving])
        if self._kernel is not None:
            self._kernel.ended_by = "it was closed while the cell ran"
            await self._lose(self._kernel)

    async def __aenter__(self) -> Interpreter:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"Interpreter(version={self.version!r}, sandbox_id={self._sandbox_id!r})"

    async def _stream(self, asked: _Asked, variables: list[Variable] | None = None) -> AsyncGenerator[CellEvent, None]:
        """Run a cell, or list `variables`, which is no cell."""
        clock = asyncio.get_running_loop().time
        began = clock()
        async with self._running:
            await self._settled()
            kernel = self._kernel or await self._started()
            patience = Patience(kernel.process, None if asked.limit_s is None else clock() + asked.limit_s)
            self._owed = (asked.key, asked.on_disconnect, patience)
            run = current.current()
            with nullcontext() if run is None else run.executing(self._sandbox_id) as note:
                event: CellEvent | None = None
                try:
                    await self._send(kernel, asked.frame)
                    answer = Answer(asked.key, asked.most, waited_ms=lambda: (clock() - began) * 1000)
                    if variables is None:
                        answer.restarted, self._restarted = self._restarted, False
                    else:
                        answer.variables = variables
                    while not isinstance(event, Cell):
                        event = await self._next(kernel, answer, patience)
                        if event is not None and not isinstance(event, Cell):
                            yield event
                except (asyncio.CancelledError, GeneratorExit):
                    if self._owed is not None:
                        self._leaving = asyncio.create_task(self._leave(kernel), name="rollbox cell without caller")
                    raise
                if note is not None:
                    note(_as_exec(event))
            yield event

    async def _next(self, kernel: Kernel, answer: Answer, patience: Patience) -> CellEvent | None:
        """Wait for the next frame of a cell, and give what it means; a `Cell` at its end."""
        try:
            frame = await kernel.next(patience)
            event = await self._died(kernel, answer, "") if frame is None else answer.take(frame)
        except Conflict as error:
            event = await self._died(kernel, answer, error.detail)
        if not isinstance(event, Cell):
            return event
        self._owed = None
        if not patience.asked:
            return event
        reason = "it ignored its interrupt, and was killed" if patience.killed else event.reason
        return replace(event, end="deadline", reason=reason)

    async def _send(self, kernel: Kernel, asked: bytes) -> None:
        try:
            await kernel.process.stdin.write(asked)
        except Conflict:
            # It has ended before, which the next frame says.
            return
        except asyncio.CancelledError:
            # Nobody knows how much of it was sent.
            await self._lose(kernel)
            raise

    async def _died(self, kernel: Kernel, answer: Answer, reason: str) -> Cell:
        await self._lose(kernel)
        result = kernel.process.result
        cell = replace(answer.partial(), reason=reason, process=result)
        if result is None:
            return cell
        # What Python says when it crashes.
        said = cell.stderr_bytes + result.stderr_bytes
        return replace(
            cell,
            reason=kernel.ended_by or reason or cause(result),
            stderr_bytes=said,
            stderr_total_bytes=cell.stderr_total_bytes + len(result.stderr_bytes),
        )

    async def _lose(self, kernel: Kernel) -> None:
        """Kill it, for the next call to start another."""
        self._owed = None
        if self._kernel is kernel:
            self._kernel, self._restarted = None, True
        await kernel.kill()

    async def _started(self) -> Kernel:
        if self._closed:
            raise Conflict("the interpreter is closed", hint="Make another one: `sandbox.interpreter()`.")
        self._kernel = await Kernel.start(self._program, self._starting)
        self._version = self._kernel.version
        return self._kernel

    async def _settled(self) -> None:
        """Wait for the end of a cell whose caller has gone."""
        if self._leaving is not None:
            await asyncio.wait([self._leaving])
            self._leaving = None
        if self._owed is not None and self._kernel is not None:
            await self._leave(self._kernel)

    async def _leave(self, kernel: Kernel) -> None:
        """Read a cell to its end for nobody; one that is not to go on is interrupted, and killed if it ignores that.

        One that goes on keeps its time limit.
        """
        assert self._owed is not None  # noqa: S101
        key, on_disconnect, patience = self._owed
        answer = Answer(key, 0)
        if on_disconnect == "interrupt":
            patience = Patience(kernel.process, asyncio.get_running_loop().time())
        try:
            while (frame := await kernel.next(patience)) is not None:
                if isinstance(answer.take(frame), Cell):
                    self._owed = None
                    return
        except Conflict:
            pass
        await self._lose(kernel)


class _Asked(NamedTuple):
    """What the program is asked for."""

    frame: bytes
    key: str
    most: int
    limit_s: float | None
    on_disconnect: OnDisconnect


def _new_key() -> str:
    return os.urandom(16).hex()


_EXEC_END = {"finished": "exited", "deadline": "deadline", "interrupted": "cancelled", "died": "signalled"}


def _as_exec(cell: Cell) -> dict[str, object]:
    """What a run notes of a cell, which counts as an exec."""
    code = int(not cell.ok) if cell.end == "finished" else None
    return {"end": _EXEC_END[cell.end], "exit_code": code, "run_ms": cell.run_ms}
