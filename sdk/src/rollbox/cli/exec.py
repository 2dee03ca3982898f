"""`rollbox exec`: a command in a sandbox, as if it ran here."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from typing import Annotated, TypedDict

import typer

from rollbox import labels as label_rules
from rollbox.cli import output, streaming
from rollbox.client import Client
from rollbox.errors import InvalidArgument, SandboxError
from rollbox.result import ExecResult

# The codes that `timeout`, the kernel's SIGKILL and Ctrl-C have given shell scripts for decades.
EXIT_BY_END = {"deadline": 124, "oom_killed": 137, "cancelled": 130}


class _Place(TypedDict):
    cwd: str | None
    env: Mapping[str, str]
    user: str | None
    timeout: float | None


def exec_(
    sandbox_id: Annotated[str, typer.Argument(metavar="ID", help="The sandbox.")],
    command: Annotated[list[str], typer.Argument(metavar="CMD", help="After `--`: the command and its arguments.")],
    *,
    cwd: Annotated[str | None, typer.Option(help="Directory to run in.")] = None,
    env: Annotated[list[str] | None, typer.Option("--env", "-e", metavar="KEY=VALUE", help="May be repeated.")] = None,
    user: Annotated[str | None, typer.Option(help="User to run as.")] = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds until it is killed.")] = None,
    interactive: Annotated[bool, typer.Option("--interactive", "-i", help="Pass the standard input on.")] = False,
    tty: Annotated[bool, typer.Option("--tty", "-t", help="Run it on a terminal like this one.")] = False,
    stdin: Annotated[str | None, typer.Option(metavar="-", help="`-` is as `-i`.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON, at the end.")] = False,
) -> None:
    """Run a command in a sandbox; its output comes as it is written, and it exits as the command did (124 deadline,
    137 out of memory, 130 Ctrl-C). `-it` is for shells and other programs that talk to a person.
    """
    interactive = interactive or _wants_stdin(stdin, as_json=json)
    if tty:
        _check_terminal(as_json=json)
    # Before there is an event loop: a read that blocks one cannot be interrupted.
    given = _all_stdin() if json and interactive else b""

    async def call(client: Client) -> ExecResult:
        sandbox = await client.connect(sandbox_id)
        place: _Place = {"cwd": cwd, "env": label_rules.parse(env or ()), "user": user, "timeout": timeout}
        try:
            if json:
                return await sandbox.exec(command, stdin=given, **place)
            size = streaming.window() if tty else None
            process = await sandbox.spawn(command, stdin=interactive, terminal=size, **place)
        except InvalidArgument as error:
            raise _with_shell_hint(error, command) from error
        async with process:
            return await streaming.run(process, stdin=interactive, terminal=tty)

    result = output.run(call, what=f"running {command[0]} in {sandbox_id}", as_json=json, quiet=not json)
    if json:
        output.data(result.to_json())
    else:
        tell_end(result)
    raise typer.Exit(exit_code(result))


def exit_code(result: ExecResult) -> int:
    """Give the code that a shell gives for such an end."""
    if result.end == "signalled":
        return 128 + (result.signal or 0)
    return EXIT_BY_END.get(result.end, result.exit_code or 0)


def tell_end(result: ExecResult) -> None:
    """Say on stderr how a command ended that did not exit by itself."""
    if result.end != "exited":
        by = f" ({result.signal_name})" if result.end == "signalled" else ""
        output.talk(f"the command ended as {result.end}{by} after {result.run_ms:.0f} ms")


def _wants_stdin(option: str | None, *, as_json: bool) -> bool:
    if option not in (None, "-"):
        error = InvalidArgument(f"--stdin {option!r}: only `-`, the standard input, is offered")
        output.fail(error, as_json=as_json)
    return option == "-"


def _check_terminal(*, as_json: bool) -> None:
    if as_json:
        output.fail(InvalidArgument("--json and --tty cannot go together", hint="Leave one out."), as_json=True)
    if not sys.stdin.isatty():
        hint = "Leave -t out: -i alone passes the standard input on."
        output.fail(InvalidArgument("the standard input is no terminal", hint=hint))


def _all_stdin() -> bytes:
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
