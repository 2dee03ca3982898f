"""A process: what `sandbox.spawn` and `sandbox.processes.attach` return."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType

from rollbox.errors import InvalidArgument
from rollbox.gateway import Gateway, SandboxAccess
from rollbox.process import frames
from rollbox.process.connection import Connection
from rollbox.process.stdin import StdinWriter
from rollbox.process.streams import OutputStream, limited
from rollbox.request import count, window
from rollbox.result import ExecResult

_MOST_SIGNAL = 64
_MOST_SPARED = 4096


class Process:
    """A command that runs in a sandbox.

    As an asynchronous context manager it kills the command at the end, unless it has ended or `detach()` was called. A
    connection that breaks (a gateway restarts) is reopened at the same offsets, for up to 60 s; nothing is read twice,
    and output that the sandbox dropped meanwhile is in `stdout.gaps`.

    Attributes:
        exec_id: its id; `sandbox.processes.attach(exec_id)` attaches to it from any program.
        pid: in the sandbox; None after `attach`.
        stdout, stderr: its output; on a terminal all is stdout.
        stdin: its input.
    """

    def __init__(self, gateway: Gateway, access: SandboxAccess, connection: Connection, pid: int | None) -> None:
        """Use `Sandbox.spawn` or `Processes.attach` instead."""
        self.exec_id = connection.exec_id
        self.pid = pid
        self.stdout: OutputStream = connection.streams[frames.STDOUT]
        self.stderr: OutputStream = connection.streams[frames.STDERR]
        self.stdin = StdinWriter(connection)
        self._gateway = gateway
        self._access = access
        self._connection = connection
        self._detached = False

    @property
    def result(self) -> ExecResult | None:
        """How it ended, once this program has received that; `wait` waits for it."""
        return self._connection.result

    @property
    def ended(self) -> bool:
        """Whether this program has received its result."""
        return self._connection.result is not None

    async def wait(self, *, timeout: float | None = None) -> ExecResult:  # noqa: ASYNC109
        """Wait for the end and return how it ended, with the last 64 KiB of each output, whether it was read or not.

        All of them are in the streams. After `attach` the result has what came since.

        Args:
            timeout: seconds to wait; None: without limit.

        Raises:
            TimeoutError: it still runs.
            StreamInterrupted: no gateway answered for 60 s; the command may still run.
            SandboxLost, TtlExpired, ...: the sandbox has ended.
        Cancel safety: the command goes on.
        """
        async with limited(timeout):
            return await self._connection.ended()

    async def read_both(self) -> tuple[bytes, bytes]:
        """Return all of stdout and stderr, in memory; read one after the other, they would block the command."""
        async with asyncio.TaskGroup() as group:
            stdout = group.create_task(self.stdout.read())
            stderr = group.create_task(self.stderr.read())
        return stdout.result(), stderr.result()

    async def signal(self, number: int, *, tree: bool = False) -> None:
        """Send a signal to its process, or with `tree` to all its processes; at most once, without retries.

        On a terminal SIGINT, SIGQUIT and SIGTSTP go to the foreground processes, as Ctrl-C does there.

        Raises:
            InvalidArgument: the number is not a signal.
            Conflict, ExecNotFound: it has ended.
        """
        if not 1 <= count("signal", int(number)) <= _MOST_SIGNAL:
            raise InvalidArgument(f"signal {number} is not one of 1 to {_MOST_SIGNAL}")
        body = {"signal": int(number), "tree": tree}
        await self._gateway.call_sandbox(
            self._access, "POST", "execs", self.exec_id, "signal", body=body, idempotent=False
        )

    async def _abandon(self, signal: int, command_id: str, spared: Sequence[int]) -> None:
        """Kill what one command of this process, a shell, has started, and continue the shell with a signal."""
        body = {"signal": signal, "command_id": command_id, "spared": list(spared)[:_MOST_SPARED]}
        await self._gateway.call_sandbox(self._access, "POST", "execs", self.exec_id, "signal", body=body)

    async def _oom_kills(self) -> int:
        """Return how many processes of the sandbox the kernel has killed for memory since this one started."""
        listed = await self._gateway.call_sandbox(self._access, "GET", "execs")
        return next((one.get("oom_kills") or 0 for one in listed["execs"] if one["exec_id"] == self.exec_id), 0)

    async def kill(self) -> None:
        """Kill it with all its processes; its end is `cancelled`. Idempotent."""
        await self._gateway.call_sandbox(self._access, "DELETE", "execs", self.exec_id)

    async def resize(self, columns: int, rows: int) -> None:
        """Set the window size of a command on a terminal."""
        await self._connection.resize(**window(columns, rows))

    def detach(self) -> str:
        """Leave the command running when the `async with` ends; returns its exec_id."""
        self._detached = True
        return self.exec_id

    async def aclose(self) -> None:
        """Close the connection; the command goes on. Idempotent."""
        await self._connection.close()

    async def __aenter__(self) -> Process:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if not self._detached and self._connection.result is None:
                await self._gateway.end_exec(self._access, self.exec_id)
                self._connection.on_end()
        finally:
            await self.aclose()

    def __repr__(self) -> str:
        return f"Process(exec_id={self.exec_id!r}, sandbox_id={self._access.sandbox_id!r}, pid={self.pid})"
