"""`rollbox exec`: a command in a sandbox, as if it ran here."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from rollbox import labels as label_rules
from rollbox.cli import output
from rollbox.client import Client
from rollbox.errors import InvalidArgument
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

    async def call(client: Client) -> ExecResult:
        sandbox = await client.connect(sandbox_id)
        given, variables = _stdin(stdin), label_rules.parse(env or ())
        return await sandbox.exec(command, cwd=cwd, env=variables, user=user, stdin=given, timeout=timeout)

    result = output.run(call, what=f"running {command[0]} in {sandbox_id}", as_json=json)
    if json:
        output.data(_to_json(result))
    else:
        _pass_on(result)
    raise typer.Exit(exit_code(result))


def exit_code(result: ExecResult) -> int:
    """Give the code that a shell gives for such an end."""
    if result.end == "signalled":
        return 128 + (result.signal or 0)
    return EXIT_BY_END.get(result.end, result.exit_code or 0)


def _stdin(option: str | None) -> bytes:
    if option is None:
        return b""
    if option != "-":
        raise InvalidArgument(f"--stdin {option!r}: only `-`, the standard input, is offered")
    return sys.stdin.buffer.read()


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
        output.talk(f"the command ended as {result.end} after {result.run_ms:.0f} ms")


def _to_json(result: ExecResult) -> dict[str, Any]:
    streams = [f"{stream}{part}" for stream in ("stdout", "stderr") for part in ("", "_truncated", "_total_bytes")]
    times = ("queue_ms", "spawn_ms", "run_ms", "replayed")
    return {name: getattr(result, name) for name in ("exec_id", "end", "exit_code", "signal", *streams, *times)}
