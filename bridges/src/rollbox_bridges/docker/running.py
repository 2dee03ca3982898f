"""The bodies of an exec's create and start, and how a process ended. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rollbox import ExecResult, SandboxError
from rollbox_bridges.docker import fields
from rollbox_bridges.docker.creating import user_of
from rollbox_bridges.docker.words import Refusal, not_honoured

_KNOWN: Final = frozenset(
    {
        "AttachStdin",
        "AttachStdout",
        "AttachStderr",
        "Tty",
        "Env",
        "Cmd",
        "User",
        "WorkingDir",
        "ConsoleSize",
        # docker-py names the container here too.
        "Container",
    }
)
_REASONS: Final = {
    "Privileged": "a sandbox has a fixed set of rights",
    "DetachKeys": "no keys detach; end the client instead",
}
_HARMLESS: Final[dict[str, tuple[Any, ...]]] = {"Detach": (True,)}
_STARTED: Final = frozenset({"Detach", "Tty", "ConsoleSize"})
_SIGNALLED: Final = 128
_KILLED: Final = 137
# Why a command was not started, by the reason of the error: its exit code, and how a container engine words it.
_NOT_STARTED: Final = {
    "command_not_found": (127, 'exec: "{0}": executable file not found in $PATH'),
    "not_executable": (126, 'exec: "{0}": permission denied'),
    "cwd_not_found": (126, 'chdir to cwd ("{1}") set in config.json failed: no such file or directory'),
    "user_not_found": (126, "unable to find user {2}: no matching entries in passwd file"),
    "arguments_too_large": (126, "argument list too long"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecWish:
    """A command that is to run in a container.

    Attributes:
        argv, env: of it.
        cwd, user: "": those of the container.
        tty: whether it has a terminal.
        stdin, stdout, stderr: which streams its client wants.
        size: of its terminal, columns and rows.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str = ""
    user: str = ""
    tty: bool = False
    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    size: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended.

    Attributes:
        code: its exit code; 128 and more for a signal.
        oom_killed: whether it took more memory than it may.
    """

    code: int
    oom_killed: bool = False


def exec_of(body: Any) -> ExecWish:  # noqa: ANN401 - JSON
    """Read the body of an exec's create.

    Raises:
        Refusal: it is malformed, or asks for what there is not.
    """
    asked = fields.taken("", body, _KNOWN, _HARMLESS, _REASONS)
    argv = fields.words("Cmd", asked.get("Cmd"))
    if not argv:
        raise Refusal(400, "No exec command specified")
    return ExecWish(
        argv=tuple(argv),
        env=fields.variables(asked.get("Env")),
        cwd=fields.text("WorkingDir", asked.get("WorkingDir")),
        user=user_of(asked.get("User")),
        tty=fields.flag("Tty", asked.get("Tty")),
        stdin=fields.flag("AttachStdin", asked.get("AttachStdin")),
        stdout=fields.flag("AttachStdout", asked.get("AttachStdout")),
        stderr=fields.flag("AttachStderr", asked.get("AttachStderr")),
        size=fields.size_of("ConsoleSize", asked.get("ConsoleSize")),
    )


def detached(body: Any, wish: ExecWish) -> tuple[bool, tuple[int, int] | None]:  # noqa: ANN401 - JSON
    """Read the body of an exec's start: whether nobody waits for its output, and the size of its terminal.

    Raises:
        Refusal: it is malformed, or wants a terminal for what was created without one.
    """
    asked = fields.taken("", body, _STARTED, {}, {})
    if fields.flag("Tty", asked.get("Tty")) and not wish.tty:
        raise not_honoured("Tty of a start", "the exec was created without a terminal")
    return fields.flag("Detach", asked.get("Detach")), fields.size_of("ConsoleSize", asked.get("ConsoleSize"))


def ended(result: ExecResult) -> Ended:
    """How a process ended, in one number."""
    if result.exit_code is not None:
        return Ended(result.exit_code)
    if result.end == "oom_killed":
        return Ended(_KILLED, oom_killed=True)
    return Ended(_SIGNALLED + result.signal if result.signal else _KILLED)


def not_started(error: SandboxError, argv: tuple[str, ...], cwd: str, user: str) -> tuple[int, str] | None:
    """The exit code and the words for a command that could not be started; None: the error is another one."""
    found = _NOT_STARTED.get(error.details.get("reason", ""))
    if found is None:
        return None
    what = found[1].format(argv[0], cwd, user)
    return found[0], f"failed: unable to start container process: {what}: unknown"
