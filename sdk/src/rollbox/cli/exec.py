"""`rollbox exec`: a command in a sandbox, as if it ran here."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated

import typer

from rollbox import labels as label_rules
from rollbox.cli import output
from rollbox.client import Client
from rollbox.errors import InvalidArgument, SandboxError
from rollbox.result import ExecResult

# The codes that `timeout`, the kernel's SIGKILL and Ctrl-C have given shell scripts for decades.
EXIT_BY_END = {"deadline": 124, "oom_killed": 137, "cancelled": 130}


def exec_(
    sandbox_id: Annotated[str, typer.Argument(metavar="ID", help="The sandbox.")],
    command: Annotated[list[str], typer.Argument(metavar="CMD", help="After `--`: the command and its arguments.")],
    *,
    cwd: Annotated[str | None, typer.Option(help="Directory to run in.")] = None,
    env: Annotated[list[str] | None, typer.Option("--env", "-e", metavar="KEY=VALUE", help="May be repeated.")] = None,
    user: Annotated[str | None, typer.Option(help="User to run as.")] = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds until it is killed.")] = None,
    stdin: Annotated[str | None, typer.Option(metavar="-", help="`-` passes the standard input on.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Run a command in a sandbox; exits as the command did (124 deadline, 137 out of memory, 130 Ctrl-C)."""
    # Before there is an event loop: a read that blocks one cannot be interrupted.
    given = _stdin(stdin, as_json=json)

    async def call(client: Client) -> ExecResult:
        sandbox = await client.connect(sandbox_id)
        variables = label_rules.parse(env or ())
        try:
            return await sandbox.exec(command, cwd=cwd, env=variables, user=user, stdin=given, timeout=timeout)
        except InvalidArgument as error:
            raise _with_shell_hint(error, command) from error

    result = output.run(call, what=f"running {command[0]} in {sandbox_id}", as_json=json)
    if json:
        output.data(result.to_json())
    else:
        _pass_on(result)
    raise typer.Exit(exit_code(result))


def exit_code(result: ExecResult) -> int:
    """Give the code that a shell gives for such an end."""
    if result.end == "signalled":
        return 128 + (result.signal or 0)
    return EXIT_BY_END.get(result.end, result.exit_code or 0)


def _stdin(option: str | None, *, as_json: bool) -> bytes:
    if option is None:
        return b""
    if option != "-":
        error = InvalidArgument(f"--stdin {option!r}: only `-`, the standard input, is offered")
        output.fail(error, as_json=as_json)
    try:
        return sys.stdin.buffer.read()
    except KeyboardInterrupt:
        output.talk("interrupted while reading the standard input")
        raise typer.Exit(output.INTERRUPTED) from None


def _with_shell_hint(error: SandboxError, command: list[str]) -> SandboxError:
    """The way out for who typed a shell line as one argument: 'ls | wc'."""
    if error.details.get("reason") == "command_not_found" and len(command) == 1 and " " in command[0]:
        error.hint = f"For a shell line write: -- sh -c {shlex.quote(command[0])}"
    return error


def _pass_on(result: ExecResult) -> None:
    """Both streams byte for byte; what is not the command's own words goes to stderr."""
    for stream, said in ((sys.stdout, result.stdout_bytes), (sys.stderr, result.stderr_bytes)):
        stream.buffer.write(said)
        stream.flush()
    for name in ("stdout", "stderr"):
        if getattr(result, f"{name}_truncated"):
            kept, total = len(getattr(result, f"{name}_bytes")), getattr(result, f"{name}_total_bytes")
            output.talk(f"{name}: the last {kept} of {total} bytes")
    if result.end != "exited":
        by = f" ({result.signal_name})" if result.end == "signalled" else ""
        output.talk(f"the command ended as {result.end}{by} after {result.run_ms:.0f} ms")
