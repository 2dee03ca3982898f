"""`rollbox processes`, `attach` and `kill`."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Annotated

import typer

from rollbox.cli import output
from rollbox.cli.exec import Raw, exit_code, print_end
from rollbox.cli.options import Json
from rollbox.cli.sandboxes import span
from rollbox.errors import InvalidArgument

if TYPE_CHECKING:
    from rollbox.client import Client
    from rollbox.process import ExecSummary
    from rollbox.result import ExecResult

SandboxId = Annotated[str, typer.Argument(metavar="ID", help="The sandbox.")]
ExecId = Annotated[str, typer.Argument(metavar="EXEC", help="As `rollbox processes` shows it.")]
_SHOWN_CHARS = 60


def processes(sandbox_id: SandboxId, *, json: Json = False) -> None:
    """List the commands of a sandbox that run, and those that ended and are still on record."""

    async def call(client: Client) -> list[ExecSummary]:
        return await (await client.connect(sandbox_id)).processes.list()

    found = output.run(call, what=f"listing the processes of {sandbox_id}", as_json=json)
    if json:
        output.data([item.to_json() for item in found])
    else:
        columns = ("exec", "pid", "state", "age", "stdout", "stderr", "command")
        output.table(columns, [_row(item) for item in found], told=True)


def attach(
    sandbox_id: SandboxId,
    exec_id: ExecId,
    *,
    interactive: Annotated[bool, typer.Option("--interactive", "-i", help="Forward standard input.")] = False,
    offset: Annotated[int, typer.Option(min=0, help="First byte of stdout and stderr to show.")] = 0,
    raw: Raw = False,
) -> None:
    """Show the output of a command from its beginning, as far as it is kept, and follow it to its end; the exit code is
    that of the command. Ctrl-C leaves it running.
    """

    async def call(client: Client) -> ExecResult:
        from rollbox.cli import streaming

        found = (await client.connect(sandbox_id)).processes
        async with await found.attach(exec_id, stdout_offset=offset, stderr_offset=offset) as process:
            process.detach()
            return await streaming.run(process, stdin=interactive, terminal=False, raw=raw)

    result = output.run(call, what=f"attached to {exec_id} in {sandbox_id}", quiet=True)
    print_end(result)
    raise typer.Exit(exit_code(result))


def kill(
    sandbox_id: SandboxId,
    exec_id: ExecId,
    *,
    name: Annotated[str | None, typer.Option("--signal", "-s", metavar="SIG", help="TERM, SIGINT, 9, ...")] = None,
    tree: Annotated[bool, typer.Option(help="Send the signal to all its processes.")] = False,
    json: Json = False,
) -> None:
    """Kill a command with all its processes, or send it a signal."""

    async def call(client: Client) -> None:
        number = None if name is None else _number(name)
        found = (await client.connect(sandbox_id)).processes
        async with await found.attach(exec_id) as process:
            process.detach()
            await (process.kill() if number is None else process.signal(number, tree=tree))

    output.run(call, what=f"killing {exec_id} in {sandbox_id}", as_json=json)
    if json:
        output.data({"exec_id": exec_id, "signal": name})


def _number(name: str) -> int:
    if name.isdigit():
        return int(name)
    try:
        return signal.Signals["SIG" + name.upper().removeprefix("SIG")]
    except KeyError:
        raise InvalidArgument(f"{name!r} is not a signal", hint="Use a name like TERM or INT, or a number.") from None


def _row(item: ExecSummary) -> tuple[str, ...]:
    from rollbox.files.paths import shown

    code = "" if item.exit_code is None else f" {item.exit_code}"
    state = "running" if item.running else f"{item.end}{code}"
    age = span(time.time() - item.started_at_ms / 1000)
    command = shown(" ".join(item.argv))
    command = command if len(command) <= _SHOWN_CHARS else f"{command[: _SHOWN_CHARS - 1]}…"
    return (item.exec_id, str(item.pid), state, age, str(item.stdout_bytes), str(item.stderr_bytes), command)
