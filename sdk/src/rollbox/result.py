"""The result of a command: its end and its output, and the error that a caller may want for it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from rollbox.errors import BY_CODE, ExecFailed
from rollbox.exec_output import SHOWN_CHARS, ExecOutput

_ERROR_OF_END = {"deadline": "exec_deadline", "oom_killed": "oom_killed", "cancelled": "exec_cancelled"}


@dataclass(frozen=True, slots=True, repr=False)
class ExecResult(ExecOutput):
    """How a command ended and what it wrote.

    Attributes:
        end: exited, signalled, deadline, oom_killed or cancelled: the cause, never hidden in an exit code.
        exit_code: the code when it exited, else None.
        signal: the number of the signal that killed it, else None.
        stdout_bytes, stderr_bytes: what it wrote; the last bytes when there was more than `max_output_bytes`.
        stdout_truncated, stderr_truncated: whether there was more.
        stdout_total_bytes, stderr_total_bytes: how much it wrote in all.
        queue_ms, spawn_ms, run_ms: waiting at the gateway, starting the process, running; measured on the server.
        replayed: the answer is the record of an earlier call with the same exec_id.
        exec_id, sandbox_id: which command, where.
    """

    def check(self) -> Self:
        """Return the result itself when it is ok.

        Raises:
            ExecFailed: non-zero exit code or a signal.
            ExecDeadline, OomKilled, ExecCancelled: as `end` says. All carry `.result`.
        """
        if self.ok:
            return self
        error = BY_CODE.get(_ERROR_OF_END.get(self.end, self.end), ExecFailed)
        last_line = self.stderr_bytes.rstrip().rpartition(b"\n")[2].decode("utf-8", "replace")[:SHOWN_CHARS]
        said = f"; stderr ends with {last_line!r}" if last_line else ""
        detail = f"exec {self.exec_id} in sandbox {self.sandbox_id} {self._how()}{said}"
        raise error(detail, sandbox_id=self.sandbox_id, result=self)

    def _how(self) -> str:
        if self.end == "exited":
            return f"exited with code {self.exit_code}"
        if self.end == "signalled":
            return f"was killed by {self.signal_name}"
        return f"ended as {self.end} after {self.run_ms:.0f} ms"


@dataclass(frozen=True, slots=True, repr=False)
class ShellResult(ExecResult):
    """The result of a command of a shell.

    Attributes:
        shell_ended: whether the shell has ended with it, by `exit` or since it did not answer any more.
    """

    shell_ended: bool = False
