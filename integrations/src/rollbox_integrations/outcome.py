"""What hosts read of a command and of a failure: a status with two outputs, or a record of whose fault it was. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from rollbox import ExecResult, SandboxError
from rollbox.errors import DiskFull, InvalidArgument, OomKilled

# What a shell, `timeout` and a container engine report; 128 and the number of a signal is a death by it.
NOT_STARTED = 126
NOT_FOUND = 127
DEADLINE = 124
KILLED = 137
_SIGNALLED = 128

# Why a command was not started, by the reason of the error: its status, and how a shell words it.
_REFUSALS = {
    "command_not_found": (NOT_FOUND, "command not found"),
    "not_executable": (NOT_STARTED, "permission denied"),
    "cwd_not_found": (NOT_STARTED, "no such working directory"),
    "user_not_found": (NOT_STARTED, "no such user"),
    "arguments_too_large": (NOT_STARTED, "argument list too long"),
}
# The workload has ended its sandbox by itself, with the command that was running.
_DEATHS = (OomKilled, DiskFull)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended, as hosts without causes of their own have it.

    Attributes:
        status: its exit code; 128 and more for a signal, 124 for a deadline, 137 out of memory.
        stdout, stderr: what it wrote. What ended it is the last line of stderr, where no exit code says so.
    """

    status: int
    stdout: bytes = b""
    stderr: bytes = b""


class Fault(TypedDict):
    """Whose fault a failure was, for the records of hosts.

    Attributes:
        code: of the error table.
        fault: caller, workload, capacity or platform.
        mask_sample: whether to leave the sample out of the loss.
        retry: never, later, resume or new_sandbox.
        why: the error's sentence and its hint.
        sandbox_id: "" when none was made.
    """

    code: str
    fault: str
    mask_sample: bool
    retry: str
    why: str
    sandbox_id: str


def ended(result: ExecResult) -> Outcome:
    """Say how a command ended that was started.

    Raises:
        SandboxError: somebody has cancelled it, which says nothing about the sample.
    """
    if result.end == "cancelled":
        result.check()
    output, errors = result.stdout_bytes, result.stderr_bytes
    if result.end == "exited":
        return Outcome(result.exit_code or 0, output, errors)
    if result.end == "signalled":
        return Outcome(_SIGNALLED + (result.signal or 0), output, errors)
    if result.end == "deadline":
        return Outcome(DEADLINE, output, _with(errors, "rollbox: it passed its timeout and was killed"))
    return Outcome(KILLED, output, _with(errors, "rollbox: it passed the memory limit of its sandbox and was killed"))


def refused(error: SandboxError) -> Outcome | None:
    """Say why a command was not started, where its own arguments are the reason; None for any other error."""
    if not isinstance(error, InvalidArgument) or error.details.get("reason") not in _REFUSALS:
        return None
    status, words = _REFUSALS[error.details["reason"]]
    return Outcome(status, stderr=_with(b"", f"rollbox: {words}: {error.detail}"))


def died(error: SandboxError) -> Outcome | None:
    """Say how the workload has ended its own sandbox; None for any other error."""
    if not isinstance(error, _DEATHS):
        return None
    limit = "it passed the memory limit of its sandbox, which has ended: " if isinstance(error, OomKilled) else ""
    return Outcome(KILLED, stderr=_with(b"", f"rollbox: {limit}{error}"))


def fault(error: SandboxError) -> Fault:
    """Write down whose fault an error was."""
    return Fault(
        code=error.code,
        fault=error.fault,
        mask_sample=error.mask_sample,
        retry=error.retry,
        why=str(error),
        sandbox_id=error.sandbox_id or "",
    )


def sentence(error: SandboxError) -> str:
    """One line for a host that has only text: the code, whether to mask, and why."""
    return f"{error.code} ({error.fault}; {'mask' if error.mask_sample else 'score'} the sample): {error}"


def _with(errors: bytes, last: str) -> bytes:
    gap = b"\n" if errors and not errors.endswith(b"\n") else b""
    return errors + gap + last.encode() + b"\n"
