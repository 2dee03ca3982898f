"""The processes of a sandbox: list them, attach to one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from rollbox import request
from rollbox.deadline import Deadline
from rollbox.errors import Conflict, InvalidArgument
from rollbox.gateway import Gateway, SandboxAccess
from rollbox.process.connection import Connection
from rollbox.process.handle import Process


@dataclass(frozen=True, slots=True)
class ExecSummary:
    """A command that runs, or that ended and is still on record.

    Attributes:
        exec_id, pid: its id, and its process id in the sandbox.
        argv: its arguments; a text for a shell is one, as it was given.
        started_at_ms: Unix time.
        running: whether it runs.
        end, exit_code: as in `ExecResult`, when it has ended.
        stdout_bytes, stderr_bytes: how much it wrote so far.
        ended_at_ms: Unix time; None while it runs.
    """

    exec_id: str
    argv: list[str]
    pid: int
    started_at_ms: int
    running: bool
    end: str | None = None
    exit_code: int | None = None
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    ended_at_ms: int | None = None

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> ExecSummary:
        """Read the wire form; fields that this version does not know are left out."""
        return cls(**{item.name: body[item.name] for item in fields(cls) if item.name in body})

    def to_json(self) -> dict[str, Any]:
        """Write the wire form, for `--json`."""
        return asdict(self)


class Processes:
    """The processes of one sandbox. Get it as `sandbox.processes`."""

    def __init__(self, gateway: Gateway, access: SandboxAccess) -> None:
        """Use `sandbox.processes` instead."""
        self._gateway = gateway
        self._access = access

    async def list(self) -> list[ExecSummary]:
        """List commands that run and those that ended and are still on record, newest first."""
        body = await self._gateway.call_sandbox(self._access, "GET", "execs")
        return [ExecSummary.from_json(item) for item in body["execs"]]

    async def kill_all(self, *, timeout: float = 30) -> int:  # noqa: ASYNC109
        """Kill every process of the sandbox, also those that have left the command that started them.

        Calls on its files that are under way are killed too. What is started afterwards runs.

        Args:
            timeout: seconds that it may take; a bomb of forks takes some.

        Returns:
            how many commands ran; they end as cancelled.

        Raises:
            Conflict: some are still there after `timeout`.
        Cost: one request.
        """
        deadline, killed = Deadline(request.milliseconds("timeout", timeout) / 1000), 0
        while True:
            told: dict[str, int] = await self._gateway.call_sandbox(self._access, "DELETE", "execs", deadline=deadline)
            killed += told["cancelled"]
            if not told["left"]:
                return killed
            if not deadline.left_s():
                raise Conflict(f"{told['left']} processes are still there after {timeout:g} s: they outrun every kill")

    async def attach(self, exec_id: str, *, stdout_offset: int = 0, stderr_offset: int = 0) -> Process:
        """Attach to a command by its exec_id, from any program; an ended one replays its kept output and its result.

        Args:
            exec_id: from `spawn`, `exec` or `list`.
            stdout_offset: the byte of stdout to start at; `stdout.offset` of the earlier reader.
            stderr_offset: the same of stderr.

        Raises:
            ExecNotFound: there is no such exec, or its record is gone.
            InvalidArgument: the exec_id cannot be one, or an offset is not a whole number of bytes.
        Cost: one request. Leaving the `async with` kills the command here too, unless `detach()` was called.
        """
        for name, value in (("stdout_offset", stdout_offset), ("stderr_offset", stderr_offset)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise InvalidArgument(f"{name} {value!r} is not a whole number of bytes")
        name = request.key("exec_id", exec_id)
        connection = Connection(self._gateway, self._access, name, (stdout_offset, stderr_offset))
        await connection.open()
        return Process(self._gateway, self._access, connection, None)
