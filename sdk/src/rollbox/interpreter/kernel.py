"""One process of the resident program: it gets requests and says frames."""

from __future__ import annotations

import asyncio
import signal
from collections import deque
from collections.abc import Awaitable, Callable

from rollbox.errors import InvalidArgument
from rollbox.interpreter.frames import Decoder, Frame, garbled
from rollbox.interpreter.patience import Patience
from rollbox.interpreter.program import Program
from rollbox.process import Process
from rollbox.result import ExecResult

_START_LIMIT_S = 60.0


class Kernel:
    """The process behind an interpreter.

    Attributes:
        process: in the sandbox.
        version: of its Python, as it says.
        ended_by: why this side has ended it, in a sentence; empty where it has not.
    """

    def __init__(self, process: Process) -> None:
        self.process = process
        self.version = ""
        self.ended_by = ""
        self._decoder = Decoder()
        self._came: deque[Frame] = deque()

    @classmethod
    async def start(cls, program: Program, spawned: Callable[[], Awaitable[Process]]) -> Kernel:
        """Start it and wait until it takes cells.

        Raises:
            InvalidArgument: the image has not what it needs.
        """
        try:
            made = cls(await spawned())
        except InvalidArgument as error:
            if error.details.get("reason") == "command_not_found":
                error.hint = program.needs
            raise
        try:
            async with asyncio.timeout(_START_LIMIT_S):
                await made._greeted(program)
        except BaseException:
            await made.kill()
            raise
        # Between its cells nothing of it counts as one of a run.
        made.process._connection.on_end()  # noqa: SLF001 - as of shells
        return made

    async def _greeted(self, program: Program) -> None:
        first = await self.next(Patience(self.process, None))
        if first is None:
            result = await self.process.wait()
            said = f"the image's {program.name} cannot run an interpreter: {result.stderr[-500:].strip()}"
            raise InvalidArgument(said, hint=program.needs)
        if first.kind != b"H" or len(first.fields) != 2:
            raise garbled("no greeting")
        self.version = first.fields[1].decode("utf-8", "replace")

    async def next(self, patience: Patience) -> Frame | None:
        """Wait for a frame, and step the patience when its time has come; None: the process has ended.

        Raises:
            Conflict: what came is no frame.
        """
        clock, stdout = asyncio.get_running_loop().time, self.process.stdout
        while not self._came:
            left_s = None if patience.at is None else patience.at - clock()
            if left_s is not None and left_s <= 0:
                await patience.step(clock())
                continue
            try:
                data = await stdout.next_bytes(timeout=None if left_s is None else max(left_s, 0.001))
            except TimeoutError:
                continue
            if not data:
                return None
            if stdout.gaps:
                raise garbled("a part of it was dropped, since nobody read it in time")
            self._decoder.add(data)
            self._came.extend(self._decoder.frames())
        return self._came.popleft()

    async def kill(self) -> None:
        """Kill it with all that it has started. Idempotent."""
        await self.process.__aexit__(None, None, None)


def cause(result: ExecResult) -> str:
    """Why an interpreter died, in a sentence."""
    if result.end == "oom_killed":
        return "the sandbox's memory was full, and the kernel killed the interpreter"
    if result.end == "exited":
        return f"the interpreter exited with code {result.exit_code}"
    if result.end == "signalled" and result.signal is not None:
        return f"the interpreter was killed by {signal.Signals(result.signal).name}"
    return f"the interpreter ended as {result.end}"
