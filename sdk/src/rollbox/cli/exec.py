"""`rollbox exec`: a command in a sandbox, as if it ran here."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, TypedDict, cast

import typer

from rollbox import labels as label_rules
from rollbox.cli import output
from rollbox.cli.options import time_option
from rollbox.errors import InvalidArgument, SandboxError

if TYPE_CHECKING:
    from rollbox.client import Client
    from rollbox.request import Keep
    from rollbox.result import ExecResult

# The exit codes that shell scripts know from `timeout`, SIGKILL and Ctrl-C.
EXIT_BY_END = {"deadline": 124, "oom_killed": 137, "cancelled": 130}
_HOW = {
    "deadline": "was ended by its time limit",
    "oom_killed": "was ended for want of memory",
    "cancelled": "was cancelled",
    "signalled": "was ended by a signal",
}


class _Place(TypedDict):
    cwd: str | None
    env: Mapping[str, str]
    user: str | None
    umask: int | None
    timeout: float | None


Raw = Annotated[bool, typer.Option("--raw", help="Let its output control this terminal, as with -t.")]


def exec_(
    sandbox_id: Annotated[str, typer.Argument(metavar="ID", help="The sandbox.")],
    command: Annotated[list[str], typer.Argument(metavar="CMD", help="After `--`: the command and its arguments.")],
    *,
    cwd: Annotated[str | None, typer.Option(help="Directory to run in.")] = None,
    env: Annotated[list[str] | None, typer.Option("--env", "-e", metavar="KEY=VALUE", help="May be repeated.")] = None,
    user: Annotated[str | None, typer.Option(help="User to run as.")] = None,
    umask: Annotated[str | None, typer.Option(metavar="OCTAL", help="Its mask for new files, like 077.")] = None,
    timeout: Annotated[float | None, time_option("Time until it is killed: seconds, or 90s, 5m, 1h30m.")] = None,
    max_output_bytes: Annotated[
        int | None, typer.Option(metavar="N", help="Keep at most N bytes of each output, and print them at the end.")
    ] = None,
    keep: Annotated[
        str | None, typer.Option(metavar="head|tail", help="Which part of a longer output to keep; printed at the end.")
    ] = None,
    interactive: Annotated[bool, typer.Option("--interactive", "-i", help="Forward standard input.")] = False,
    tty: Annotated[bool, typer.Option("--tty", "-t", help="Run it on a terminal like this one.")] = False,
    stdin: Annotated[str | None, typer.Option(metavar="-", help="`-` is the same as `-i`.")] = None,
    raw: Raw = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON, at the end.")] = False,
) -> None:
    """Run a command in a sandbox; its output is streamed, and the exit code is that of the command (124 deadline,
    137 out of memory, 130 Ctrl-C). `-it` is for shells and other interactive programs.
    """
    interactive = interactive or _wants_stdin(stdin, as_json=json)
    # A limit applies to output that is kept until the end; streamed output is not kept.
    whole = json or max_output_bytes is not None or keep is not None
    if tty:
        _check_terminal(whole=whole, as_json=json)

    async def call(client: Client) -> ExecResult:
        from rollbox.cli import streaming

        sandbox = await client.connect(sandbox_id)
        mask = None if umask is None else octal("umask", umask)
        variables = label_rules.parse(env or ())
        place: _Place = {"cwd": cwd, "env": variables, "user": user, "umask": mask, "timeout": timeout}
        try:
            if whole:
                part = cast("Keep", keep or "tail")
                given = streaming.local_stdin() if interactive else b""
                return await sandbox.exec(command, stdin=given, max_output_bytes=max_output_bytes, keep=part, **place)
            size = streaming.window() if tty else None
            process = await sandbox.spawn(command, stdin=interactive, terminal=size, **place)
        except InvalidArgument as error:
            raise _with_shell_hint(error, command) from error
        async with process:
            return await streaming.run(process, stdin=interactive, terminal=tty, raw=raw)

    result = output.run(call, what=f"running {command[0]} in {sandbox_id}", as_json=json, quiet=not whole)
    if json:
        output.data(result.to_json())
    else:
        if whole:
            print_output(result, raw=raw)
        print_end(result)
    raise typer.Exit(exit_code(result))


def exit_code(result: ExecResult) -> int:
    """Return the exit code that a shell reports for such an end."""
    if result.end == "signalled":
        return 128 + (result.signal or 0)
    return EXIT_BY_END.get(result.end, result.exit_code or 0)


def print_end(result: ExecResult) -> None:
    """Print on stderr how a command ended that did not exit by itself."""
    if result.end != "exited":
        how = _HOW.get(result.end, f"ended as {result.end}")
        by = f" ({result.signal_name})" if result.end == "signalled" else ""
        output.message(f"the command {how}{by} after {result.run_ms:.0f} ms ({result.end})")


def octal(name: str, text: str) -> int:
    """Read permissions or a mask as they are typed.

    Raises:
        InvalidArgument: it is not an octal number.
    """
    try:
        return int(text, 8)
    except ValueError:
        raise InvalidArgument(f"{name} {text!r} is not an octal number, like 077") from None


def print_output(result: ExecResult, *, raw: bool) -> None:
    """Print what of the output was kept, and say how much was not."""
    from rollbox.cli.harmless import Harmless

    for stream, data in ((sys.stdout, result.stdout_bytes), (sys.stderr, result.stderr_bytes)):
        harmless = Harmless()
        stream.buffer.write(data if raw or not stream.isatty() else harmless(data) + harmless.rest())
        stream.flush()
    for name, kept, total in (
        ("stdout", result.stdout_bytes, result.stdout_total_bytes),
        ("stderr", result.stderr_bytes, result.stderr_total_bytes),
    ):
        if total > len(kept):
            output.message(f"{name}: {total - len(kept)} of {total} bytes were not kept")


def _wants_stdin(option: str | None, *, as_json: bool) -> bool:
    if option not in (None, "-"):
        error = InvalidArgument(f"--stdin {option!r}: only `-`, the standard input, is supported")
        output.fail(error, as_json=as_json)
    return option == "-"


def _check_terminal(*, whole: bool, as_json: bool) -> None:
    if whole:
        detail = "--tty cannot go together with --json, --max-output-bytes or --keep, which print at the end"
        output.fail(InvalidArgument(detail, hint="Leave one out."), as_json=as_json)
    if not sys.stdin.isatty():
        hint = "Leave -t out: -i alone forwards the standard input."
        output.fail(InvalidArgument("the standard input is not a terminal", hint=hint))


def _with_shell_hint(error: SandboxError, command: list[str]) -> SandboxError:
    """Add a hint when a shell line was given as one argument: 'ls | wc'."""
    if error.details.get("reason") == "command_not_found" and len(command) == 1 and " " in command[0]:
        error.hint = f"For a shell line write: -- sh -c {shlex.quote(command[0])}"
    return error
